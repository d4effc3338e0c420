package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func miniLocker(t *testing.T, opts ...Option) (*Locker, *miniredis.Miniredis) {
	t.Helper()
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	l, err := New(rdb, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = rdb.Close()
	})
	return l, srv
}

func TestSmoke(t *testing.T) {
	l, srv := miniLocker(t)
	lease, err := l.Acquire(t.Context(), []string{"stock:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(srv.Dump(), lease.Fence())
	_, ok, err := l.TryAcquire(t.Context(), []string{"stock:1"})
	if ok || err != nil {
		t.Fatal(ok, err)
	}
	in, err := l.Acquire(lease.Context(t.Context()), []string{"stock:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lease.Err(); !errors.Is(err, ErrReleased) {
		t.Fatal(err)
	}
	t.Log(srv.Dump())
	var wg sync.WaitGroup
	n := 0
	for range 200 {
		wg.Go(func() {
			err := l.Do(t.Context(), []string{"a", "b"}, func(ctx context.Context) error { n++; return nil })
			if err != nil {
				t.Error(err)
			}
			err = l.Do(t.Context(), []string{"c"}, func(ctx context.Context) error { return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Log(n, srv.Dump())
}
