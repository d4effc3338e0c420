package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// (4): the reply to the release is lost and somebody else acquires meanwhile: the repeat finds another's lock, leaves it
// alone, and the release is nil, since the lock was held until it.
func TestLostReplyToARelease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		rival := with(t, m.client())
		lease := must(t, l, keys("a"))
		var other *Lease
		m.failing(func(step, _ string) (bool, error) {
			if step == "release" && other == nil {
				m.fault.Store(nil)
				go func() { other = must(t, rival, keys("a")) }()
				return true, ErrUnknownOutcome
			}
			return true, nil
		})
		free(t, lease)
		synctest.Wait()
		if other == nil || other.Err() != nil || m.token("lock:a") != other.h.held.Token {
			t.Fatal("the other one's lock is gone")
		}
		free(t, other)
		if err := rival.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A release that was refused before it was done, as while slots move, and finds nothing when it is sent again, has lost its
// lock: that was not its own doing.
func TestRefusedReleaseThatFindsNothingHasLost(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		m.set("lock:a", "", 0)
		m.failing(func(string, string) (bool, error) {
			m.fault.Store(nil)
			return false, ErrUnavailable
		})
		lostBecause(t, lease.Release(t.Context()), Gone)
		if n := m.count("release"); n != 2 {
			t.Errorf("%d releases, want one that is refused and one that tells", n)
		}
	})
}

// A release without any answer says that its outcome is unknown, keeps nobody waiting, and is repeated in the background
// until the lease would have ended anyway.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	bubble(t, []Option{TTL(10 * time.Second), Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		heal := m.failing(func(step, _ string) (bool, error) {
			return step == "acquire", map[bool]error{false: ErrUnavailable}[step == "acquire"]
		})
		start := time.Now()
		err := lease.Release(t.Context())
		if !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("err = %v, want ErrUnknownOutcome", err)
		}
		if d := time.Since(start); d > releaseTimeout {
			t.Errorf("the release took %v, want %v at most", d, releaseTimeout)
		}
		if again := lease.Release(t.Context()); !errors.Is(again, err) {
			t.Errorf("a second release answers %v, want the first answer", again)
		}
		pass(3 * time.Second)
		heal()
		wg.Wait()
		<-in
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("the waiter got in after %v, want as soon as Redis is back", d)
		}
	})
	bubble(t, []Option{TTL(10 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		m.failing(func(string, string) (bool, error) { return false, ErrUnknownOutcome })
		_ = lease.Release(t.Context())
		pass(11 * time.Second)
		n := m.count("release")
		pass(time.Hour)
		if m.count("release") != n {
			t.Error("the release is still repeated though the key has ended")
		}
	})
}

// A hand-over that is executed without an answer: the next one asks with the token that it was given, and has the lock.
// The old token is taken away meanwhile, so that a hand-over that is still on its way finds nothing.
func TestHandoverWithoutAnAnswer(t *testing.T) {
	for name, executed := range map[string]bool{"executed": true, "not executed": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
				lease := must(t, l, keys("a"))
				in, wg := waiters(t, l, 1, 0, keys("a"))
				m.failing(func(step, _ string) (bool, error) {
					if step == "handover" {
						return executed, ErrUnknownOutcome
					}
					return true, nil
				})
				free(t, lease)
				wg.Wait()
				<-in
				pass(2 * time.Second)
				if m.token("lock:a") != "" {
					t.Error("a token was left behind")
				}
			})
		})
	}
}

// The same, and the next one leaves before it has asked: what it may have been given is taken away.
func TestHandoverWithoutAnAnswerToOneThatLeaves(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := l.Acquire(ctx, keys("a"))
			busyBecause(t, err, Cancelled)
		})
		synctest.Wait()
		m.failing(func(step, _ string) (bool, error) {
			if step != "handover" {
				return true, nil
			}
			cancel()
			m.mu.Unlock() // it leaves while the answer is on its way
			wg.Wait()
			m.mu.Lock()
			return true, ErrUnknownOutcome
		})
		free(t, lease)
		synctest.Wait()
		if m.token("lock:a") != "" {
			t.Error("a token was left behind")
		}
		pass(2 * time.Second)
	})
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, keys("a"))
			done <- err
		}()
		synctest.Wait()
		m.failing(func(step, _ string) (bool, error) {
			switch step {
			case "handover":
				return true, ErrUnknownOutcome
			case "acquire": // it leaves while it asks, and its question is lost
				cancel()
				return false, ErrUnavailable
			}
			return true, nil
		})
		free(t, lease)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want the context's", err)
		}
		pass(2 * time.Second)
		if m.token("lock:a") != "" {
			t.Error("a token was left behind")
		}
	})
}

