package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// memory is a second backend: everything in one process, on the clock of a synctest bubble if need be, so that the whole
// Locker can be tested over it. A memoryClient is what one Locker has of it.
type memory struct {
	mu      sync.Mutex
	locks   map[string]memoryLock
	fences  map[string]int64
	log     []string // what was asked, by name, in order
	watches map[*memoryWatch]bool

	fault atomic.Pointer[memoryFault]
}

// memoryFault decides what becomes of a step: whether it is done, and the error that its caller sees.
type memoryFault func(step, token string) (done bool, err error)

type memoryLock struct {
	token string
	until time.Time
}

func newMemory() *memory {
	return &memory{locks: map[string]memoryLock{}, fences: map[string]int64{}, watches: map[*memoryWatch]bool{}}
}

// failing has f judge each step until the returned function is called.
func (m *memory) failing(f memoryFault) (heal func()) {
	m.fault.Store(&f)
	return func() { m.fault.Store(nil) }
}

// client returns the memory as one process sees it.
func (m *memory) client() *memoryClient { return &memoryClient{memory: m} }

type memoryClient struct {
	*memory
	watch atomic.Pointer[memoryWatch]
}

func (m *memory) step(name, token string, do func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, name)
	done, err := true, error(nil)
	if f := m.fault.Load(); f != nil {
		done, err = (*f)(name, token)
	}
	if done {
		do()
	}
	return err
}

func (m *memory) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, s := range m.log {
		if s == name {
			n++
		}
	}
	return n
}

func (m *memory) steps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.log)
}

// get returns the live lock under key. Called with m.mu held.
func (m *memory) get(key string) (memoryLock, bool) {
	k, ok := m.locks[key]
	if ok && !time.Now().Before(k.until) {
		delete(m.locks, key)
		return memoryLock{}, false
	}
	return k, ok
}

// token returns who has the key, "" for nobody.
func (m *memory) token(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, _ := m.get(key)
	return k.token
}

func (m *memory) left(key string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.get(key)
	if !ok {
		return 0
	}
	return time.Until(k.until)
}

// set puts a lock there, or takes it away with an empty token.
func (m *memory) set(key, token string, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if token == "" {
		delete(m.locks, key)
		m.tell(key, nil)
		return
	}
	m.locks[key] = memoryLock{token, time.Now().Add(ttl)}
}

func (m *memory) number(keys []string, again bool) int64 {
	last := int64(0)
	for _, k := range keys {
		last = max(last, m.fences[k])
	}
	n := last
	if !again || last == 0 {
		n = max(last+1, time.Now().UnixMicro())
	}
	for _, k := range keys {
		m.fences[k] = n
	}
	return n
}

func (m *memory) Acquire(_ context.Context, r Request) (g Grant, err error) {
	err = m.step("acquire", r.Token, func() {
		mine := 0
		for i, key := range r.Keys {
			k, ok := m.get(key)
			switch {
			case ok && k.token != r.Token:
				g = Grant{Taken: i, Left: time.Until(k.until)}
				return
			case ok:
				mine++
			}
		}
		for _, key := range r.Keys {
			m.locks[key] = memoryLock{r.Token, time.Now().Add(r.TTL)}
		}
		g = Grant{Held: true, Fence: m.number(r.Keys, mine == len(r.Keys))}
	})
	return g, err
}

// state returns what the keys hold. Called with m.mu held.
func (m *memory) state(h Held) State {
	s := Ours
	for _, key := range h.Keys {
		if k, ok := m.get(key); !ok {
			s = max(s, Missing)
		} else if k.token != h.Token {
			s = max(s, Foreign)
		}
	}
	return s
}

func (m *memory) Renew(_ context.Context, h Held) (s State, err error) {
	err = m.step("renew", h.Token, func() {
		if s = m.state(h); s != Ours {
			return
		}
		for _, key := range h.Keys {
			m.locks[key] = memoryLock{h.Token, time.Now().Add(h.TTL)}
		}
	})
	return s, err
}

func (m *memoryClient) Release(_ context.Context, h Held) (rel Released, err error) {
	err = m.step("release", h.Token, func() {
		rel.State = m.state(h)
		for _, key := range h.Keys {
			if k, ok := m.get(key); ok && k.token == h.Token {
				delete(m.locks, key)
				rel.Others = max(rel.Others, m.tell(key, m.own(h)))
			}
		}
	})
	return rel, err
}

func (m *memory) Handover(_ context.Context, h Held, to Request) (g Grant, s State, err error) {
	err = m.step("handover", h.Token, func() {
		if k, ok := m.get(h.Keys[0]); ok && k.token == to.Token {
			g = Grant{Held: true, Fence: m.number(h.Keys, true)}
			return
		}
		if s = m.state(h); s == Ours {
			m.locks[h.Keys[0]] = memoryLock{to.Token, time.Now().Add(to.TTL)}
			g = Grant{Held: true, Fence: m.number(h.Keys, false)}
		}
	})
	return g, s, err
}

// memoryWatch wakes the Locker that asked for it, of which there may be several.
type memoryWatch struct {
	m    *memory
	wake func(string)
	keys map[string]bool
}

// own returns the watch that a release does not wake.
func (m *memoryClient) own(h Held) *memoryWatch {
	if h.Orphan {
		return nil
	}
	return m.watch.Load()
}

func (m *memoryClient) Watch(wake func(key string)) Watch {
	w := &memoryWatch{m: m.memory, wake: wake, keys: map[string]bool{}}
	m.watch.Store(w)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches[w] = true
	return w
}

func (w *memoryWatch) Add(key string) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.keys[key] = true
	go w.wake(key) // a watch that begins counts as a wake-up
}

func (w *memoryWatch) Remove(key string) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.keys, key)
}

func (w *memoryWatch) Close() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.watches, w)
}

// tell wakes whoever watches the key, except own, and returns how many that are. Called with m.mu held.
func (m *memory) tell(key string, own *memoryWatch) int {
	n := 0
	for w := range m.watches {
		if w.keys[key] && w != own {
			n++
			go w.wake(key)
		}
	}
	return n
}

// bare is a backend without anything optional.
type bare struct{ m *memoryClient }

func (b bare) Acquire(ctx context.Context, r Request) (Grant, error) { return b.m.Acquire(ctx, r) }
func (b bare) Renew(ctx context.Context, h Held) (State, error)      { return b.m.Renew(ctx, h) }
func (b bare) Release(ctx context.Context, h Held) (Released, error) {
	rel, err := b.m.Release(ctx, h)
	rel.Others = -1
	return rel, err
}

var (
	_ HandoverBackend = (*memoryClient)(nil)
	_ WatchBackend    = (*memoryClient)(nil)
	_ Backend         = bare{}
)

// lagging answers after a round trip of 0.1 ms.
type lagging struct{ *memoryClient }

func lag() { <-time.After(50 * time.Microsecond) }

func (g *lagging) Acquire(ctx context.Context, r Request) (Grant, error) {
	lag()
	defer lag()
	return g.memoryClient.Acquire(ctx, r)
}

func (g *lagging) Release(ctx context.Context, h Held) (Released, error) {
	lag()
	defer lag()
	return g.memoryClient.Release(ctx, h)
}

func (g *lagging) Handover(ctx context.Context, h Held, to Request) (Grant, State, error) {
	lag()
	defer lag()
	return g.memoryClient.Handover(ctx, h, to)
}
