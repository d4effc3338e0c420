package middleware

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/lock"
)

// exchange is what the rules of one guard tell each other about a request: the Dedup outside makes it, a Lock inside
// leaves word. Safe for concurrent use.
type exchange struct {
	mu      sync.Mutex
	over    bool // the Dedup outside no longer waits for anybody
	refused bool
	running []chan struct{}
}

type exchangeKey struct{ g *Guard }

func withExchange(ctx context.Context, g *Guard, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{g}, x)
}

// exchangeOf returns the exchange of the request, nil where no Dedup of the guard is outside.
func exchangeOf(ctx context.Context, g *Guard) *exchange {
	x, _ := ctx.Value(exchangeKey{g}).(*exchange)
	return x
}

// releaseAlongside frees the lock beside what the Dedup outside has left to do, which waits for it. It reports false, and
// does nothing, if there is nobody who waits.
func (x *exchange) releaseAlongside(ctx context.Context, lease *lock.Lease) bool {
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	done := make(chan struct{})
	x.running = append(x.running, done)
	go func() {
		defer close(done)
		release(ctx, lease)
	}()
	return true
}

// wait returns when all that was started alongside has ended. From now on nothing is.
func (x *exchange) wait() {
	x.mu.Lock()
	x.over = true
	running := x.running
	x.mu.Unlock()
	for _, done := range running {
		<-done
	}
}

// refuse leaves word that a rule answered and the handler was not called.
func (x *exchange) refuse() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refused = true
}

// wasRefused reports whether a rule answered and the handler was not called.
func (x *exchange) wasRefused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refused
}
