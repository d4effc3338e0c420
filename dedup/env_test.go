package dedup_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// mini returns a client of an embedded server.
func mini(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return srv, rdb
}

// patient is for tests in real time that do not look at it: the machine may be busy with others.
var patient = dedup.Shorten{Call: 5 * time.Second, Wait: 30 * time.Second}.Option()

// engine returns a patient Dedup on Redis that must have nothing open at the end of the test.
func engine(t testing.TB, rdb redis.UniversalClient, opts ...dedup.Option) *dedup.Dedup {
	t.Helper()
	d, err := dedup.New(rdb, append([]dedup.Option{patient}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, d)
	return d
}

// engineOn returns a Dedup on a store that must have nothing open at the end of the test.
func engineOn(t testing.TB, s dedup.Store, opts ...dedup.Option) *dedup.Dedup {
	t.Helper()
	d, err := dedup.NewWithStore(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, d)
	return d
}

func closeAtEnd(t testing.TB, d *dedup.Dedup) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if busy, waiting := d.Busy(), d.Waiting(); busy != 0 || waiting != 0 {
			t.Errorf("after Close %d requests are known and %d callers wait", busy, waiting)
		}
	})
}

// buy is a request; the same key is the same request.
func buy(key string) dedup.Request {
	return dedup.Request{Scope: "user-7", Name: "POST /orders", Key: key, Fingerprint: []byte("body")}
}

// begun begins and wants a claim.
func begun(t testing.TB, d *dedup.Dedup, req dedup.Request) *dedup.Claim {
	t.Helper()
	claim, rec, err := d.Begin(t.Context(), req)
	if claim == nil {
		t.Fatalf("Begin answered %+v, %v; want a claim", rec, err)
	}
	return claim
}

// replayed begins and wants a record.
func replayed(t testing.TB, d *dedup.Dedup, req dedup.Request) *dedup.Record {
	t.Helper()
	claim, rec, err := d.Begin(t.Context(), req)
	if rec == nil {
		t.Fatalf("Begin answered %+v, %v; want a record", claim, err)
	}
	return rec
}

// gate is a store that lets a test see and hold up the calls of another.
type gate struct {
	dedup.Store
	before func(ctx context.Context, call string) error // returned instead of the call
	after  func(call string, err error) error           // returned instead of the answer
}

func (g *gate) pass(ctx context.Context, call string, do func() error) error {
	if g.before != nil {
		if err := g.before(ctx, call); err != nil {
			return err
		}
	}
	err := do()
	if g.after != nil {
		err = g.after(call, err)
	}
	return err
}

func (g *gate) Begin(ctx context.Context, b dedup.BeginRequest) (a dedup.Answer, err error) {
	err = g.pass(ctx, "begin", func() (err error) { a, err = g.Store.Begin(ctx, b); return err })
	if err != nil {
		return dedup.Answer{}, err
	}
	return a, nil
}

func (g *gate) Renew(ctx context.Context, o dedup.Owner, lease time.Duration) error {
	return g.pass(ctx, "renew", func() error { return g.Store.Renew(ctx, o, lease) })
}

func (g *gate) Complete(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error {
	return g.pass(ctx, "complete", func() error { return g.Store.Complete(ctx, o, r, ttl) })
}

func (g *gate) Fail(ctx context.Context, o dedup.Owner) error {
	return g.pass(ctx, "fail", func() error { return g.Store.Fail(ctx, o) })
}

func (g *gate) Forget(ctx context.Context, o dedup.Owner) error {
	return g.pass(ctx, "forget", func() error { return g.Store.Forget(ctx, o) })
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	testserver.Eventually(t, 10*time.Second, cond, what)
}
