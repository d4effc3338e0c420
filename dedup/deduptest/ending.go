package deduptest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

func testLease(t *testing.T, newStore Factory) {
	t.Run("it is counted in the unit it is given in", func(t *testing.T) {
		for _, lease := range []time.Duration{1500 * time.Millisecond, 30 * time.Second, 90 * time.Minute} {
			c := newClient(t, newStore(t))
			c.ask(func(b *dedup.BeginRequest) { b.Lease, b.TTL = lease, 2*time.Hour })
			for range 2 {
				if a := c.other().ask(nil); a.Verdict != dedup.VerdictInFlight || a.Rest > lease || a.Rest < lease/2 {
					t.Errorf("a lease of %v leaves %v (verdict %d)", lease, a.Rest, a.Verdict)
				}
				c.renew(lease, nil)
			}
		}
	})
	t.Run("it lapses by itself", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.ask(func(b *dedup.BeginRequest) { b.Lease = short })
		eventually(t, "a lease of 1ms is alive", func() bool {
			return c.other().ask(func(b *dedup.BeginRequest) { b.NoTakeover = true }).Verdict == dedup.VerdictInterrupted
		})
	})
	t.Run("it is renewed after it has lapsed, as long as nobody has taken over", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		c.renew(long, nil)
		next := c.other()
		next.begin(dedup.VerdictInFlight)
		c.lapse()
		next.run(2, true)
		c.renew(long, dedup.ErrLeaseLost)
	})
	t.Run("it is not renewed once the record has ended", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.renew(long, dedup.ErrNoRecord)
		c.run(1, false)
		c.fail(nil)
		c.renew(long, dedup.ErrLeaseLost)
		c = c.other()
		c.run(2, false)
		c.complete(result, nil)
		c.renew(long, dedup.ErrLeaseLost)
		c.other().replay(result, 2)
	})
	t.Run("a renewal creates no record", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.renew(long, dedup.ErrNoRecord)
		c = c.other()
		c.run(1, false)
	})
}

func testComplete(t *testing.T, newStore Factory) {
	t.Run("it counts after the lease has lapsed, if nobody has taken over", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		c.complete(result, nil)
		c.other().replay(result, 1)
	})
	t.Run("it does not count after a takeover, and the other's does", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		next := c.other()
		next.run(2, true)
		c.complete(result, dedup.ErrLeaseLost)
		third := c.other()
		third.begin(dedup.VerdictInFlight)
		second := dedup.Result{Code: 200, Data: []byte("second")}
		next.complete(second, nil)
		c.complete(result, dedup.ErrLeaseLost)
		c.other().replay(second, 2)
	})
	t.Run("a record that is gone is written anew, with its fingerprint", func(t *testing.T) {
		c := newClient(t, newStore(t)).fingerprint("a")
		c.owner.Attempt = 3
		c.complete(result, nil)
		c.other().replay(result, 3)
		other := c.other().fingerprint("b")
		other.begin(dedup.VerdictMismatch)
	})
	t.Run("it does not count after the owner has given up", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		c.complete(result, dedup.ErrLeaseLost)
		next := c.other()
		next.run(2, false)
	})
	t.Run("the data is the caller's again once it has returned", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		data := []byte("first")
		c.complete(dedup.Result{Data: data}, nil)
		copy(data, "XXXXX")
		c.other().replay(dedup.Result{Data: []byte("first")}, 1)
	})
}

func testGiveUp(t *testing.T, newStore Factory) {
	t.Run("to fail keeps attempt and record", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		c = c.other()
		c.run(2, false)
	})
	t.Run("to forget the first attempt leaves nothing", func(t *testing.T) {
		c := newClient(t, newStore(t)).fingerprint("a")
		c.run(1, false)
		c.forget(nil)
		other := c.other().fingerprint("b") // a corrected body
		other.run(1, false)
	})
	t.Run("to forget a later attempt is to fail: what the first did is unknown", func(t *testing.T) {
		c := newClient(t, newStore(t)).fingerprint("a")
		c.run(1, false)
		c.lapse()
		next := c.other()
		next.run(2, true)
		next.forget(nil)
		other := c.other().fingerprint("b")
		other.begin(dedup.VerdictMismatch)
		again := c.other()
		again.run(3, false)
	})
	t.Run("a lapsed owner may still give up", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		c.fail(nil)
		c = c.other()
		c.run(2, false)
		c.lapse()
		c.forget(nil)
		c = c.other()
		c.run(3, false)
	})
	t.Run("what is done stays done", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.complete(result, nil)
		c.fail(dedup.ErrLeaseLost)
		c.forget(dedup.ErrLeaseLost)
		c.other().replay(result, 1)
	})
	t.Run("without a record there is nothing to give up", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.fail(dedup.ErrNoRecord)
		c.forget(dedup.ErrNoRecord)
		c.run(1, false)
	})
}

func testRepeat(t *testing.T, newStore Factory) {
	t.Run("a begin that is sent again has the same answer and a fresh lease", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.run(1, false)
		c.lapse()
		c.run(1, false)
		next := c.other()
		next.begin(dedup.VerdictInFlight)
		c.lapse()
		next.run(2, true)
		next.run(2, true)
		next.fail(nil)
		next = c.other()
		next.run(3, false)
		next.run(3, false)
	})
	t.Run("a begin that arrives after its owner has ended starts nothing", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		c.begin(dedup.VerdictInFlight)
		next := c.other()
		next.run(2, false)
		next.complete(result, nil)
		next.replay(result, 2)
		c.replay(result, 2)
	})
	t.Run("a complete that is sent again", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.complete(result, nil)
		c.complete(result, nil)
		c.other().replay(result, 1)
	})
	t.Run("a fail that is sent again", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		c.fail(nil)
		next := c.other()
		next.run(2, false)
		c.fail(dedup.ErrLeaseLost)
		next.renew(long, nil)
	})
	t.Run("a forget that is sent again", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.forget(nil)
		c.forget(dedup.ErrNoRecord)
		next := c.other()
		next.run(1, false)
		c.forget(dedup.ErrLeaseLost)
		next.lapse()
		next = c.other()
		next.run(2, true)
		next.forget(nil)
		next.forget(nil)
		next = c.other()
		next.run(3, false)
	})
}

func testForeignToken(t *testing.T, newStore Factory) {
	states := map[string]struct {
		reach func(c client)
		then  func(c client)
	}{
		"running": {func(client) {}, func(c client) { c.renew(long, nil); c.complete(result, nil) }},
		"lapsed":  {func(c client) { c.lapse() }, func(c client) { c.complete(result, nil) }},
		"failed":  {func(c client) { c.fail(nil) }, func(c client) { next := c.other(); next.run(2, false) }},
		"done":    {func(c client) { c.complete(result, nil) }, func(c client) { c.other().replay(result, 1) }},
	}
	for state, s := range states {
		t.Run("it changes nothing of a record that is "+state, func(t *testing.T) {
			c := newClient(t, newStore(t))
			c.run(1, false)
			s.reach(c)
			foreign := c.other()
			foreign.renew(long, dedup.ErrLeaseLost)
			foreign.complete(dedup.Result{Code: 500}, dedup.ErrLeaseLost)
			foreign.fail(dedup.ErrLeaseLost)
			foreign.forget(dedup.ErrLeaseLost)
			s.then(c)
		})
	}
}
