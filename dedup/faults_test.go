package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// link is an engine behind a proxy, and another that reaches the same server directly.
type link struct {
	proxy        *faultproxy.Proxy
	near, direct *dedup.Dedup
	req          dedup.Request
}

func newLink(t *testing.T, change ...func(*redis.Options)) link {
	t.Helper()
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	prefix := dedup.Prefix(srv.Prefix(t))
	changes := append([]func(*redis.Options){func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), 80*time.Millisecond }}, change...)
	persistent := dedup.Shorten{Persist: 5 * time.Second}.Option()
	return link{proxy, engine(t, srv.Client(t, changes...), prefix, persistent), engine(t, srv.Client(t), prefix), buy("k")}
}

// nth is the n-th script that is sent for the request.
func (l link) nth(n int) faultproxy.Match {
	return faultproxy.Named("EVALSHA").Containing(l.req.ID()).Nth(n)
}

// Each command, with each fault of its own request or reply: the caller learns what has happened, nothing runs twice,
// and another process sees the same. go-redis's own resending is on, as by default.
func TestLostReplyMatrix(t *testing.T) {
	t.Parallel()
	faults := map[string]faultproxy.Action{
		"reply lost":       faultproxy.LoseReply(),
		"request lost":     faultproxy.LoseRequest(),
		"reply cut":        faultproxy.CutReply(3),
		"request cut":      faultproxy.CutRequest(40),
		"reply hangs":      faultproxy.HangReply(),
		"request hangs":    faultproxy.HangRequest(),
		"executed twice":   faultproxy.Repeat(),
		"reply is slow":    faultproxy.DelayReply(120 * time.Millisecond),
		"request is slow":  faultproxy.DelayRequest(120 * time.Millisecond),
		"nothing happened": faultproxy.DelayReply(0),
	}
	result := dedup.Result{Code: 201, Data: []byte("order 1")}
	calls := map[string]struct {
		nth int
		end func(c *dedup.Claim) error
	}{
		"begin":    {1, func(c *dedup.Claim) error { return c.Complete(context.Background(), result, 0) }},
		"complete": {2, func(c *dedup.Claim) error { return c.Complete(context.Background(), result, 0) }},
		"fail":     {2, func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, nil) }},
		"forget":   {2, func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, nil) }},
	}
	for call, c := range calls {
		for fault, action := range faults {
			t.Run(call+": "+fault, func(t *testing.T) {
				t.Parallel()
				l := newLink(t)
				rule := l.proxy.On(l.nth(c.nth), action)
				claim := begun(t, l.near, l.req)
				if claim.Attempt() != 1 || claim.Takeover() {
					t.Errorf("attempt %d, takeover %v; want 1, false", claim.Attempt(), claim.Takeover())
				}
				if err := c.end(claim); err != nil {
					t.Errorf("the end: %v", err)
				}
				rule.Wait(t)
				switch call {
				case "begin", "complete":
					for _, d := range []*dedup.Dedup{l.near, l.direct} {
						if rec := replayed(t, d, l.req); rec.Code != 201 || string(rec.Data) != "order 1" || rec.Attempt != 1 {
							t.Errorf("replayed %+v", rec)
						}
					}
				default:
					next := begun(t, l.direct, l.req)
					want := map[string]int{"fail": 2, "forget": 1}[call]
					if next.Attempt() != want || next.Takeover() {
						t.Errorf("next attempt %d, takeover %v; want %d, false", next.Attempt(), next.Takeover(), want)
					}
					_ = next.Forget(t.Context(), nil, nil)
				}
			})
		}
	}
}

// The replies to begin never come: nobody runs, and the key is not blocked for the rest of the lease.
func TestBeginWithoutAReplyBlocksNobody(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	rule := l.proxy.On(l.nth(1).Times(20), faultproxy.LoseReply())
	started := time.Now()
	if _, _, err := l.near.Begin(t.Context(), l.req); !errors.Is(err, dedup.ErrUnknownOutcome) {
		t.Fatalf("Begin: %v, want ErrUnknownOutcome", err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	rule.Wait(t)
	l.proxy.Heal(t)
	var claim *dedup.Claim
	eventually(t, "the key is blocked by a request that nobody runs", func() bool {
		var err error
		claim, _, err = l.direct.Begin(t.Context(), l.req)
		return err == nil
	})
	if claim.Attempt() != 1 {
		t.Errorf("attempt %d, want 1: nobody has run", claim.Attempt())
	}
	_ = claim.Forget(t.Context(), nil, nil)
}

// A begin that the server carries out long after its caller has gone is undone too.
func TestLateBeginIsUndone(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	rule := l.proxy.On(l.nth(1), faultproxy.HoldRequest())
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if _, _, err := l.near.Begin(ctx, l.req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Begin: %v, want the caller's deadline", err)
	}
	rule.Wait(t)
	forgets := func() int { return l.proxy.Count(faultproxy.Named("EVALSHA").Containing(l.req.ID())) }
	eventually(t, "the begin is not undone at once", func() bool { return forgets() >= 2 })
	rule.Release()
	eventually(t, "the begin is not undone once more", func() bool { return forgets() >= 3 })
	var claim *dedup.Claim
	eventually(t, "the key is blocked by a request that nobody runs", func() bool {
		var err error
		claim, _, err = l.direct.Begin(t.Context(), l.req)
		return err == nil
	})
	_ = claim.Forget(t.Context(), nil, nil)
}

func TestScriptsAreSentAgainAfterAFlush(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	d := engine(t, rdb)
	flush := func() {
		t.Helper()
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	claim := begun(t, d, buy("a"))
	flush()
	if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
		t.Error(err)
	}
	for _, end := range []func(c *dedup.Claim) error{
		func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, nil) },
		func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, nil) },
	} {
		claim := begun(t, d, buy("b"))
		flush()
		if err := end(claim); err != nil {
			t.Error(err)
		}
	}
}

