package deduptest

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

// Factory returns a store whose records age by themselves. It is called once for each test, which uses ids of its own,
// so the same store may be returned each time.
type Factory func(t *testing.T) dedup.Store

// Run tests a store against the contract of [dedup.Store], one subtest for each rule. The store needs about two seconds
// of patience and a few thousand records that live for a minute.
func Run(t *testing.T, newStore Factory) {
	t.Helper()
	for _, topic := range []struct {
		name string
		run  func(t *testing.T, newStore Factory)
	}{
		{"begin", testBegin},
		{"fingerprint", testFingerprint},
		{"lease", testLease},
		{"complete", testComplete},
		{"give up", testGiveUp},
		{"repeat", testRepeat},
		{"foreign token", testForeignToken},
		{"life", testLife},
		{"arguments", testArguments},
		{"race", testRace},
		{"model", testModel},
	} {
		t.Run(topic.name, func(t *testing.T) { topic.run(t, newStore) })
	}
}

const (
	long  = time.Minute      // a lease, or a life, that does not end during a test
	short = time.Millisecond // a lease that has lapsed when it is next looked at
)

// client is one who calls a store about one record, with one token.
type client struct {
	t     *testing.T
	store dedup.Store
	owner dedup.Owner
}

// newClient returns a client of a record that nobody else knows.
func newClient(t *testing.T, s dedup.Store) client {
	t.Helper()
	return client{t, s, dedup.Owner{ID: dedup.Request{Scope: "deduptest", Key: rand.Text()}.ID(), Token: rand.Text(), Attempt: 1}}
}

// other returns a client of the same record with another token.
func (c client) other() client {
	c.owner.Token = rand.Text()
	return c
}

func (c client) fingerprint(fp string) client {
	c.owner.Fingerprint = []byte(fp)
	return c
}

func (c client) ask(change func(*dedup.BeginRequest)) dedup.Answer {
	c.t.Helper()
	b := dedup.BeginRequest{Owner: c.owner, Lease: long, TTL: long}
	if change != nil {
		change(&b)
	}
	a, err := c.store.Begin(c.t.Context(), b)
	if err != nil {
		c.t.Fatalf("Begin: %v", err)
	}
	return a
}

// begin begins and wants the verdict.
func (c *client) begin(want dedup.Verdict) dedup.Answer {
	c.t.Helper()
	a := c.ask(nil)
	if a.Verdict != want {
		c.t.Fatalf("Begin answered %+v, want verdict %d", a, want)
	}
	if want == dedup.VerdictRun {
		c.owner.Attempt = a.Attempt
	}
	return a
}

// run begins and wants to run as that attempt.
func (c *client) run(attempt int, takeover bool) dedup.Answer {
	c.t.Helper()
	a := c.begin(dedup.VerdictRun)
	if a.Attempt != attempt || a.Takeover != takeover {
		c.t.Fatalf("Begin answered %+v, want attempt %d, takeover %v", a, attempt, takeover)
	}
	return a
}

// replay begins and wants the result.
func (c client) replay(want dedup.Result, attempt int) {
	c.t.Helper()
	a := c.begin(dedup.VerdictReplay)
	if a.Attempt != attempt || a.Result.Code != want.Code || string(a.Result.Data) != string(want.Data) || a.Result.Omitted != want.Omitted {
		c.t.Fatalf("Begin answered %+v, want attempt %d and %+v", a, attempt, want)
	}
}

func (c client) complete(r dedup.Result, want error) {
	c.t.Helper()
	c.want("Complete", c.store.Complete(c.t.Context(), c.owner, r, long), want)
}

func (c client) fail(want error) {
	c.t.Helper()
	c.want("Fail", c.store.Fail(c.t.Context(), c.owner), want)
}

func (c client) forget(want error) {
	c.t.Helper()
	c.want("Forget", c.store.Forget(c.t.Context(), c.owner), want)
}

func (c client) renew(lease time.Duration, want error) {
	c.t.Helper()
	c.want("Renew", c.store.Renew(c.t.Context(), c.owner, lease), want)
}

func (c client) want(call string, got, want error) {
	c.t.Helper()
	if !errors.Is(got, want) {
		c.t.Fatalf("%s returned %v, want %v", call, got, want)
	}
}

// lapse ends the lease of a client that runs, and waits until the store sees it.
func (c client) lapse() {
	c.t.Helper()
	c.renew(short, nil)
	looker := c.other()
	eventually(c.t, "the lease has not lapsed", func() bool {
		return looker.ask(func(b *dedup.BeginRequest) { b.NoTakeover = true }).Verdict == dedup.VerdictInterrupted
	})
}

// eventually asks again and again, for ten seconds.
func eventually(t *testing.T, otherwise string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after 10s: %s", otherwise)
		}
	}
}
