package crash

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
	within int           // a rule meets one of so many commands, at most
	hasten bool          // the leases of the dead end at once

	armed  []armed
	counts map[string]int // what has happened, not what was armed for
	each   atomic.Bool    // everything has happened once
}

// armed is a rule that no command may have met yet.
type armed struct {
	name string
	rule *faultproxy.Rule
}

// Not faults, but counted with them.
const (
	takenOver = "orders in the hands of the dead"
	malformed = "entry that nobody can read"
)

// trouble is a fault with how likely it is.
type trouble struct {
	name  string
	parts int
	do    func() (int, *faultproxy.Rule) // how often it has happened, or a rule that will tell
}

func (c *chaos) troubles() []trouble {
	f := c.f
	type happens = func() (int, *faultproxy.Rule)
	rule := func(p *faultproxy.Proxy, m faultproxy.Match, within int, a faultproxy.Action) happens {
		return func() (int, *faultproxy.Rule) { return 0, p.On(m.Nth(1+c.dice.IntN(min(within, c.within))), a) }
	}
	now := func(do func()) happens {
		return func() (int, *faultproxy.Rule) { do(); return 1, nil }
	}
	where := func(do func() bool) happens {
		return func() (int, *faultproxy.Rule) {
			if do() {
				return 1, nil
			}
			return 0, nil
		}
	}
	return []trouble{
		{"reply of Redis lost", 12, rule(f.toRedis, faultproxy.Any(), 200, faultproxy.LoseReply())},
		{"reply of Redis cut off", 4, rule(f.toRedis, faultproxy.Any(), 200, faultproxy.CutReply(3))},
		{"request to Redis lost", 8, rule(f.toRedis, faultproxy.Any(), 200, faultproxy.LoseRequest())},
		{"command to Redis sent twice", 4, rule(f.toRedis, faultproxy.Named("EVALSHA"), 200, faultproxy.Repeat())},
		{"reply of Redis late", 4, rule(f.toRedis, faultproxy.Any(), 200, faultproxy.DelayReply(1500*time.Millisecond))},
		{"reply to a COMMIT lost", 8, rule(f.toSQL, faultproxy.Named("COMMIT"), 20, faultproxy.LoseReply())},
		{"request to SQL lost", 6, rule(f.toSQL, faultproxy.Any(), 200, faultproxy.LoseRequest())},
		{"connections to Redis reset", 3, now(f.toRedis.CutAll)},
		{"connections to SQL reset", 3, now(f.toSQL.CutAll)},
		{"scripts flushed", 3, where(func() bool { return f.rdb.ScriptFlush(f.ctx).Err() == nil })}, // Redis may be away
		{"shop killed", 4, now(func() { c.die(c.dice.IntN(len(f.shops))) })},
		{"shops killed with orders in hand", 1, where(c.dieBusy)},
		{"shop stopped for a while", 2, now(func() {
			f.mu.Lock()
			c := f.shops[c.dice.IntN(len(f.shops))]
			f.mu.Unlock()
			c.stop(2*lockTTL, func() {})
		})},
		{"Redis restarted", 1, now(func() { f.redisSrv.Restart(f) })},
		{"PostgreSQL restarted", 1, now(f.restartSQL)},
		{"orders delivered again", 4, where(func() bool { return f.again(50) })},
		{malformed, 1, where(f.garble)},
	}
}

// die kills shops and starts them again.
func (c *chaos) die(which ...int) {
	for _, n := range which {
		c.f.die(n)
	}
	if c.hasten {
		c.counts[takenOver] += c.f.age()
	}
}

// dieBusy kills all shops when one of them has landed orders and is about to take them off the stream: others find them then.
func (c *chaos) dieBusy() bool {
	r := c.f.toRedis.On(faultproxy.Any().Containing(c.f.scripts["landing/done"]), faultproxy.HangRequest())
	for end := time.Now().Add(3 * time.Second); r.Fired() == 0; pause(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	all := make([]int, len(c.f.shops))
	for n := range all {
		all[n] = n
	}
	c.die(all...)
	return true
}

// garble puts an entry into the stream that nobody can read. It tells whether it is there for certain.
func (f *fleet) garble() bool {
	stream := f.counter.Streams()[0]
	_, err := f.rdb.TxPipelined(f.ctx, func(p redis.Pipeliner) error {
		p.XAdd(f.ctx, &redis.XAddArgs{Stream: stream, Values: map[string]any{"order": garbled}})
		p.Expire(f.ctx, stream, time.Hour)
		return nil
	})
	return err == nil
}

const garbled = "garbled"

// count adds up what has happened since the last look.
func (c *chaos) count() {
	c.armed = slices.DeleteFunc(c.armed, func(a armed) bool {
		n := a.rule.Fired()
		c.counts[a.name] += n
		return n > 0
	})
}

// missing returns the trouble that has not happened yet.
func (c *chaos) missing(all []trouble) (some []trouble) {
	for _, t := range all {
		if c.counts[t.name] == 0 {
			some = append(some, t)
		}
	}
	return some
}

// run makes trouble until ctx ends. It runs on the test's goroutine, as servers may only be restarted there.
func (c *chaos) run(ctx context.Context) {
	all := c.troubles()
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			c.count()
			return
		case <-tick.C:
		}
		c.f.living()
		c.f.toRedis.Reset() // or it would remember every command
		c.f.toSQL.Reset()
		c.count()
		missing := c.missing(all)
		c.each.Store(len(missing) == 0)
		if n%40 == 39 {
			c.f.toRedis.Heal(c.f) // forgets the rules that have been met
			c.f.toSQL.Heal(c.f)
			c.armed = nil
		}
		t := c.choose(all)
		switch {
		case n < len(all):
			t = all[n] // each once first
		case len(missing) > 0 && (c.hasten || n%2 == 0):
			t = c.choose(missing)
		}
		happened, rule := t.do()
		c.counts[t.name] += happened
		if rule != nil {
			c.armed = append(c.armed, armed{t.name, rule})
		}
	}
}

// choose throws the dice: one is as likely as its parts say.
func (c *chaos) choose(among []trouble) trouble {
	parts := 0
	for _, t := range among {
		parts += t.parts
	}
	at := c.dice.IntN(parts)
	for _, t := range among {
		if at -= t.parts; at < 0 {
			return t
		}
	}
	return among[0]
}