// A waiter that leaves while the lock is on its way to it is passed over: the lock goes to the next one, or is freed.
func TestWaiterThatLeavesDuringTheHandover(t *testing.T) {
	for name, more := range map[string]int{"nobody else": 0, "one more": 1, "three more": 3} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
				lease := must(t, l, keys("a"))
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := l.Acquire(ctx, keys("a"))
					busyBecause(t, err, Cancelled)
				})
				synctest.Wait()
				in, others := waiters(t, l, more, 0, keys("a"))
				first := true
				m.failing(func(step, _ string) (bool, error) {
					if step == "handover" && first {
						first = false
						cancel()
						m.mu.Unlock() // let it leave before the answer is there
						wg.Wait()
						m.mu.Lock()
					}
					return true, nil
				})
				free(t, lease)
				others.Wait()
				inOrder(t, in, more)
				if m.token("lock:a") != "" {
					t.Error("a token was left behind")
				}
			})
		})
	}
}

func TestHandoverThatFindsTheLeaseLost(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		m.set("lock:a", "", 0)
		lostBecause(t, lease.Release(t.Context()), Gone)
		wg.Wait()
		<-in
	})
}

// A lock that came too late is asked for again, with the token that it was handed to.
func TestHandoverThatTakesLongerThanTheTTL(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *Locker, m *memory) {
		l := with(t, &slowHandover{m.client()}, TTL(time.Second), Wait(time.Hour))
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		free(t, lease)
		wg.Wait()
		<-in
		if n := m.count("acquire"); n != 2 {
			t.Errorf("%d acquires, want that of the holder and one more", n)
		}
		pass(2 * time.Second)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type slowHandover struct{ *memoryClient }

func (s *slowHandover) Handover(ctx context.Context, h Held, to Request) (Grant, State, error) {
	g, st, err := s.memoryClient.Handover(ctx, h, to)
	<-time.After(1500 * time.Millisecond)
	return g, st, err
}

// A panic in a hook of the client, or in a logger, keeps no place in the queue.
func TestPanicsKeepNoPlace(t *testing.T) {
	for _, step := range []string{"acquire", "release"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, _ *Locker, m *memory) {
				b := &panicking{memoryClient: m.client(), step: step}
				l := with(t, b)
				try := func() (panicked bool) {
					defer func() { panicked = recover() != nil }()
					return l.Do(t.Context(), keys("a"), func(context.Context) error { return nil }) != nil
				}
				if !try() {
					t.Fatal("no panic")
				}
				b.step = ""
				m.set("lock:a", "", 0) // what a panicking release leaves ends with its TTL
				if try() || l.queue.holder("lock:a") != nil {
					t.Error("the place in front is still taken")
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type panicking struct {
	*memoryClient
	step string
}

func (p *panicking) Acquire(ctx context.Context, r Request) (Grant, error) {
	if p.step == "acquire" {
		panic(p.step)
	}
	return p.memoryClient.Acquire(ctx, r)
}

func (p *panicking) Release(ctx context.Context, h Held) (Released, error) {
	if p.step == "release" {
		panic(p.step)
	}
	return p.memoryClient.Release(ctx, h)
}

// With a backend that can do the three steps and nothing else, everything works: waiting goes by the back-off.
func TestBackendWithoutAnythingOptional(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *Locker, m *memory) {
		a, b := with(t, bare{m.client()}, Wait(time.Hour)), with(t, bare{m.client()}, Wait(time.Hour))
		lease := must(t, a, keys("a"))
		in, wg := waiters(t, a, 3, 0, keys("a"))
		far, wgFar := waiters(t, b, 1, 0, keys("a"))
		pass(700 * time.Millisecond)
		free(t, lease)
		wg.Wait()
		inOrder(t, in, 3)
		wgFar.Wait()
		<-far
		if _, err := a.Holders(t.Context(), 10); !errors.Is(err, ErrInvalid) {
			t.Errorf("Holders: %v, want ErrInvalid", err)
		}
		for _, l := range []*Locker{a, b} {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
