package landing

import (
	"context"
	"slices"
	"sync"
)

// hand holds the ids of the entries that a lane has read and not finished.
type hand struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// add reports whether an id is new.
func (h *hand) add(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.ids[id]; there {
		return false
	}
	if h.ids == nil {
		h.ids = map[string]struct{}{}
	}
	h.ids[id] = struct{}{}
	return true
}

// only forgets all ids but these.
func (h *hand) only(these map[string]*message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ids) == len(these) {
		return
	}
	h.ids = make(map[string]struct{}, len(these))
	for id := range these {
		h.ids[id] = struct{}{}
	}
}

func (h *hand) messages() []*message {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*message, 0, len(h.ids))
	for id := range h.ids {
		all = append(all, &message{id: id})
	}
	return all
}

// keep tells Redis now and then, until stop is called, that what the lane has in hand is in living hands: an attempt may take long
// where SQL hangs, an order may wait long for its next try, and other workers are to take, and to count as a try, only what
// dead ones had.
func (l *lane) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // to the end of what is finished after ctx
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, l.e.pace.claimAfter/3) {
			for part := range slices.Chunk(l.hand.messages(), mostBatch) {
				if _, err := l.tried(ctx, 0, part...); err != nil && ctx.Err() == nil {
					l.e.tel.warn(ctx, "cannot keep orders that take long, another worker may try them too", err)
					break
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
