package landing

import (
	"context"
	"crypto/rand"
	"sync"
	"time"
)

const (
	// mostBatch is how many orders one transaction lands.
	mostBatch = 256
	// mostTries is how often an order that fails by itself is tried before it goes to the dead letters.
	mostTries = 5
	// mostLater is how many orders wait for another try before a worker that lands nothing reads on slowly.
	mostLater = 16 * mostBatch
	// grace is how long the batch in hand may take after the context has ended.
	grace = 10 * time.Second
)

// Worker lands accepted orders. Any number of workers may run, in one process and in many: an order that two of them have
// in hand lands once.
type Worker struct{ e *engine }

// Run lands orders until ctx ends, and returns nil then, after the batch in hand is finished or, if that takes longer than
// 10 s, left to other workers. Nothing that was accepted is lost while SQL or Redis is away: Run waits, and goes on.
//
// It returns [ErrInvalid] at once if the Counter was made without stock.WithStream. It may be called again, and by several
// goroutines: each call is a worker of its own.
func (w *Worker) Run(ctx context.Context) error {
	if !w.e.settings.Stream {
		return fail(ErrInvalid, "the Counter has no stream to land orders from: make it with stock.WithStream()")
	}
	name := rand.Text()
	var lanes sync.WaitGroup
	for _, key := range w.e.counter.Streams() {
		lanes.Go(func() {
			newLane(w.e, key, name).run(ctx)
		})
	}
	lanes.Wait()
	return nil
}

// deadKey is the key of a stream's dead letters.
func deadKey(stream string) string { return stream + ":dead" }

// graced returns a context that ends a while after ctx has: for what must be finished rather than cut off.
func graced(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() {
		stop()
		cancel()
	}
}

// sleep waits and reports whether ctx lived that long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
