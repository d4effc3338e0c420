package lock

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/renew"
)

// keepWatch is how long a key is watched after nobody waits for it any more: a hot key is not subscribed to again and
// again.
const keepWatch = 5 * time.Second

// wakes are the keys that somebody in front of a line waits for. A wake-up only shortens a wait: the back-off goes on
// beside it, so a lost one costs time and nothing else.
type wakes struct {
	renewals *renew.Scheduler
	watch    Watch // nil: the backend has none

	mu   sync.Mutex
	keys map[string]*watched
}

// watched is one of them. Its fields are guarded by the mutex of wakes.
type watched struct {
	ws   *wakes
	key  string
	ch   chan struct{} // of capacity 1: a wake-up
	used bool          // a line waits for it
	drop *renew.Entry  // when it is to be forgotten, if unused
}

func (ws *wakes) start(b Backend, renewals *renew.Scheduler) {
	ws.renewals, ws.keys = renewals, map[string]*watched{}
	if b, ok := b.(WatchBackend); ok {
		ws.watch = b.Watch(ws.wake)
	}
}

func (ws *wakes) close() {
	if ws.watch != nil {
		ws.watch.Close()
	}
}

// watchLine has the one in front of the line woken when its key may be free.
func (ws *wakes) watchLine(ln *line) {
	if ws.watch == nil {
		return
	}
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if ln.watched == nil {
		ln.watched = ws.use(ln.key)
	}
}

func (ws *wakes) use(key string) *watched {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.keys[key]
	if w == nil {
		w = &watched{ws: ws, key: key, ch: make(chan struct{}, 1)}
		ws.keys[key] = w
		ws.watch.Add(key)
	}
	w.used = true
	if w.drop != nil {
		ws.renewals.Remove(w.drop)
		w.drop = nil
	}
	return w
}

// unuse is called when the line of the key ends.
func (w *watched) unuse() {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	w.used = false
	w.drop = w.ws.renewals.Add(time.Now().Add(keepWatch), func(time.Time) time.Time {
		w.ws.forget(w)
		return time.Time{}
	})
}

func (ws *wakes) forget(w *watched) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.used && ws.keys[w.key] == w {
		delete(ws.keys, w.key)
		ws.watch.Remove(w.key)
	}
}

// wake is called by the backend.
func (ws *wakes) wake(key string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.keys[key]; w != nil {
		select {
		case w.ch <- struct{}{}:
		default: // woken already
		}
	}
}

// wake returns the channel of wake-ups, nil where there are none. It is for the one in front.
func (ln *line) wake() <-chan struct{} {
	if ln.watched == nil {
		return nil
	}
	return ln.watched.ch
}

// drain forgets a wake-up that came too early.
func (ln *line) drain() {
	select {
	case <-ln.wake():
	default:
	}
}
