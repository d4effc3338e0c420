package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Names count as API: docs/telemetry.md names each of them, and none that is not there.
func TestDocsAndNamesAgree(t *testing.T) {
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)*)`").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if name, err := strconv.Unquote(lit.Value); err == nil && name != "go.opentelemetry.io/otel/attribute" {
			declared[name] = true
		}
		return true
	})
	for name := range declared {
		if !documented[name] {
			t.Errorf("docs/telemetry.md does not name %s", name)
		}
	}
	ours := regexp.MustCompile(`^holdfast\.`)
	for name := range documented {
		if ours.MatchString(name) && !declared[name] {
			t.Errorf("docs/telemetry.md names %s, which names.go does not have", name)
		}
	}
}
