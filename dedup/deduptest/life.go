package deduptest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

func testLife(t *testing.T, newStore Factory) {
	const brief = 50 * time.Millisecond
	ttl := func(b *dedup.BeginRequest) { b.TTL = brief }
	gone := func(c client) {
		t.Helper()
		// A store answers ErrNoRecord to a Fail under a foreign token only once the record is gone.
		eventually(c.t, "the record outlives its TTL", func() bool {
			return errors.Is(c.store.Fail(c.t.Context(), c.other().owner), dedup.ErrNoRecord)
		})
	}
	t.Run("a running record ends with its TTL, however long its lease is", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.t = t
		c.ask(ttl)
		gone(c)
	})
	t.Run("a failed record ends with its TTL", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.ask(ttl)
		c.fail(nil)
		gone(c)
	})
	t.Run("a done record ends with the TTL of its completion, not of its beginning", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		if err := c.store.Complete(t.Context(), c.owner, result, brief); err != nil {
			t.Fatal(err)
		}
		gone(c)
	})
	t.Run("completion makes it live on", func(t *testing.T) {
		s := newStore(t)
		c, witness := newClient(t, s), newClient(t, s)
		c.ask(func(b *dedup.BeginRequest) { b.TTL = time.Second })
		c.complete(result, nil)
		witness.ask(func(b *dedup.BeginRequest) { b.TTL = time.Second + brief })
		gone(witness)
		c.other().replay(result, 1)
	})
	t.Run("each attempt makes it live on", func(t *testing.T) {
		s := newStore(t)
		c, witness := newClient(t, s), newClient(t, s)
		c.ask(func(b *dedup.BeginRequest) { b.TTL = time.Second })
		c.fail(nil)
		next := c.other()
		next.run(2, false)
		witness.ask(func(b *dedup.BeginRequest) { b.TTL = time.Second + brief })
		gone(witness)
		next.complete(result, nil)
		c.other().replay(result, 2)
	})
}

func testArguments(t *testing.T, newStore Factory) {
	past := map[string]time.Duration{"zero": 0, "past": -time.Second, "under a millisecond": time.Millisecond - 1, "least": math.MinInt64}
	for name, d := range past {
		t.Run("a duration that is "+name+" is refused and changes nothing", func(t *testing.T) {
			c := newClient(t, newStore(t))
			b := dedup.BeginRequest{Owner: c.owner, Lease: long, TTL: long}
			b.Lease = d
			_, err := c.store.Begin(t.Context(), b)
			c.want("Begin with that lease", err, dedup.ErrInvalid)
			b.Lease, b.TTL = long, d
			_, err = c.store.Begin(t.Context(), b)
			c.want("Begin with that TTL", err, dedup.ErrInvalid)
			c.run(1, false)
			c.renew(d, dedup.ErrInvalid)
			c.want("Complete with that TTL", c.store.Complete(t.Context(), c.owner, result, d), dedup.ErrInvalid)
			next := c.other()
			next.begin(dedup.VerdictInFlight)
		})
	}
	t.Run("no id, no token, no attempt, a code below zero", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		for _, change := range []func(*dedup.Owner){func(o *dedup.Owner) { o.ID = "" }, func(o *dedup.Owner) { o.Token = "" }} {
			bad := c
			change(&bad.owner)
			_, err := bad.store.Begin(t.Context(), dedup.BeginRequest{Owner: bad.owner, Lease: long, TTL: long})
			bad.want("Begin", err, dedup.ErrInvalid)
			bad.renew(long, dedup.ErrInvalid)
			bad.complete(result, dedup.ErrInvalid)
			bad.fail(dedup.ErrInvalid)
			bad.forget(dedup.ErrInvalid)
		}
		bad := c
		bad.owner.Attempt = 0
		bad.complete(result, dedup.ErrInvalid)
		c.complete(dedup.Result{Code: -1}, dedup.ErrInvalid)
		c.complete(result, nil)
	})
	t.Run("a context that has ended is an error, never an answer", func(t *testing.T) {
		c := newClient(t, newStore(t))
		c.run(1, false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		started := time.Now()
		_, err := c.store.Begin(ctx, dedup.BeginRequest{Owner: c.owner, Lease: long, TTL: long})
		for call, err := range map[string]error{
			"Begin": err, "Renew": c.store.Renew(ctx, c.owner, long), "Complete": c.store.Complete(ctx, c.owner, result, long),
			"Fail": c.store.Fail(ctx, c.owner), "Forget": c.store.Forget(ctx, c.owner),
		} {
			if !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, dedup.ErrUnknownOutcome) {
				t.Errorf("%s returned %v, want ErrUnavailable or ErrUnknownOutcome", call, err)
			}
		}
		if d := time.Since(started); d > 5*250*time.Millisecond {
			t.Errorf("five calls with an ended context took %v", d)
		}
	})
}