// A server that refuses to write is away; nothing has run, and what was being done is stored once it writes again.
func TestServerThatRefusesToWrite(t *testing.T) {
	refusals := map[string]struct{ on, off []any }{
		"READONLY": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"OOM":      {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
	}
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			srv := testserver.NewRedis(t, testserver.RedisConfig("maxmemory-policy", "noeviction"))
			rdb := srv.Client(t)
			do := func(args []any) {
				t.Helper()
				if err := rdb.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			d := engine(t, rdb)
			claim := begun(t, d, buy("running"))
			do(r.on)
			if _, _, err := d.Begin(t.Context(), buy("new")); !errors.Is(err, dedup.ErrUnavailable) {
				t.Errorf("Begin: %v, want ErrUnavailable", err)
			}
			if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); !errors.Is(err, dedup.ErrUnavailable) {
				t.Errorf("Complete: %v, want ErrUnavailable", err)
			}
			do(r.off)
			eventually(t, "the result is not stored though the server writes again", func() bool { return d.Busy() == 0 })
			if rec := replayed(t, d, buy("running")); rec.Code != 201 || !rec.Stored {
				t.Errorf("replayed %+v", rec)
			}
			again := begun(t, d, buy("new"))
			if again.Attempt() != 1 {
				t.Errorf("attempt %d, want 1", again.Attempt())
			}
			_ = again.Forget(t.Context(), nil, nil)
		})
	}
}

func TestServerThatHangs(t *testing.T) {
	srv := testserver.NewRedis(t)
	usual := dedup.Shorten{Call: 250 * time.Millisecond, Wait: 2 * time.Second}.Option()
	d := engine(t, srv.Client(t, func(o *redis.Options) { o.ReadTimeout = 300 * time.Millisecond }), usual)
	claim := begun(t, d, buy("running"))
	srv.Pause(t)
	started := time.Now()
	var all answers
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		all.begin(t.Context(), d, buy(key))
	}
	all.wg.Wait()
	if took := time.Since(started); len(all.errs) != 8 || took > 2*time.Second {
		t.Errorf("%d of 8 were refused after %v", len(all.errs), took)
	}
	for _, err := range all.errs {
		if !errors.Is(err, dedup.ErrUnknownOutcome) && !errors.Is(err, dedup.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err == nil {
		t.Error("Complete succeeded without a server")
	}
	srv.Resume(t)
	eventually(t, "not everything is settled after the pause", func() bool { return d.Busy() == 0 })
	if rec := replayed(t, d, buy("running")); rec.Code != 201 {
		t.Errorf("replayed %+v", rec)
	}
	for _, key := range []string{"a", "h"} {
		var next *dedup.Claim
		eventually(t, "a key is blocked by a request that nobody runs", func() bool {
			var err error
			next, _, err = d.Begin(t.Context(), buy(key))
			return err == nil
		})
		_ = next.Forget(t.Context(), nil, nil)
	}
}

func TestServerThatRestarts(t *testing.T) {
	for name, opts := range map[string][]testserver.RedisOption{"with its data": {testserver.AppendOnly()}, "empty": nil} {
		t.Run(name, func(t *testing.T) {
			srv := testserver.NewRedis(t, opts...)
			d := engine(t, srv.Client(t))
			claim := begun(t, d, buy("k"))
			srv.Kill(t)
			if _, _, err := d.Begin(t.Context(), buy("other")); !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, dedup.ErrUnknownOutcome) {
				t.Errorf("Begin: %v, want ErrUnavailable", err)
			}
			srv.Restart(t)
			if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
				eventually(t, "the result is not stored though the server is back", func() bool { return d.Busy() == 0 })
			}
			if rec := replayed(t, d, buy("k")); rec.Code != 201 || rec.Attempt != 1 {
				t.Errorf("replayed %+v", rec)
			}
		})
	}
}

// A failover that loses the record: the result is written anew, and the key is done all the same.
func TestFailoverWhileTheWorkRuns(t *testing.T) {
	srv := testserver.NewSentinel(t)
	d := engine(t, srv.Client(t))
	claim := begun(t, d, buy("k"))
	srv.Failover(t)
	if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
		eventually(t, "the result is not stored though a primary is there", func() bool { return d.Busy() == 0 })
	}
	if rec := replayed(t, d, buy("k")); rec.Code != 201 || rec.Attempt != 1 {
		t.Errorf("replayed %+v", rec)
	}
}
