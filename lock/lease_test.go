package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// C10: in one flow a nested acquire counts up instead of waiting for itself; another flow is busy; after the inner
// release the key is there, after the outer it is gone. It costs no command and has the same fence.
func TestNestedAcquire(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a", "b"))
		ctx := outer.Context(t.Context())
		asked := m.steps()
		inner, err := l.Acquire(ctx, keys("b"))
		if err != nil {
			t.Fatal(err)
		}
		innermost, err := l.Acquire(inner.Context(ctx), keys("b", "a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		if inner.Fence() != outer.Fence() || innermost.Fence() != outer.Fence() || m.steps() != asked {
			t.Errorf("fences %d, %d, %d after %d commands; want the same three and none", outer.Fence(), inner.Fence(), innermost.Fence(), m.steps()-asked)
		}
		if outer.h.nested != 2 {
			t.Errorf("%d nested leases counted, want 2", outer.h.nested)
		}
		if _, err := l.Acquire(t.Context(), keys("a"), Wait(0)); !errors.Is(err, ErrBusy) {
			t.Errorf("another flow: %v, want ErrBusy", err)
		}
		if _, err := l.Acquire(Detach(ctx), keys("a"), Wait(0)); !errors.Is(err, ErrBusy) {
			t.Errorf("the same flow, detached: %v, want ErrBusy", err)
		}
		free(t, innermost)
		free(t, inner)
		if outer.h.nested != 0 || m.token("lock:a") == "" {
			t.Errorf("after the inner releases: %d counted, key %q", outer.h.nested, m.token("lock:a"))
		}
		if err := outer.Err(); err != nil {
			t.Errorf("the outer lease ended with the inner one: %v", err)
		}
		free(t, outer)
		if m.token("lock:a") != "" || m.token("lock:b") != "" {
			t.Error("after the outer release a key is there")
		}
	})
}

// C10: nested work never leaves the lock a shorter life: renewal keeps it fresh, for work of twice the TTL too.
func TestNestedWorkIsRenewed(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a"))
		inner, err := l.Acquire(outer.Context(t.Context()), keys("a"))
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			pass(100 * time.Millisecond)
			if left := m.left("lock:a"); left < 1500*time.Millisecond {
				t.Fatalf("%v left, want half of the TTL at least", left)
			}
		}
		free(t, inner)
		free(t, outer)
	})
}

// (16): the owner's release frees the lock whatever is nested in it; what is left over is told so.
func TestOwnerReleasesBeforeTheNestedOne(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a"))
		ctx := outer.Context(t.Context())
		inner, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			t.Fatal(err)
		}
		work := inner.Context(ctx)
		free(t, outer)
		if m.token("lock:a") != "" {
			t.Error("the key is still there")
		}
		for name, err := range map[string]error{"Err": inner.Err(), "Release": inner.Release(t.Context()), "again": inner.Release(t.Context()), "context": context.Cause(work)} {
			if !errors.Is(err, ErrReleased) || errors.Is(err, ErrLost) {
				t.Errorf("%s of the nested lease: %v, want ErrReleased", name, err)
			}
		}
		if !errors.Is(outer.Err(), ErrReleased) {
			t.Errorf("Err of the owner after its release: %v, want ErrReleased", outer.Err())
		}
		again, err := l.Acquire(context.WithoutCancel(ctx), keys("a")) // the lease in ctx counts for nothing
		if err != nil || again.nested {
			t.Fatalf("a new acquire: %v, nested %v", err, again != nil && again.nested)
		}
		free(t, again)
	})
}

func TestReleaseOfANestedLeaseEndsItsContextsAlone(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a"))
		ctx := outer.Context(t.Context())
		inner, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			t.Fatal(err)
		}
		work := inner.Context(ctx)
		free(t, inner)
		if !errors.Is(context.Cause(work), ErrReleased) || !errors.Is(inner.Err(), ErrReleased) {
			t.Errorf("the nested work: %v, %v; want ErrReleased", context.Cause(work), inner.Err())
		}
		if ctx.Err() != nil {
			t.Errorf("the outer work ended: %v", context.Cause(ctx))
		}
		if late := inner.Context(ctx); !errors.Is(context.Cause(late), ErrReleased) {
			t.Errorf("a context made after the release: %v", context.Cause(late))
		}
		free(t, outer)
	})
}

func TestLostLeaseInTheContext(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a"))
		ctx := outer.Context(t.Context())
		inner, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			t.Fatal(err)
		}
		m.set("lock:a", "", 0)
		pass(time.Second)
		asked := m.steps()
		_, err = l.Acquire(ctx, keys("a"))
		lostBecause(t, err, Gone)
		lostBecause(t, inner.Err(), Gone)
		lostBecause(t, inner.Release(t.Context()), Gone)
		if m.steps() != asked {
			t.Error("a command was sent for a lease that is known to be lost")
		}
		lostBecause(t, outer.Release(t.Context()), Gone)
	})
}

