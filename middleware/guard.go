package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/lockkey"
)

// Guard makes the middlewares of a service: one for a process, made at start-up, safe for concurrent use. Get it from
// [New] and close it when the server has shut down.
type Guard struct {
	locker  *lock.Locker
	given   bool // the locker is the user's
	dedup   *dedup.Dedup
	values  []lockkey.Option
	log     *slog.Logger
	onError func(http.ResponseWriter, *http.Request, error)
	quiet   quiet
	trees   trees

	mu    sync.Mutex
	rules []guarding // written inline, for Validate
}

// New returns a Guard on a Redis client: a *redis.Client, *redis.ClusterClient or a client of a Sentinel. It sends
// nothing that must succeed, so that a service starts while Redis is away. The client stays the caller's, who closes it
// after the Guard. rdb may be nil if both [WithLocker] and [WithStore] are given.
//
// An error joins all faults in the options.
func New(rdb redis.UniversalClient, opts ...Option) (*Guard, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	g := &Guard{locker: c.locker, given: c.locker != nil, values: c.values, log: c.log, onError: c.onError}
	if c.locker == nil || c.store == nil {
		if rdb, err = redisx.Wrap(rdb); err != nil { // one batcher for both
			return nil, errors.New("middleware: " + err.Error())
		}
	}
	var faults []error
	if !g.given {
		g.locker, err = lock.New(rdb, c.lockOptions()...)
		faults = append(faults, err)
	}
	if c.store != nil {
		g.dedup, err = dedup.NewWithStore(c.store, c.dedupOptions()...)
	} else {
		g.dedup, err = dedup.New(rdb, c.dedupOptions()...)
	}
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		_ = g.Close(context.Background()) // of what was made: nothing is under way yet
		return nil, err
	}
	return g, nil
}

func (c *config) lockOptions() []lock.Option {
	opts := []lock.Option{lock.WithTracerProvider(c.tracer), lock.WithMeterProvider(c.meter), lock.WithLogger(c.log)}
	if c.prefix != nil {
		opts = append(opts, lock.Prefix(*c.prefix))
	}
	return opts
}

func (c *config) dedupOptions() []dedup.Option {
	opts := []dedup.Option{dedup.WithTracerProvider(c.tracer), dedup.WithMeterProvider(c.meter), dedup.WithLogger(c.log)}
	if c.prefix != nil && c.store == nil {
		opts = append(opts, dedup.Prefix(*c.prefix))
	}
	return opts
}

// Close waits until the requests under a rule have ended, their locks are released and their answers stored. From its
// call on new ones are refused with 503. When ctx ends first, the contexts of the handlers that still run are cancelled,
// their locks and records left to lapse, and an error that wraps that of ctx is returned. It may be called twice. The
// Redis client, and a locker given with [WithLocker], stay open.
func (g *Guard) Close(ctx context.Context) error {
	var wg sync.WaitGroup
	var fromLock, fromDedup error
	if !g.given && g.locker != nil {
		wg.Go(func() { fromLock = g.locker.Close(ctx) })
	}
	if g.dedup != nil {
		wg.Go(func() { fromDedup = g.dedup.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(fromLock, fromDedup)
}

// guarding is a rule of any kind.
type guarding interface {
	common() *rule
	templates() []*lockkey.Template
	middleware() func(http.Handler) http.Handler
}

// remember keeps a rule that was written inline, so that Validate can tell when it is on no route.
func (g *Guard) remember(r guarding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules = append(g.rules, r)
}
