package gormplugin

import (
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// checkError judges a violated check constraint: what WithCheck says of it, or that a guarded column ran out. It returns
// nil for a check that is about something else.
func (j *judge) checkError(db *gorm.DB, e dbError) error {
	name := bareName(e.name) // MariaDB names the check of a column "items.stock"
	var mapped error
	for _, m := range j.checks {
		if strings.EqualFold(m.constraint, name) && (m.table == "" || sameTable(m.table, statementTable(db))) {
			if mapped == nil || m.table != "" {
				mapped = m.err
			}
		}
	}
	var column string
	if t := j.guarded(db, e); t != nil {
		column = checkedColumn(t, e.name)
	}
	if mapped == nil && column == "" {
		return nil
	}
	failed := j.failed(db, e, ErrInsufficient, "check")
	failed.mapped, failed.column, failed.index = mapped, column, name
	return failed
}

// checkedColumn returns the stock column that a check is about. The model's own checks are asked first; else the name, or
// on SQLite the expression of a check without one, has to hold the column's: items_stock_check.
func checkedColumn(t *table, check string) string {
	if t.schema != nil {
		if c, ok := t.schema.ParseCheckConstraints()[check]; ok {
			for _, stock := range t.stock {
				if stock.field == c.Field || containsWord(c.Constraint, stock.name) {
					return stock.name
				}
			}
			return ""
		}
	}
	found := ""
	for _, stock := range t.stock {
		if containsPart(check, stock.name) && len(stock.name) > len(found) {
			found = stock.name
		}
	}
	if found != "" && t.schema != nil && longerColumn(t.schema, check, found) {
		return ""
	}
	return found
}

// longerColumn reports whether the name is rather about another column: items_stock_price_check is not about stock.
func longerColumn(s *schema.Schema, check, column string) bool {
	for _, other := range s.DBNames {
		if len(other) > len(column) && containsPart(other, column) && containsPart(check, other) {
			return true
		}
	}
	return false
}

// containsPart is containsWord with the underscore as a border too.
func containsPart(text, part string) bool {
	return containsWord(strings.ReplaceAll(text, "_", " "), strings.ReplaceAll(part, "_", " "))
}
