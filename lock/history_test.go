package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A stay is one holder's time inside a key.
type stay struct {
	key        string
	fence      int64
	start, end time.Time
}

// history is what the holders recorded. It is judged when all have left.
type history struct {
	mu    sync.Mutex
	stays []stay
}

func (h *history) add(s ...stay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stays = append(h.stays, s...)
}

// judge returns what is wrong: two holders inside one key at once, or a fence that does not grow.
func (h *history) judge() (faults []string) {
	byKey := map[string][]stay{}
	for _, s := range h.stays {
		byKey[s.key] = append(byKey[s.key], s)
	}
	for key, stays := range byKey {
		slices.SortFunc(stays, func(a, b stay) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.fence, b.fence)) })
		for i := 1; i < len(stays); i++ {
			before, s := stays[i-1], stays[i]
			if s.start.Before(before.end) {
				faults = append(faults, fmt.Sprintf("%s: two inside, fences %d and %d, for %v", key, before.fence, s.fence, before.end.Sub(s.start)))
			}
			if s.fence <= before.fence {
				faults = append(faults, fmt.Sprintf("%s: fence %d after %d", key, s.fence, before.fence))
			}
		}
	}
	return faults
}

// drive has workers of several Lockers take random keys for random times, and returns what is wrong with it.
func drive(ctx context.Context, lockers []*Locker, workers, rounds int, longest time.Duration, seed uint64) (h *history, faults []string) {
	h = &history{}
	var wg sync.WaitGroup
	for i, l := range lockers {
		for w := range workers {
			rnd := rand.New(rand.NewPCG(seed, uint64(i*workers+w)))
			wg.Go(func() {
				for range rounds {
					k := keys(fmt.Sprint("k", rnd.IntN(2)))
					if rnd.IntN(8) == 0 {
						k = keys("k0", "k1")
					}
					work := time.Duration(rnd.Int64N(int64(longest)))
					ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(10*longest))))
					lease, err := l.Acquire(ctx, k)
					cancel()
					if err != nil {
						continue
					}
					start := time.Now()
					inside := lease.Context(context.Background())
					timer := time.NewTimer(work)
					select {
					case <-timer.C:
					case <-inside.Done():
					}
					timer.Stop()
					end := time.Now()
					lease.h.mu.Lock()
					if safe := lease.h.safe; safe.Before(end) {
						end = safe // told then, whenever this goroutine has noticed
					}
					lease.h.mu.Unlock()
					for _, key := range k {
						h.add(stay{key, lease.Fence(), start, end})
					}
					_ = lease.Release(context.Background())
				}
			})
		}
	}
	wg.Wait()
	judged := h.judge()
	return h, judged
}

// No two holders are inside a key at once and fences only grow, in any order of calls and with leases that run out under
// their holders. A lock that is broken on purpose must make this fail, or it would show nothing.
func TestHistory(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, broken := range map[string]func(*memoryClient) Backend{
		"":                           func(m *memoryClient) Backend { return m },
		"release without a check":    func(m *memoryClient) Backend { return &blindRelease{m} },
		"acquire without a look":     func(m *memoryClient) Backend { return &blindAcquire{m} },
		"numbers that start again":   func(m *memoryClient) Backend { return &forgetful{m} },
		"look, then delete, in two":  func(m *memoryClient) Backend { return &lookThenDelete{m} },
		"a TTL shorter than it says": func(m *memoryClient) Backend { return &shortTTL{m} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, _ *Locker, m *memory) {
				var lockers []*Locker
				for range 3 {
					lockers = append(lockers, with(t, broken(m.client()), TTL(100*time.Millisecond), MaxHold(250*time.Millisecond)))
				}
				rnd := rand.New(rand.NewPCG(seed, 99))
				m.failing(func(step, _ string) (bool, error) { // called with m.mu held
					switch n := rnd.IntN(100); {
					case n < 5:
						return true, ErrUnknownOutcome
					case n < 10:
						return false, ErrUnknownOutcome
					case n < 12:
						return false, ErrUnavailable
					case step == "renew" && n < 50:
						return false, ErrUnknownOutcome
					}
					return true, nil
				})
				h, faults := drive(t.Context(), lockers, 5, 100, 150*time.Millisecond, seed)
				for _, l := range lockers {
					if err := l.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				switch {
				case name == "" && len(faults) > 0:
					t.Errorf("%d faults, among them %q", len(faults), faults[:min(5, len(faults))])
				case name == "" && len(h.stays) < 300:
					t.Errorf("only %d stays, that shows little", len(h.stays))
				case name != "" && len(faults) == 0:
					t.Errorf("the history of a broken lock passes (%d stays)", len(h.stays))
				}
			})
		})
	}
}

type blindRelease struct{ *memoryClient }

func (b *blindRelease) Release(ctx context.Context, h Held) (Released, error) {
	rel, err := b.memoryClient.Release(ctx, h)
	for _, key := range h.Keys {
		b.set(key, "", 0)
	}
	return rel, err
}

type blindAcquire struct{ *memoryClient }

