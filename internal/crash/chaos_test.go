package crash

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// fleet is several shops on the same stores, one of which may be dead for a moment.
type fleet struct {
	*world
	mu    sync.Mutex
	shops []*child
	next  int
}

// addr returns the shops' addresses in turn.
func (f *fleet) addr() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.shops[f.next%len(f.shops)].addr
}

// die kills a shop and starts it again.
func (f *fleet) die(n int) {
	f.mu.Lock()
	old := f.shops[n]
	f.mu.Unlock()
	old.kill()
	c, err := f.reopen()
	if err != nil {
		f.Error(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shops[n] = c
	f.children = append(f.children, c)
}

// reopen starts a shop, which needs Redis or SQL not to be restarting just now.
func (f *fleet) reopen() (c *child, err error) {
	for range 50 {
		if c, err = start(f.setup); err == nil {
			return c, nil
		}
		pause(100 * time.Millisecond)
	}
	return nil, err
}

// chaos is what goes wrong in a soak, and how often it did.
type chaos struct {
	f      *fleet
	dice   *rand.Rand
	every  time.Duration // between two faults
	counts map[string]int
	hasten bool // the leases of the dead end at once
}

// trouble is a fault with how likely it is.
type trouble struct {
	name  string
	parts int
	do    func()
}

func (c *chaos) troubles() []trouble {
	f := c.f
	rule := func(p *faultproxy.Proxy, m faultproxy.Match, a faultproxy.Action) func() {
		return func() { p.On(m.Nth(1+c.dice.IntN(200)), a) }
	}
	return []trouble{
		{"reply of Redis lost", 12, rule(f.toRedis, faultproxy.Any(), faultproxy.LoseReply())},
		{"reply of Redis cut off", 4, rule(f.toRedis, faultproxy.Any(), faultproxy.CutReply(3))},
		{"request to Redis lost", 8, rule(f.toRedis, faultproxy.Any(), faultproxy.LoseRequest())},
		{"command to Redis sent twice", 4, rule(f.toRedis, faultproxy.Named("EVALSHA"), faultproxy.Repeat())},
		{"reply of Redis late", 4, rule(f.toRedis, faultproxy.Any(), faultproxy.DelayReply(1500*time.Millisecond))},
		{"reply to a COMMIT lost", 8, func() {
			f.toSQL.On(faultproxy.Named("COMMIT").Nth(1+c.dice.IntN(20)), faultproxy.LoseReply())
		}},
		{"request to SQL lost", 6, rule(f.toSQL, faultproxy.Any(), faultproxy.LoseRequest())},
		{"connections to Redis reset", 3, f.toRedis.CutAll},
		{"connections to SQL reset", 3, f.toSQL.CutAll},
		{"scripts flushed", 3, func() { _ = f.rdb.ScriptFlush(f.ctx).Err() }}, // Redis may be away
		{"shop killed", 4, func() {
			f.die(c.dice.IntN(len(f.shops)))
			if c.hasten {
				f.age()
			}
		}},
		{"shop stopped for a while", 2, func() {
			f.mu.Lock()
			c := f.shops[c.dice.IntN(len(f.shops))]
			f.mu.Unlock()
			c.stop(2 * lockTTL)
		}},
		{"Redis restarted", 1, func() { f.redisSrv.Restart(f) }},
		{"PostgreSQL restarted", 1, f.restartSQL},
		{"orders delivered again", 4, func() { f.again(50) }},
	}
}

// run makes trouble until ctx ends. It runs on the test's goroutine, as servers may only be restarted there.
func (c *chaos) run(ctx context.Context) {
	all := c.troubles()
	parts := 0
	for _, t := range all {
		parts += t.parts
	}
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.f.toRedis.Reset() // or it would remember every command
		c.f.toSQL.Reset()
		if n%40 == 39 {
			c.f.toRedis.Heal(c.f) // forgets the rules that have been met
			c.f.toSQL.Heal(c.f)
		}
		at := c.dice.IntN(parts)
		if n < len(all) {
			at = 0 // each once first
			for _, t := range all[:n] {
				at += t.parts
			}
		}
		for _, t := range all {
			if at -= t.parts; at < 0 {
				t.do()
				c.counts[t.name]++
				break
			}
		}
	}
}
