package lock

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	if workerMain() { // this process was started by a test, to be another one
		return
	}
	testserver.Main(m)
}

// soon is how long a test waits for what should happen at once: much longer than it takes, on any machine.
const soon = 10 * time.Second

func quietLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// closing closes the Locker at the end of the test.
func closing(t testing.TB, l *Locker) *Locker {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// over returns a Locker over any client.
func over(t testing.TB, rdb redis.UniversalClient, opts ...Option) *Locker {
	t.Helper()
	l, err := New(rdb, append([]Option{WithLogger(quietLogger())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, l)
}

// mini returns a Locker over a miniredis of its own.
func mini(t testing.TB, opts ...Option) (*Locker, *miniredis.Miniredis) {
	t.Helper()
	srv := miniredis.NewMiniRedis()
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return over(t, rdb, opts...), srv
}

// with returns a Locker over a backend of the test, without a clean-up of its own.
func with(t testing.TB, b Backend, opts ...Option) *Locker {
	t.Helper()
	l, err := NewWith(b, append([]Option{WithLogger(quietLogger())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bubble runs f with a Locker over memory, on a clock of its own.
func bubble(t *testing.T, opts []Option, f func(t *testing.T, l *Locker, m *memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := with(t, m.client(), opts...)
		defer func() {
			if err := l.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		f(t, l, m)
	})
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func must(t testing.TB, l *Locker, keys []string, opts ...AcquireOption) *Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), keys, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func free(t testing.TB, lease *Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func keys(k ...string) []string { return k }

func mustWrap(t testing.TB, rdb redis.UniversalClient) *redisx.Client {
	t.Helper()
	c, err := redisx.Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