func (b *blindAcquire) Acquire(ctx context.Context, r Request) (Grant, error) {
	if rand.IntN(10) == 0 {
		for _, key := range r.Keys {
			b.set(key, r.Token, r.TTL)
		}
	}
	return b.memoryClient.Acquire(ctx, r)
}

type forgetful struct{ *memoryClient }

func (b *forgetful) Acquire(ctx context.Context, r Request) (Grant, error) {
	g, err := b.memoryClient.Acquire(ctx, r)
	g.Fence %= 1000
	return g, err
}

type lookThenDelete struct{ *memoryClient }

func (b *lookThenDelete) Release(ctx context.Context, h Held) (Released, error) {
	for _, key := range h.Keys {
		if b.token(key) == h.Token {
			<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
			b.set(key, "", 0)
		}
	}
	return Released{}, nil
}

type shortTTL struct{ *memoryClient }

func (b *shortTTL) Acquire(ctx context.Context, r Request) (Grant, error) {
	r.TTL /= 2
	return b.memoryClient.Acquire(ctx, r)
}

// The same against a real server, through proxies that lose requests and replies.
func TestHistoryOnRedis(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	srv := testserver.Redis(t)
	prefix := srv.Prefix(t)
	var lockers []*Locker
	for i := range 3 {
		p := faultproxy.Redis(t, srv.Addr())
		rdb := srv.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = p.Addr(), 200*time.Millisecond })
		lockers = append(lockers, over(t, rdb, Prefix(prefix), TTL(500*time.Millisecond)))
		for n, fault := range []faultproxy.Action{faultproxy.LoseReply(), faultproxy.LoseRequest(), faultproxy.Repeat(), faultproxy.HangReply(), faultproxy.LoseReply()} {
			for at := 10 + 7*i + 13*n; at < 1000; at += 97 {
				p.On(faultproxy.Named("EVALSHA").Nth(at), fault)
			}
		}
	}
	h, faults := drive(t.Context(), lockers, 4, 60, 20*time.Millisecond, seed)
	if len(faults) > 0 {
		t.Errorf("%d faults, among them %q", len(faults), faults[:min(5, len(faults))])
	}
	if len(h.stays) < 200 {
		t.Errorf("only %d stays, that shows little", len(h.stays))
	}
	admin := srv.Client(t)
	for _, key := range []string{"k0", "k1"} {
		gone(t, admin, prefix+"lock:"+key)
	}
}

// D20: of a thousand contenders at most one is inside at any time, counted outside Redis.
func TestMutualExclusion(t *testing.T) {
	srv := testserver.Redis(t)
	l := over(t, srv.Client(t), Prefix(srv.Prefix(t)), Wait(time.Minute))
	other := over(t, srv.Client(t), Prefix(l.prefix), Wait(time.Minute))
	var inside, entered atomic.Int64
	parallel(1000, 1000, func(i int) {
		err := []*Locker{l, other}[i%2].Do(t.Context(), keys("a"), func(context.Context) error {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			entered.Add(1)
			inside.Add(-1)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if entered.Load() != 1000 {
		t.Errorf("%d entered, want all", entered.Load())
	}
}

// A08: A overruns its TTL, B locks, A releases: B's lock is left alone, wherever the expiry and B's acquire fall around
// A's release. A release that looks and deletes in two steps fails this.
func TestLateReleaseLeavesTheNextHolderAlone(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	c := mustWrap(t, rdb)
	rounds := func(b Backend) (wrong int) {
		prefix := srv.Prefix(t)
		a, other := closing(t, with(t, b, Prefix(prefix), Wait(0))), over(t, rdb, Prefix(prefix), Wait(0))
		for range 1000 {
			lease := must(t, a, keys("a"))
			var theirs *Lease
			var wg sync.WaitGroup
			wg.Go(func() {
				rdb.Del(t.Context(), prefix+"lock:a") // it expires
				if x, ok, err := other.TryAcquire(t.Context(), keys("a")); ok && err == nil {
					theirs = x
				}
			})
			err := lease.Release(t.Context())
			wg.Wait()
			if theirs == nil {
				wrong++ // deleted, and yet not free
				continue
			}
			if got := rdb.Get(t.Context(), prefix+"lock:a").Val(); got != theirs.h.held.Token {
				wrong++
			}
			if err != nil && !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
			_ = theirs.Release(t.Context())
		}
		return wrong
	}
	b := newRedisBackend(c, "a", quietLogger())
	if wrong := rounds(plain{b}); wrong > 0 {
		t.Errorf("in %d of 1000 rounds the next holder's lock was deleted", wrong)
	}
	if wrong := rounds(inTwoSteps{b, rdb}); wrong == 0 {
		t.Error("a release in two steps passes: this test shows nothing")
	}
}

// plain is a backend without its optional parts.
type plain struct{ Backend }

type inTwoSteps struct {
	Backend
	rdb *redis.Client
}

func (b inTwoSteps) Release(ctx context.Context, h Held) (Released, error) {
	if b.rdb.Get(ctx, h.Keys[0]).Val() != h.Token {
		return Released{State: Foreign}, nil
	}
	b.rdb.Del(ctx, h.Keys[0])
	return Released{}, nil
}
