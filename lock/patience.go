package lock

import (
	"context"
	"sync"
	"time"
)

const (
	releaseTimeout = 2 * time.Second
	patienceRound  = releaseTimeout / 8
)

// patience makes contexts for releases: with the values of a request, without its end, and with an end of their own
// after 2 s or a little more. All of a quarter of a second share one deadline, so that a release costs no timer. The
// zero value is ready.
type patience struct {
	mu       sync.Mutex
	deadline context.Context
	end      context.CancelFunc
	until    time.Time // the deadline is given out until then
}

func (p *patience) detach(ctx context.Context, now time.Time) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline == nil || now.After(p.until) {
		// The one before ends by itself: releases may still go by it.
		p.deadline, p.end = context.WithTimeout(context.Background(), releaseTimeout+patienceRound)
		p.until = now.Add(patienceRound)
	}
	return detached{p.deadline, ctx}
}

// close ends the context made last, for its timer's sake.
func (p *patience) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end()
	}
}

// detached has the end of one context and the values of another.
type detached struct {
	context.Context
	values context.Context
}

func (d detached) Value(key any) any { return d.values.Value(key) }
