package crash

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// shops are the two ways of landing, with the points at which each is broken.
var shops = []struct {
	name    string
	landing bool
	points  []point
}{{"landing by the worker", true, withLanding}, {"landing in the handler", false, inHandler}}

// Each point once with kill -9 of the acting process and once with a connection that breaks: afterwards every invariant
// holds.
func TestEachPoint(t *testing.T) {
	t.Parallel()
	eachPoint(t, kill, lost)
}

// Something else breaks while a point's command, or its reply, is under way: afterwards every invariant holds. Where Redis
// has lost what it had acknowledged, nothing is sold twice all the same, and the plan makes the books equal. In the short
// form each breakage comes at one point, that the seed chooses among those that it can break; with -long at each.
func TestEachBreakage(t *testing.T) {
	t.Parallel()
	all := []breakage{lockLost, stopped, evicted, redisFull, readOnly, sqlRestarted, redisRestarted, redisEmptied, failedOver}
	if *long {
		eachPoint(t, all...)
		return
	}
	seed := seed(t)
	dice := rand.New(rand.NewPCG(seed, 2))
	for _, b := range all {
		shop := shops[dice.IntN(len(shops))]
		var apt []point
		for _, p := range shop.points {
			if b.breaks(&p, shop.landing) {
				apt = append(apt, p)
			}
		}
		p := apt[dice.IntN(len(apt))]
		t.Run(fmt.Sprintf("%s/%s %s/%s", shop.name, p.name, p.arrow, b.name), func(t *testing.T) {
			t.Parallel()
			b.run(t, &p, shop.landing, seed)
		})
	}
}

// A transaction that PostgreSQL refuses with a serialization failure is made again, and then everything is as it should be.
func TestSerializationFailure(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	for _, shop := range shops {
		for _, p := range shop.points {
			if p.name != "7" { // the only one between a transaction's snapshot and its write of a row that others write
				continue
			}
			t.Run(shop.name, func(t *testing.T) {
				t.Parallel()
				b := serialization
				count := func(w *world) (n int64) {
					w.must(w.db.Raw("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n).Error)
					return n
				}
				var before, after int64
				b.then = func(w *world, p *point, r *faultproxy.Rule) {
					before = count(w)
					serialization.then(w, p, r)
					testserver.Eventually(w, patience, func() bool { after = count(w); return after > before }, "the transaction is rolled back")
				}
				b.run(t, &p, shop.landing, seed)
			})
		}
	}
}

func eachPoint(t *testing.T, breakages ...breakage) {
	seed := seed(t)
	for _, shop := range shops {
		for _, p := range shop.points {
			for _, b := range breakages {
				if !b.breaks(&p, shop.landing) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s %s/%s", shop.name, p.name, p.arrow, b.name), func(t *testing.T) {
					t.Parallel()
					b.run(t, &p, shop.landing, seed)
				})
			}
		}
	}
}
