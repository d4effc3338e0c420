package faultproxy

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Proxy passes connections on to a server and breaks them as told. Methods may be
// called from any goroutine, except for Heal, which may end the test.
type Proxy struct {
	codec func() codec // one for each connection
	port  *testserver.Port
	wg    sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while refusing
	mode     mode
	changed  chan struct{} // closed when mode changes
	delay    time.Duration
	cutAfter [2]int // by Direction; none means never
	rules    []*Rule
	log      []Command
	links    map[*link]struct{}
	accepted int
}

// mode is what happens to everything that passes.
type mode int

const (
	passing mode = iota
	stalled
	silent
	refusing
	closed
)

// none is the absence of a limit.
const none = -1

// Direction is the way of a byte.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Redis starts a proxy in front of the Redis server at addr. The end of the test
// closes it.
func Redis(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, newRESP)
}

// Postgres starts a proxy in front of the PostgreSQL server at addr. The end of the
// test closes it. Connections must not use TLS.
func Postgres(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, newPostgres)
}

// MariaDB starts a proxy in front of the MariaDB or MySQL server at addr. The end of
// the test closes it. Connections must not use TLS or compression.
func MariaDB(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, newMySQL)
}

// TCP starts a proxy that knows no commands, in front of any server. The end of the
// test closes it.
func TCP(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, newRaw)
}

func start(t testing.TB, addr string, codec func() codec) *Proxy {
	t.Helper()
	port, err := testserver.ReservePort()
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{
		codec: codec, port: port, target: addr, changed: make(chan struct{}),
		cutAfter: [2]int{none, none}, links: map[*link]struct{}{},
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Errorf("faultproxy: %v", err)
		}
	})
	if err := p.listen(); err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	return p
}

// Addr returns "127.0.0.1:port", to be given to the client instead of the server's.
func (p *Proxy) Addr() string { return p.port.Addr() }

// On adds a rule: the commands chosen by match meet the action. A command meets one
// rule, the first added that chooses it; the others still count it.
func (p *Proxy) On(match Match, action Action) *Rule {
	r := newRule(match, action)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Commands returns what was sent by clients and chosen by none or all of the
// matches, in order; Nth and Times do not matter here.
func (p *Proxy) Commands(matches ...Match) []Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Command
	for _, c := range p.log {
		if !slices.ContainsFunc(matches, func(m Match) bool { return !m.matches(c) }) {
			list = append(list, c)
		}
	}
	return list
}

// Count returns the number of Commands.
func (p *Proxy) Count(matches ...Match) int { return len(p.Commands(matches...)) }

// Reset forgets the commands seen; rules keep their counts.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = nil
}

// Accepted returns the number of connections accepted since the start.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Lost returns the number of open connections that HalfOpen has cost bytes.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.isLossy() {
			n++
		}
	}
	return n
}

// Open returns the number of connections that are open now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// see logs a command and returns the rule that it meets, or nil, and how long it
// has to wait.
func (p *Proxy) see(c Command) (*Rule, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, c)
	var met *Rule
	for _, r := range p.rules {
		if r.takes(c) && met == nil {
			met = r
		}
	}
	return met, p.delay
}
