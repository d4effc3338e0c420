//go:build !race

package middleware

import (
	"testing"

	"github.com/go-chi/chi/v5"
)

// A lock rule costs, over what any lock costs, the key's string and its list; without a writer outside that tells its
// status, that writer too. In Use it looks for its route, in a routing context of its own.
func TestAllocationsOfALockRule(t *testing.T) {
	routers := lockRouters(t)
	base := testing.AllocsPerRun(500, serve(routers["bare lock"], "POST", "/items/1001", true))
	for name, most := range map[string]float64{"inline": 2, "applied": 2, "Use": 11} {
		got := testing.AllocsPerRun(500, serve(routers[name], "POST", "/items/1001", true)) - base
		if got > most {
			t.Errorf("%s: %v allocations more than a bare lock, at most %v", name, got, most)
		}
		without := testing.AllocsPerRun(500, serve(routers[name], "POST", "/items/1001", false)) - base
		if without > most+1 {
			t.Errorf("%s, without a writer outside: %v allocations more than a bare lock, at most %v", name, without, most+1)
		}
		t.Logf("%s: %v more, without a writer outside %v, bare lock %v", name, got, without, base)
	}
}

// A method that a rule does not act on costs nothing, also in Use.
func TestAllocationsOfOtherMethods(t *testing.T) {
	g := offline(t)
	plain, ruled := chi.NewRouter(), chi.NewRouter()
	ruled.Use(g.RequestID("{userID}", Optional()), g.Dedup("{userID}"), g.Lock("stock:{itemID}"))
	plain.Get("/items/{itemID}", nothing)
	ruled.Get("/items/{itemID}", nothing)
	base := testing.AllocsPerRun(500, serve(plain, "GET", "/items/1001", true))
	if got := testing.AllocsPerRun(500, serve(ruled, "GET", "/items/1001", true)); got > base {
		t.Errorf("%v allocations, %v without rules", got, base)
	}
}
