package checker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sampler looks, while a run goes on, for keys without a TTL and for locks that outlive their holders. Call Sample as
// often as it should look; it is safe for concurrent use.
type Sampler struct {
	rdb     redis.UniversalClient
	prefix  string
	lockTTL time.Duration
	alive   func(token string) bool

	mu    sync.Mutex
	since map[string]time.Time // lock key and token -> when its holder was last alive
	found map[Finding]bool
	looks int
}

// NewSampler returns a Sampler of the keys under a prefix. alive tells whether the holder of a lock with that owner token
// is alive; nil means that all are.
func NewSampler(rdb redis.UniversalClient, prefix string, lockTTL time.Duration, alive func(token string) bool) *Sampler {
	return &Sampler{rdb: rdb, prefix: prefix, lockTTL: lockTTL, alive: alive, since: map[string]time.Time{}, found: map[Finding]bool{}}
}

// slack is what a busy machine may add between a key's end and the look that sees it.
const slack = 500 * time.Millisecond

// Sample looks once.
func (s *Sampler) Sample(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	now := time.Now()
	seen := map[string]bool{}
	err := scan(ctx, s.rdb, s.prefix, func(ctx context.Context, names []string) error {
		all, err := fetch(ctx, s.rdb, names)
		for i := range all {
			s.look(&all[i], now, seen)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("checker: sample: %w", err)
	}
	for id := range s.since {
		if !seen[id] {
			delete(s.since, id)
		}
	}
	return nil
}

func (s *Sampler) look(v *raw, now time.Time, seen map[string]bool) {
	if v.ttl == -1 {
		s.found[Finding{Kind: Eternal, Key: v.name}] = true
	}
	if v.kind != "string" || !strings.HasPrefix(strings.TrimPrefix(v.name, s.prefix), "lock:") {
		return
	}
	id := v.name + " " + v.text
	seen[id] = true
	if was, known := s.since[id]; !known || s.alive == nil || s.alive(v.text) {
		s.since[id] = now
	} else if age := now.Sub(was); age > s.lockTTL+slack {
		s.found[Finding{Kind: LockOutlives, Key: v.name, Want: s.lockTTL.Milliseconds()}] = true
	}
}

// Looks returns how often Sample has looked.
func (s *Sampler) Looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// Findings returns what was seen, each thing once.
func (s *Sampler) Findings() []Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fs []Finding
	for f := range s.found {
		fs = append(fs, f)
	}
	return sorted(fs)
}
