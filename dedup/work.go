package dedup

import (
	"context"
	"sync"
)

// work counts what Close has to wait for: calls of Begin, open claims, goroutines.
type work struct {
	ctx     context.Context // of what runs in the background; ends when Close stops waiting
	cancel  context.CancelFunc
	idlers  context.Context // of what Close does not wait for; ends when Close begins
	dismiss context.CancelFunc

	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed with the last one after close
}

func (w *work) init() {
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.idlers, w.dismiss = context.WithCancel(w.ctx)
	w.idle = make(chan struct{})
}

// enter counts one more, or reports that it is too late.
func (w *work) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.n++
	return true
}

// hold counts one more. The caller is counted itself, or has not published w yet.
func (w *work) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

func (w *work) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.closed {
		close(w.idle)
	}
}

// close lets nobody in any more and waits for the rest. It reports false if ctx ended first; then w.ctx has ended too.
func (w *work) close(ctx context.Context) bool {
	w.mu.Lock()
	if !w.closed && w.n == 0 {
		close(w.idle)
	}
	w.closed = true
	w.mu.Unlock()
	w.dismiss()
	defer w.cancel()
	select {
	case <-w.idle:
		return true
	case <-ctx.Done():
		return false
	}
}
