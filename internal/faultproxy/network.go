package faultproxy

import (
	"testing"
	"time"
)

// Delay makes each command wait for d before it is passed on; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CutAfter closes each connection, those open now and those to come, after n more
// bytes in that direction.
func (p *Proxy) CutAfter(d Direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter[d] = n
	for l := range p.links {
		l.limit(d, n)
	}
}

// CutAll resets the connections that are open now.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Stall stops all bytes in both directions. They pass when healed, even if the
// client that sent them has given up meanwhile.
func (p *Proxy) Stall() { p.set(stalled) }

// HalfOpen accepts connections, reads what comes from client and server, and
// passes nothing on. Healing closes the connections that have lost bytes.
func (p *Proxy) HalfOpen() { p.set(silent) }

// Refuse resets all connections and refuses new ones. Only Heal ends that.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == closed {
		return
	}
	p.change(refusing)
	p.stopListening()
	for l := range p.links {
		l.reset()
	}
}

// Redirect passes new connections on to another server. Those that are open stay
// where they are: as after a failover, two servers may hold themselves for the one.
func (p *Proxy) Redirect(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Heal ends all faults and removes all rules; what a rule holds goes on.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	for _, r := range p.rules {
		r.Release()
	}
	p.rules, p.delay, p.cutAfter = nil, 0, [2]int{none, none}
	for l := range p.links {
		l.heal()
	}
	refused := p.mode == refusing
	if p.mode != closed {
		p.change(passing)
	}
	p.mu.Unlock()
	if refused {
		if err := p.listen(); err != nil {
			t.Fatalf("faultproxy: heal: %v", err)
		}
	}
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != closed && p.mode != refusing {
		p.change(m)
	}
}

// change sets the mode and wakes those who wait for it. The caller holds p.mu.
func (p *Proxy) change(m mode) {
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the mode and a channel that is closed when it changes.
func (p *Proxy) current() (mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}
