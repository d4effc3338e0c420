package deduptest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/dedup"
)

const racers = 100

func testRace(t *testing.T, newStore Factory) {
	start := map[string]struct {
		reach   func(c client)
		attempt int
	}{
		"a new record":         {func(client) {}, 1},
		"a just lapsed record": {func(c client) { c.run(1, false); c.lapse() }, 2},
		"a failed record":      {func(c client) { c.run(1, false); c.fail(nil) }, 2},
	}
	for name, from := range start {
		t.Run("of 100 that begin at once one runs: "+name, func(t *testing.T) {
			s := newStore(t)
			for range 10 {
				c := newClient(t, s)
				from.reach(c)
				if runs := race(c, from.attempt); runs != 1 {
					t.Fatalf("%d run, want 1", runs)
				}
			}
		})
	}
	t.Run("a completion and a takeover: one of them counts, and it is the one that is replayed", func(t *testing.T) {
		s := newStore(t)
		for range 50 {
			c := newClient(t, s)
			c.run(1, false)
			c.lapse()
			next := c.other()
			var late error
			var wg sync.WaitGroup
			wg.Go(func() { late = c.store.Complete(t.Context(), c.owner, result, long) })
			a := next.ask(nil)
			wg.Wait()
			switch a.Verdict {
			case dedup.VerdictReplay:
				c.want("Complete", late, nil)
				c.other().replay(result, 1)
			case dedup.VerdictRun:
				c.want("Complete", late, dedup.ErrLeaseLost)
				next.owner.Attempt = a.Attempt
				next.complete(dedup.Result{Code: 200}, nil)
				c.other().replay(dedup.Result{Code: 200}, 2)
			default:
				t.Fatalf("Begin answered %+v", a)
			}
		}
	})
}

// race has many begin at once and returns how many were told to run.
func race(c client, attempt int) int {
	var runs, wrong atomic.Int32
	var ready, wg sync.WaitGroup
	ready.Add(racers)
	for range racers {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			a, err := c.store.Begin(c.t.Context(), dedup.BeginRequest{Owner: c.other().owner, Lease: long, TTL: long})
			switch {
			case err == nil && a.Verdict == dedup.VerdictRun && a.Attempt == attempt:
				runs.Add(1)
			case err == nil && a.Verdict == dedup.VerdictInFlight && a.Attempt == attempt:
			default:
				wrong.Add(1)
				c.t.Errorf("Begin answered %+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	return int(runs.Load())
}
