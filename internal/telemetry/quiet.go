package telemetry

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// quietFor is how long a rule keeps silent after a warning.
const quietFor = time.Second

// Quiet thins out one kind of warning: at most one a second for each rule. The zero value is ready; safe for concurrent
// use.
type Quiet struct {
	mu    sync.Mutex
	rules map[*reqctx.Rule]*silence
}

type silence struct {
	until      time.Time
	suppressed int
}

// Allow reports whether the warning may be logged, and how many of its kind were not since the last one. The rule may be
// nil.
func (q *Quiet) Allow(rule *reqctx.Rule) (suppressed int, ok bool) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.rules[rule]
	if s == nil {
		s = &silence{}
		if q.rules == nil {
			q.rules = map[*reqctx.Rule]*silence{}
		}
		q.rules[rule] = s
	}
	if now.Before(s.until) {
		s.suppressed++
		return 0, false
	}
	suppressed = s.suppressed
	s.until, s.suppressed = now.Add(quietFor), 0
	return suppressed, true
}
