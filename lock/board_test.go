package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// boards are the servers on which the board is tested.
func boards(t *testing.T, f func(t *testing.T, rdb redis.UniversalClient, prefix string)) {
	t.Run("Redis", func(t *testing.T) { s := testserver.Redis(t); f(t, s.Client(t), s.Prefix(t)) })
	t.Run("cluster", func(t *testing.T) { s := testserver.Cluster(t); f(t, s.Client(t), s.Prefix(t)) })
}

// O04, D30: who holds what since when: for a stuck lock the instance, never the token; from the own process the rule,
// the request, renewals and waiters too.
func TestBoardShowsWhoHoldsWhat(t *testing.T) {
	boards(t, func(t *testing.T, rdb redis.UniversalClient, prefix string) {
		l, other := over(t, rdb, Prefix(prefix), TTL(time.Minute)), over(t, rdb, Prefix(prefix), TTL(time.Minute))
		ctx := reqctx.WithRule(t.Context(), &reqctx.Rule{Name: "withdraw"})
		ctx = reqctx.WithRequest(ctx, reqctx.Request{ID: "x", Hash: "0123456789abcdef"})
		mine, err := l.Acquire(ctx, keys("mine"))
		check(t, err)
		inner, err := l.Acquire(mine.Context(ctx), keys("mine"))
		check(t, err)
		theirs := must(t, other, keys("theirs", "both"))
		check(t, rdb.Set(ctx, prefix+"lock:eternal", "no TTL", 0).Err())
		check(t, rdb.Set(ctx, prefix+"lock:strange", "another library", time.Minute).Err())
		check(t, rdb.Set(ctx, prefix+"unlocked", "data", time.Minute).Err())

		all, err := l.Holders(t.Context(), 100)
		check(t, err)
		var got []string
		for _, h := range all {
			got = append(got, h.Key)
			if strings.Contains(fmt.Sprintf("%+v %+v", h, h.Local), mine.h.held.Token) {
				t.Error("the board shows an owner token")
			}
		}
		slices.Sort(got)
		if want := keys("both", "mine", "strange", "theirs"); !slices.Equal(got, want) {
			t.Errorf("held: %v, want %v", got, want)
		}
		h, ok, err := l.Holder(t.Context(), "mine")
		check(t, err)
		if !ok || h.Instance != l.tokens.instance || h.Fence != mine.Fence() || h.Left <= 50*time.Second || h.Left > time.Minute || time.Since(h.Since) > soon {
			t.Errorf("mine: %+v", h)
		}
		if h.Local == nil || *h.Local != (LocalHolder{Rule: "withdraw", RequestHash: "0123456789abcdef", Nested: 1}) {
			t.Errorf("mine, as this process knows it: %+v", h.Local)
		}
		h, ok, err = l.Holder(t.Context(), "theirs")
		check(t, err)
		if !ok || h.Local != nil || h.Fence != theirs.Fence() || h.Since.IsZero() || time.Since(h.Since) > time.Minute {
			t.Errorf("theirs: %+v", h)
		}
		if h, ok, err := l.Holder(t.Context(), "nobody's"); ok || err != nil {
			t.Errorf("nobody's: %+v, %v, %v", h, ok, err)
		}
		if some, err := l.Holders(t.Context(), 2); err != nil || len(some) != 2 {
			t.Errorf("with a limit of 2: %d, %v", len(some), err)
		}
		check(t, rdb.Del(t.Context(), prefix+"lock:eternal").Err())
		free(t, inner)
		free(t, mine)
		free(t, theirs)
	})
}

// D48: keys are found by SCAN, never by KEYS.
func TestBoardUsesScan(t *testing.T) {
	srv := testserver.NewRedis(t)
	l := over(t, srv.Client(t), Prefix("sh*p[1]:"))
	lease := must(t, l, keys("a"))
	check(t, srv.Client(t).Set(t.Context(), "shop1:lock:b", "x", time.Minute).Err()) // a prefix is no pattern
	mon := srv.Monitor(t)
	all, err := l.Holders(t.Context(), 10)
	if err != nil || len(all) != 1 || all[0].Key != "a" {
		t.Errorf("held: %+v, %v", all, err)
	}
	if mon.Count(t, "KEYS") > 0 || mon.Count(t, "SCAN") == 0 {
		t.Errorf("sent: %v", mon.Sent(t))
	}
	free(t, lease)
}

