package gormplugin

import (
	"math/big"
	"regexp"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// What is taken for a step must be one by a stricter reading too, or something else than a step could slip past the guard.
func FuzzStep(f *testing.F) {
	for _, seed := range []string{
		"stock - ?", "items.stock-1", "`items`.`stock` + ?", `"stock"-?`, "stock - ? - 1", "stock", "- stock ?", "stock -- ?",
		"stock - (1)", "stock - 1; x", "stock + +1", "other.stock - ?", "st\x00ock - ?", "stock - 1.5", "stock - 1 -- x", "STOCK - ?",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	strict := regexp.MustCompile("(?i)^\\s*([`\"]?items[`\"]?\\s*\\.\\s*)?[`\"]?stock[`\"]?\\s*[-+]\\s*(\\?|[0-9.]+)\\s*$")
	stock := &column{name: "stock"}
	o := &operation{table: &table{name: "items", columns: []*column{stock}}, stmt: &gorm.Statement{Table: "items"}}
	f.Fuzz(func(t *testing.T, text string, withVar bool) {
		var vars []any
		if withVar {
			vars = []any{1}
		}
		if _, _, ok := o.step(stock, clause.Expr{SQL: text, Vars: vars}); ok && !strict.MatchString(text) {
			t.Errorf("%q was taken for a step", text)
		}
	})
}

func FuzzParseNumber(f *testing.F) {
	for _, seed := range []string{"0", "-1", "+2", "1.50", ".5", "5.", "9223372036854775807", "9223372036854775808", "1e3", "0x1", "NaN", "1_0", "--1", "1.2.3", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseNumber(text)
		if !ok {
			return
		}
		if strings.Trim(text, "0123456789.+-") != "" {
			t.Fatalf("%q was taken for a number", text)
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok || n.rat().Cmp(want) != 0 {
			t.Errorf("%q became %s", text, n)
		}
		if again, ok := parseNumber(n.String()); !ok || again != n {
			t.Errorf("%s, written and read again, is %s", n, again)
		}
	})
}

func FuzzParseMark(f *testing.F) {
	for _, seed := range []string{"stock", "stock,min=-1,max=capacity", "fence,lock=a,strict", "version", "request,last,attempt=a", "stock,,", "stock,min", "=", ",", "stock,max=1,max=2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMark(text)
		if err == nil && (m.kind < kindStock || m.kind > kindRequest) {
			t.Errorf("%q became %+v", text, m)
		}
	})
}

// Raw SQL that does not so much as hold the table's name writes it nowhere.
func FuzzRawSQL(f *testing.F) {
	for _, seed := range []string{"UPDATE items SET a = 1", "SELECT '", "/*", "--", "$$", "$a$ items $a$", "'\\", "UPDATE `it", "WITH x AS (DELETE FROM items) SELECT 1", ";;;"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, sql string, mysql bool) {
		if writes(sql, "items", mysql) && !containsFold(sql, "items") {
			t.Errorf("%q writes a table that it does not name", sql)
		}
	})
}
