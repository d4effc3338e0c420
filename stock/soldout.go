package stock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// soldOut remembers for a short while which items Redis has called sold out. It may only refuse. A nil one remembers
// nothing.
type soldOut struct {
	life   time.Duration
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	until   map[string]time.Time
	returns uint64 // how often units came back: what was seen before that is stale
	closed  bool
}

// mostSoldOut bounds the memory.
const mostSoldOut = 10_000

// newSoldOut listens on the channel where counters are named that have units again.
func newSoldOut(rdb *redisx.Client, channel string, life time.Duration) *soldOut {
	ctx, cancel := context.WithCancel(context.Background())
	s := &soldOut{life: life, cancel: cancel, done: make(chan struct{}), until: map[string]time.Time{}}
	sub := rdb.Subscribe(ctx, channel)
	go func() {
		defer close(s.done)
		defer func() { _ = sub.Close() }() // nothing depends on how it ends
		messages := sub.Channel()
		for {
			select {
			case m, ok := <-messages:
				if !ok {
					return
				}
				s.forget(m.Payload)
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *soldOut) close() {
	s.mu.Lock()
	s.closed = true
	clear(s.until)
	s.mu.Unlock()
	s.cancel()
	<-s.done
}

// seen returns how often units have come back, for learn.
func (s *soldOut) seen() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.returns
}

// learn remembers that a line's item was sold out: nothing was left in its only segment, or the order wanted one unit and no
// segment had any. It does not if units have come back since the caller asked Redis.
func (s *soldOut) learn(r *request, l *line, left int64, returns uint64) {
	if s == nil || left > 0 || l.place.segments > 1 && r.units() > 1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.returns != returns {
		return
	}
	if len(s.until) >= mostSoldOut {
		clear(s.until)
	}
	s.until[l.item] = time.Now().Add(s.life)
}

// forget is told that the item has units again.
func (s *soldOut) forget(item string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returns++
	delete(s.until, item)
}

// refuses reports whether one of the order's items was sold out a moment ago. A request that is known to be a repeat is
// never refused here: it may have been taken the first time.
func (s *soldOut) refuses(ctx context.Context, r *request) bool {
	if s == nil {
		return false
	}
	if in, ok := reqctx.RequestOf(ctx); ok && in.Attempt > 1 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.until) == 0 {
		return false
	}
	now := time.Now()
	for i := range r.lines {
		until, ok := s.until[r.lines[i].item]
		if ok && now.Before(until) {
			return true
		}
		if ok {
			delete(s.until, r.lines[i].item)
		}
	}
	return false
}
