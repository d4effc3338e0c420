package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/renew"
)

// A Locker hands out leases. It is made by New or NewWith and closed by Close. Safe for concurrent use; one for a whole
// process is best, since waiters queue within it.
type Locker struct {
	config
	backend   Backend
	tel       *instruments
	tokens    *tokens
	queue     *queue
	renewals  renew.Scheduler
	wakes     wakes
	roundTrip average
	gate      gate
	patience  patience

	closing    chan struct{} // closed when Close is called
	closeOnce  sync.Once
	base       context.Context // of what the Locker sends by itself; ends when nothing of it may remain
	endBase    context.CancelFunc
	background workers
}

// New returns a Locker that keeps its leases in Redis. It asks the server what it is and loads its scripts, which takes
// a few round trips. A server that is away is no error here: New waits 2 s for it, or as long as the client does for a
// reply, and it is asked again in the background. One that cannot run the scripts is an error. A nil client, a
// redis.Ring (which moves keys to other servers when one is away) and every wrong option are reported together,
// matching ErrInvalid. A server that may evict keys is warned of in the log.
//
// The client stays the caller's, who closes it after the Locker. Hooks are added to it before New.
func New(rdb redis.UniversalClient, opts ...Option) (*Locker, error) {
	client, err := redisx.Wrap(rdb)
	if err != nil {
		err = invalid("%v", err)
	}
	c, errOpts := newConfig(opts)
	if err := errors.Join(err, errOpts); err != nil {
		return nil, err
	}
	t := newTokens()
	b := newRedisBackend(client, t.random(), c.logger)
	l := newLocker(b, c, t)
	if !b.detect(l.base) {
		l.background.start(func() { b.look(l.base) })
		return l, nil
	}
	if err := client.Preload(allScripts()...); err != nil {
		l.endBase()
		l.wakes.close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	b.warn(l.base)
	return l, nil
}

// NewWith returns a Locker over another backend. Prefix and all other options are as with New.
func NewWith(b Backend, opts ...Option) (*Locker, error) {
	c, err := newConfig(opts)
	if b == nil {
		err = errors.Join(invalid("the backend is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return newLocker(b, c, newTokens()), nil
}

func newLocker(b Backend, c config, t *tokens) *Locker {
	l := &Locker{config: c, backend: b, tokens: t, queue: newQueue(), closing: make(chan struct{})}
	l.base, l.endBase = context.WithCancel(context.Background())
	l.tel = newInstruments(&l.config)
	l.gate.idle = make(chan struct{})
	l.wakes.start(b, &l.renewals)
	return l
}

// Close ends the Locker: from now on an acquire gets ErrClosed, and so do those that wait. Leases may end until ctx
// does; then the contexts of the rest are cancelled with ErrLost, reason LockerGone, and their keys are left to run out.
// When Close returns no goroutine of the Locker remains; for a command on the wire it waits as long as the client does,
// its ReadTimeout. The error is that of ctx, if leases had to be ended. Close may be called twice; the client stays open.
func (l *Locker) Close(ctx context.Context) error {
	var err error
	l.closeOnce.Do(func() { err = l.close(ctx) })
	return err
}

func (l *Locker) close(ctx context.Context) error {
	close(l.closing)
	var err error
	select {
	case <-l.gate.close():
	case <-ctx.Done():
		err = ended(ctx)
		l.endBase() // first: a lease that is granted from now on sees it, one from before is among the holds
		for _, h := range l.queue.holds() {
			h.end(LockerGone)
		}
	}
	l.endBase()
	l.renewals.Close()
	l.wakes.close()
	l.background.wait()
	l.patience.close()
	return err
}

// gate counts the calls and leases that Close waits for.
type gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the gate is and nobody is inside
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.idle)
	}
}

// close lets nobody in any more and returns a channel that is closed when all have left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.n == 0 {
		close(g.idle)
	}
	return g.idle
}

// workers are the goroutines of a Locker. The zero value is ready.
type workers struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// start runs fn on a goroutine of its own, or not at all once wait was called.
func (w *workers) start(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.wg.Go(fn)
	}
}

func (w *workers) wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}

// average is a moving average of durations, of which the newest counts one eighth. The zero value is ready.
type average struct{ ns atomic.Int64 }

func (a *average) note(d time.Duration) {
	old := a.ns.Load()
	if old == 0 {
		a.ns.Store(int64(d))
		return
	}
	a.ns.Store(old + (int64(d)-old)/8) // a lost update loses one sample of many
}

func (a *average) value() time.Duration { return time.Duration(a.ns.Load()) }
