package crash

import (
	"fmt"
	"testing"
)

// Each point once with kill -9 of the acting process and once with a connection that breaks: afterwards every invariant
// holds.
func TestEachPoint(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	for _, shop := range []struct {
		name    string
		landing bool
		points  []point
	}{{"landing by the worker", true, withLanding}, {"landing in the handler", false, inHandler}} {
		for _, p := range shop.points {
			for _, b := range []breakage{kill, lost} {
				t.Run(fmt.Sprintf("%s/%s %s/%s", shop.name, p.name, p.arrow, b.name), func(t *testing.T) {
					t.Parallel()
					b.run(t, &p, shop.landing, stands{}, seed)
				})
			}
		}
	}
}
