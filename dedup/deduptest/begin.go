package deduptest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

var result = dedup.Result{Code: 201, Data: []byte("order 1\x00\xff")}

func testBegin(t *testing.T, newStore Factory) {
	t.Run("the first runs as attempt 1", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
	})
	t.Run("while it runs, the next is told how long the lease still is", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		next := c.other()
		a := next.begin(dedup.VerdictInFlight)
		if a.Rest <= long-10*time.Second || a.Rest > long || a.Attempt != 1 {
			t.Errorf("answered %+v, want attempt 1 and just under %v", a, long)
		}
	})
	t.Run("a done one is replayed, to the byte", func(t *testing.T) {
		for _, r := range []dedup.Result{result, {}, {Code: 302}, {Code: 200, Omitted: true}, {Data: []byte{}}, {Code: 200, Data: make([]byte, 1<<20)}} {
			c := newClient(t, newStore(t))
			c.run(1, false)
			c.complete(r, nil)
			c.other().replay(r, 1)
			c.other().replay(r, 1)
		}
	})
	t.Run("a failed one runs again at once, as the next attempt", func(t *testing.T) {
		c := newClient(t, newStore(t))
		for attempt := range 3 {
			c = c.other()
			c.run(attempt+1, false)
			c.fail(nil)
		}
	})
	t.Run("a lapsed one is taken over, as the next attempt", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		next := c.other()
		next.run(2, true)
		next.lapse()
		next = c.other()
		next.run(3, true)
		next.fail(nil)
		next = c.other()
		next.run(4, false)
	})
	t.Run("a lapsed one is not taken over where that is refused, and stays so", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.lapse()
		for range 2 {
			next := c.other()
			if a := next.ask(func(b *dedup.BeginRequest) { b.NoTakeover = true }); a.Verdict != dedup.VerdictInterrupted || a.Attempt != 1 {
				t.Errorf("answered %+v, want interrupted, attempt 1", a)
			}
		}
		c.complete(result, nil)
	})
	t.Run("a failed one runs again where a takeover is refused: nobody is at work", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		next := c.other()
		if a := next.ask(func(b *dedup.BeginRequest) { b.NoTakeover = true }); a.Verdict != dedup.VerdictRun || a.Attempt != 2 {
			t.Errorf("answered %+v, want to run as attempt 2", a)
		}
	})
	t.Run("the trace of the first execution is kept", func(t *testing.T) {
		const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		c := newClient(t, newStore(t))
		trace := func(tp string) func(*dedup.BeginRequest) { return func(b *dedup.BeginRequest) { b.TraceParent = tp } }
		for name, a := range map[string]dedup.Answer{"run": c.ask(trace(first)), "in flight": c.other().ask(trace(second))} {
			if a.TraceParent != first {
				t.Errorf("%s: trace %q, want %q", name, a.TraceParent, first)
			}
		}
		c.fail(nil)
		c = c.other()
		if a := c.ask(trace(second)); a.TraceParent != first {
			t.Errorf("attempt 2: trace %q, want that of the first", a.TraceParent)
		}
		c.complete(result, nil)
		if a := c.other().ask(trace(second)); a.TraceParent != first {
			t.Errorf("replay: trace %q, want that of the first", a.TraceParent)
		}
	})
	t.Run("records do not know of each other", func(t *testing.T) {
		s := newStore(t)
		a, b := newClient(t, s), newClient(t, s)
		b.owner.Token = a.owner.Token
		a.run(1, false)
		a.complete(result, nil)
		b.run(1, false)
	})
}

func testFingerprint(t *testing.T, newStore Factory) {
	states := map[string]func(c client){
		"running":   func(client) {},
		"lapsed":    func(c client) { c.lapse() },
		"failed":    func(c client) { c.fail(nil) },
		"done":      func(c client) { c.complete(result, nil) },
		"tombstone": func(c client) { c.complete(dedup.Result{Code: 200, Omitted: true}, nil) },
	}
	for state, reach := range states {
		t.Run("another one is a mismatch: "+state, func(t *testing.T) {
			c := newClient(t, newStore(t)).fingerprint("a")
			c.run(1, false)
			reach(c)
			other := c.other().fingerprint("b")
			other.begin(dedup.VerdictMismatch)
			same := c.other()
			if a := same.ask(nil); a.Verdict == dedup.VerdictMismatch {
				t.Error("the same fingerprint is a mismatch after it")
			}
		})
		t.Run("none is not compared: "+state, func(t *testing.T) {
			s := newStore(t)
			with := newClient(t, s).fingerprint("a")
			with.run(1, false)
			reach(with)
			none := with.other()
			none.owner.Fingerprint = nil
			if a := none.ask(nil); a.Verdict == dedup.VerdictMismatch {
				t.Error("a request without a fingerprint is a mismatch")
			}
		})
	}
	t.Run("a record without one takes that of the next attempt", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		c.fail(nil)
		next := c.other().fingerprint("a")
		next.run(2, false)
		other := c.other().fingerprint("b")
		other.begin(dedup.VerdictMismatch)
	})
	t.Run("it survives an attempt without one", func(t *testing.T) {
		c := newClient(t, newStore(t)).fingerprint("a")
		c.run(1, false)
		c.fail(nil)
		none := c.other()
		none.owner.Fingerprint = nil
		none.run(2, false)
		other := c.other().fingerprint("b")
		other.begin(dedup.VerdictMismatch)
	})
}