// Other keys wanted while holding some are a lease of their own; so are the same keys of another Locker.
func TestOtherKeysAreALeaseOfTheirOwn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		outer := must(t, l, keys("a", "b"))
		ctx := outer.Context(t.Context())
		for name, k := range map[string][]string{"another key": keys("c"), "one more key": keys("a", "d")} {
			lease, err := l.Acquire(ctx, k, Wait(0))
			if name == "one more key" {
				if !errors.Is(err, ErrBusy) { // a is taken, if by ourselves: only the budget bounds that
					t.Errorf("%s: %v, want ErrBusy", name, err)
				}
				continue
			}
			if err != nil || lease.nested {
				t.Errorf("%s: %v, want a lease of its own", name, err)
				continue
			}
			free(t, lease)
		}
		other := with(t, m.client(), Prefix("other:"))
		lease, err := other.Acquire(ctx, keys("a"))
		if err != nil || lease.nested {
			t.Fatalf("another Locker: %v", err)
		}
		free(t, lease)
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		free(t, outer)
	})
}

// Two requests never share a lease: ownership travels in the context, not in a process or a goroutine.
func TestTwoRequestsNeverShare(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		var inside atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := l.Do(t.Context(), keys("a"), func(ctx context.Context) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d inside", n)
					}
					<-time.After(time.Millisecond)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestFromContext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		if x, ok := FromContext(t.Context()); x != nil || ok {
			t.Error("a lease in an empty context")
		}
		a, b := must(t, l, keys("a")), must(t, l, keys("b"))
		ctx := b.Context(a.Context(t.Context()))
		if x, ok := FromContext(ctx); x != b || !ok {
			t.Error("not the innermost lease")
		}
		if x, ok := FromContext(Detach(ctx)); x != nil || ok {
			t.Error("a lease after Detach")
		}
		foreign := reqctx.WithLease(ctx, &reqctx.Lease{Keys: keys("x"), Fence: 7})
		if x, ok := FromContext(foreign); x != b || !ok {
			t.Error("a fence given by hand hides the lease")
		}
		var got []string
		for c := range reqctx.Leases(ctx) {
			got = append(got, fmt.Sprint(c.Keys, c.Fence, c.Verdict()))
		}
		want := []string{fmt.Sprint(b.Keys(), b.Fence(), nil), fmt.Sprint(a.Keys(), a.Fence(), nil)}
		if !slices.Equal(got, want) {
			t.Errorf("what others find in the context: %q, want %q", got, want)
		}
		free(t, b)
		free(t, a)
		for c := range reqctx.Leases(ctx) {
			if !errors.Is(c.Verdict(), ErrReleased) {
				t.Errorf("verdict on %v after the release: %v", c.Keys, c.Verdict())
			}
		}
	})
}

// Contexts of a lease that are over are forgotten: one that is held for long may make any number of them.
func TestContextsThatAreOverAreForgotten(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		keep := lease.Context(t.Context())
		for range 10_000 {
			parent, cancel := context.WithCancel(t.Context())
			lease.Context(parent)
			cancel()
		}
		if n := len(lease.h.contexts); n > 100 {
			t.Errorf("%d contexts are kept for one that lives", n)
		}
		free(t, lease)
		if !errors.Is(context.Cause(keep), ErrReleased) {
			t.Errorf("the one that lived: %v, want ErrReleased", context.Cause(keep))
		}
	})
}

func TestLeaseIsSafeForConcurrentUse(t *testing.T) {
	l, srv := mini(t)
	lease := must(t, l, keys("a"))
	ctx := lease.Context(t.Context())
	var wg sync.WaitGroup
	answers := make(chan error, 8)
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_ = lease.Err()
				c := lease.Context(ctx)
				if inner, err := l.Acquire(c, keys("a")); err == nil {
					_ = inner.Release(c)
				}
			}
			answers <- lease.Release(ctx)
		})
	}
	wg.Wait()
	close(answers)
	for err := range answers {
		if err != nil {
			t.Errorf("Release: %v, want the first answer for all", err)
		}
	}
	if srv.Exists("lock:a") {
		t.Error("the key is still there")
	}
}

// Keys wanted against their order are counted: two of these wait for each other until a budget ends.
func TestOppositeOrdersEndByTheBudget(t *testing.T) {
	bubble(t, []Option{Wait(time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		var wg, both sync.WaitGroup
		both.Add(2)
		var busy atomic.Int64
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			wg.Go(func() {
				first := must(t, l, keys(order[0]))
				both.Done()
				both.Wait()
				second, err := l.Acquire(first.Context(t.Context()), keys(order[1]))
				if err != nil {
					busyBecause(t, err, Budget)
					busy.Add(1)
				} else {
					free(t, second)
				}
				free(t, first)
			})
		}
		wg.Wait()
		if busy.Load() == 0 {
			t.Error("nobody was in the other's way, the test shows nothing")
		}
	})
}
