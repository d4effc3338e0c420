package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/renew"
)

// Dedup answers repeats of a request with the result of the first. It is safe for concurrent use; one for a process and
// store is enough, and only those of one Dedup wait for each other without asking the store.
type Dedup struct {
	store   Store
	cfg     *config
	tel     *instruments
	flights flights
	renewal renew.Scheduler
	work    work
	pending chan struct{} // one for each ending that is tried in the background
	undoing chan struct{} // one for each begin that is undone in the background
}

// New returns a Dedup whose records are in Redis. It loads its scripts, and logs a warning if the server may evict keys,
// which would make it forget requests: a few round trips. A server that is away is no error here: New waits 3 s for it,
// or as long as the client does for a reply. One that cannot run the scripts is an error, and so is every wrong option,
// matching ErrInvalid.
//
// The client stays the caller's, who closes it after the Dedup. Hooks are added to it before New.
func New(rdb redis.UniversalClient, opts ...Option) (*Dedup, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	store, err := NewRedisStore(rdb, cfg.prefix)
	if err != nil {
		return nil, err
	}
	d := newDedup(store, cfg)
	d.warnOfEviction(store)
	return d, nil
}

// NewWithStore returns a Dedup whose records are in s.
func NewWithStore(s Store, opts ...Option) (*Dedup, error) {
	cfg, err := newConfig(opts)
	switch {
	case s == nil:
		err = errors.Join(err, invalid("the store is nil"))
	case cfg.withPrefix:
		err = errors.Join(err, invalid("Prefix has no effect on a given store: give it to NewRedisStore"))
	}
	if err != nil {
		return nil, err
	}
	return newDedup(s, cfg), nil
}

func newDedup(s Store, cfg *config) *Dedup {
	d := &Dedup{store: s, cfg: cfg, tel: newInstruments(cfg)}
	d.pending, d.undoing = make(chan struct{}, cfg.pending), make(chan struct{}, cfg.pending)
	d.flights = flights{perKey: cfg.perKey, most: cfg.waiters, byID: map[string]*flight{}, apart: map[*flight]struct{}{}}
	d.work.init()
	return d
}

// evictionTimeout bounds the one question about the server's configuration.
const evictionTimeout = time.Second

func (d *Dedup) warnOfEviction(s *RedisStore) {
	ctx, cancel := context.WithTimeout(d.work.ctx, evictionTimeout)
	defer cancel()
	if policy := s.rdb.EvictionPolicy(ctx); policy != "" && policy != "noeviction" {
		d.tel.mayEvict(ctx, policy)
	}
}

// Close ends the Dedup: Begin, Do and Settle return ErrClosed from now on. It waits until every open claim has ended and every
// result that is still on its way to the store has arrived there. When ctx ends first, the contexts of the open claims
// are cancelled with ErrLeaseLost, their records left to lapse, and the error of ctx is returned. It may be called twice.
func (d *Dedup) Close(ctx context.Context) error {
	defer d.renewal.Close()
	if d.work.close(ctx) {
		return nil
	}
	for _, c := range d.flights.claims() {
		c.lose(closed)
	}
	return fmt.Errorf("dedup: closed before all work had ended: %w", context.Cause(ctx))
}

// ask is one Begin of the store. Without a reply it asks again while there is time, with the same token: then the
// answer is the one that was lost.
func (d *Dedup) ask(ctx context.Context, b BeginRequest) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.call)
	defer cancel()
	a, err := d.store.Begin(ctx, b)
	if errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil {
		a, err = d.store.Begin(ctx, b)
		if errors.Is(err, ErrUnavailable) {
			err = &Error{Err: ErrUnknownOutcome, Cause: err} // the first may have been carried out
		}
	}
	return a, typed(err)
}

// typed gives an error of a store that is none of ours a type: nobody knows what happened.
func typed(err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	for _, known := range []error{ErrUnavailable, ErrUnknownOutcome, ErrLeaseLost, ErrNoRecord, ErrInFlight, ErrCorrupt, ErrInvalid} {
		if errors.Is(err, known) {
			return &Error{Err: known, Cause: err}
		}
	}
	return &Error{Err: ErrUnknownOutcome, Cause: err}
}
