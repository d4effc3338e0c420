package holdfast_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

// arrows says which packages of the module a package may import besides those under internal. A package that is not
// listed may import none.
var arrows = map[string][]string{
	"middleware":      {"lockkey", "lock", "dedup"},
	"landing":         {"stock", "gormplugin"},
	"dedup/deduptest": {"dedup"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

func TestArrows(t *testing.T) {
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		top, _, _ := strings.Cut(name, "/")
		if top == "examples" || top == "cmd" {
			continue // may import anything public; the compiler keeps them out of others' internals
		}
		inside := strings.HasPrefix(name, "internal/")
		forTests := name == "internal/testserver" || name == "internal/faultproxy" || name == "internal/checker"
		for _, imp := range p.Imports {
			switch to, ours := strings.CutPrefix(imp, module+"/"); {
			case ours && strings.HasPrefix(to, "internal/"):
				if !forTests && (to == "internal/testserver" || to == "internal/faultproxy" || to == "internal/checker") {
					t.Errorf("%s imports %s, which is for tests", name, to)
				}
			case ours && (inside || !slices.Contains(arrows[name], to)):
				t.Errorf("%s imports %s: that arrow is not in the picture", name, to)
			case inside && !forTests && name != "internal/redisx" && strings.HasPrefix(imp, "github.com/redis/go-redis"):
				t.Errorf("%s imports go-redis: inside internal only redisx knows it", name)
			case imp == "net/http" && slices.Contains([]string{"lock", "dedup", "stock", "landing", "gormplugin"}, name):
				t.Errorf("%s imports net/http", name)
			case strings.HasPrefix(imp, "gorm.io/") && !slices.Contains([]string{"gormplugin", "landing"}, name) && !forTests:
				t.Errorf("%s imports %s", name, imp)
			}
		}
	}
}

// What a service links with a package must be what the package is for.
func TestWhatIsLinked(t *testing.T) {
	never := []string{
		"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/alicebob/miniredis", "github.com/google/go-cmp",
		"go.uber.org/goleak", "testing", "gopkg.in/yaml.v3", module + "/internal/testserver", module + "/internal/faultproxy",
	}
	besides := map[string][]string{
		"middleware": {"gorm.io/"},
		"lock":       {"gorm.io/", "github.com/go-chi/"},
		"dedup":      {"gorm.io/", "github.com/go-chi/"},
		"stock":      {"gorm.io/", "github.com/go-chi/"},
		"lockkey":    {"gorm.io/", "github.com/redis/"},
		"gormplugin": {"github.com/redis/", "github.com/go-chi/", "github.com/jackc/", "github.com/go-sql-driver/", "modernc.org/", "gorm.io/driver/"},
	}
	for name, more := range besides {
		for _, p := range list(t, "./"+name) {
			for _, dep := range p.Deps {
				for _, bad := range slices.Concat(never, more) {
					if dep == bad || strings.HasPrefix(dep, strings.TrimSuffix(bad, "/")+"/") {
						t.Errorf("%s links %s", name, dep)
					}
				}
			}
		}
	}
}