// An operator takes a lock away: the key is free, the fence is raised, the holder is told, and the log says who did it
// and why, without the key or a token.
func TestForceRelease(t *testing.T) {
	boards(t, func(t *testing.T, rdb redis.UniversalClient, prefix string) {
		var out syncBuffer
		l := over(t, rdb, Prefix(prefix), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		other := over(t, rdb, Prefix(prefix), TTL(600*time.Millisecond))
		theirs := must(t, other, keys("secret-a"))
		work := theirs.Context(t.Context())

		f, ok, err := l.ForceRelease(t.Context(), "secret-a", "op: jane, ticket 7: pod is gone")
		if !ok || err != nil || f.Raised <= theirs.Fence() || f.Fence != theirs.Fence() || f.Instance != other.tokens.instance {
			t.Fatalf("forced: %+v, %v, %v", f, ok, err)
		}
		next := must(t, l, keys("secret-a"))
		if next.Fence() <= f.Raised {
			t.Errorf("the next fence is %d, want above the raised one, %d", next.Fence(), f.Raised)
		}
		<-work.Done()
		if !errors.Is(context.Cause(work), ErrLost) {
			t.Errorf("the former holder: %v, want ErrLost", context.Cause(work))
		}
		_ = theirs.Release(t.Context())
		for _, want := range []string{"level=WARN", "jane, ticket 7", other.tokens.instance, fmt.Sprint(f.Raised)} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log does not tell %q: %s", want, out.String())
			}
		}
		for _, secret := range []string{"secret-a", theirs.h.held.Token} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("the log tells %q", secret)
			}
		}

		mine := next.Context(t.Context()) // one's own: told at once
		if _, ok, err := l.ForceRelease(t.Context(), "secret-a", "test"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		lostBecause(t, context.Cause(mine), Gone)
		_ = next.Release(t.Context())

		if _, ok, err := l.ForceRelease(t.Context(), "secret-a", "test"); ok || err != nil {
			t.Errorf("nobody holds it: %v, %v; want false, nil", ok, err)
		}
		if _, _, err := l.ForceRelease(t.Context(), "secret-a", " "); !errors.Is(err, ErrInvalid) {
			t.Errorf("without a reason: %v, want ErrInvalid", err)
		}
	})
}

// A lock that changes hands while an operator looks keeps its new holder.
func TestForceReleaseTakesOnlyTheHolderItSaw(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	b := newRedisBackend(mustWrap(t, rdb), "x", quietLogger())
	check(t, rdb.Set(t.Context(), prefix+"k", "B", time.Minute).Err())
	if _, s, err := b.Force(t.Context(), prefix+"k", "A"); s != Foreign || err != nil {
		t.Errorf("force with another token: %v, %v; want Foreign", s, err)
	}
	if rdb.Get(t.Context(), prefix+"k").Val() != "B" {
		t.Error("the new holder lost its lock")
	}
	if _, s, err := b.Force(t.Context(), prefix+"missing", "A"); s != Missing || err != nil {
		t.Errorf("force of nothing: %v, %v; want Missing", s, err)
	}
}

// Without a prefix any value of the database has a name that a lock might have: none but a lock is taken away.
func TestForceReleaseWithoutAPrefixTakesLocksOnly(t *testing.T) {
	l, srv := mini(t, Prefix(""))
	for key, ttl := range map[string]time.Duration{"user:1": 0, "session:1": time.Hour} {
		check(t, srv.Set(key, "precious"))
		srv.SetTTL(key, ttl)
		if _, ok, err := l.ForceRelease(t.Context(), key, "test"); ok || err != nil {
			t.Errorf("%s: %v, %v; want false, nil", key, ok, err)
		}
		if !srv.Exists(key) {
			t.Errorf("%s is gone", key)
		}
	}
	lease := must(t, l, keys("a"))
	if _, ok, err := l.ForceRelease(t.Context(), "a", "test"); !ok || err != nil {
		t.Errorf("a lock: %v, %v; want true, nil", ok, err)
	}
	_ = lease.Release(t.Context())
}
