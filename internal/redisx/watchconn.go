package redisx

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchConn is one connection of a Watch. It ends when it breaks, falls silent or has no channel left, and is not made
// anew: the Watch makes another one.
type watchConn struct {
	w        *Watch
	addr     string
	sharded  bool
	changed  chan struct{} // of capacity 1: there are changes
	quitting chan struct{}
	once     sync.Once

	// Guarded by w.mu.
	begun   map[string]bool // confirmed by the server
	changes map[string]bool // not yet sent: true to listen, false to stop
	count   int             // channels listened to once the changes are sent
}

// change is called with w.mu held.
func (c *watchConn) change(channel string, listen bool) {
	if listen {
		c.count++
	} else {
		c.count--
		delete(c.begun, channel)
	}
	c.changes[channel] = listen // also for one that is listened to still: the server then confirms it once more
	if c.count == 0 {
		c.quit()
		delete(c.w.conns, c.addr)
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *watchConn) quit() { c.once.Do(func() { close(c.quitting) }) }

// run opens the connection, reads it on a goroutine of its own and sends changes until one of the two ends.
func (c *watchConn) run(open func(context.Context, ...string) *redis.PubSub) {
	ps := open(c.w.ctx)
	var wg sync.WaitGroup
	reload := false
	wg.Go(func() {
		defer c.quit()
		reload = c.read(ps)
	})
	c.write(ps)
	c.quit()
	_ = ps.Close() // ends the read
	wg.Wait()
	c.w.ended(c, reload)
}

// write sends changes and signs of life.
func (c *watchConn) write(ps *redis.PubSub) {
	ping := time.NewTicker(watchPing)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-c.quitting:
			return
		case <-c.changed:
			err = c.send(ps)
		case <-ping.C:
			err = ps.Ping(c.w.ctx)
		}
		if err != nil {
			return
		}
	}
}

func (c *watchConn) send(ps *redis.PubSub) error {
	c.w.mu.Lock()
	changes := maps.Clone(c.changes)
	clear(c.changes)
	c.w.mu.Unlock()
	var listen, stop []string
	for channel, yes := range changes {
		if yes {
			listen = append(listen, channel)
		} else {
			stop = append(stop, channel)
		}
	}
	subscribe, unsubscribe := ps.Subscribe, ps.Unsubscribe
	if c.sharded {
		subscribe, unsubscribe = ps.SSubscribe, ps.SUnsubscribe
		// One command each: on a cluster the channels of one command must share a slot.
		for _, channel := range listen {
			if err := subscribe(c.w.ctx, channel); err != nil {
				return err
			}
		}
		for _, channel := range stop {
			if err := unsubscribe(c.w.ctx, channel); err != nil {
				return err
			}
		}
		return nil
	}
	if len(listen) > 0 {
		if err := subscribe(c.w.ctx, listen...); err != nil {
			return err
		}
	}
	if len(stop) > 0 {
		return unsubscribe(c.w.ctx, stop...)
	}
	return nil
}

// read passes on what arrives until the connection is over. It reports whether that is because the slots have moved.
func (c *watchConn) read(ps *redis.PubSub) (moved bool) {
	for {
		msg, err := ps.ReceiveTimeout(c.w.ctx, watchSilence)
		var answer redis.Error
		switch {
		case err == nil:
			if c.pass(msg) {
				return true
			}
		case errors.As(err, &answer) && redis.HasErrorPrefix(err, "MOVED"):
			return true
		case errors.As(err, &answer):
			c.w.on.Refused(err) // the connection is well, and other channels may be
		default:
			return false
		}
	}
}

// pass tells the listener. It reports whether the server has taken a channel away from us.
func (c *watchConn) pass(msg any) (moved bool) {
	switch m := msg.(type) {
	case *redis.Message:
		c.w.on.Message(m.Channel, m.Payload)
	case *redis.Subscription:
		switch m.Kind {
		case "subscribe", "ssubscribe":
			if c.confirm(m.Channel) {
				c.w.on.Begun(m.Channel)
			}
		case "sunsubscribe":
			return c.wants(m.Channel)
		}
	}
	return false
}

func (c *watchConn) confirm(channel string) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.fails = 0
	if c.w.wanted[channel] != c {
		return false
	}
	c.begun[channel] = true
	return true
}

func (c *watchConn) wants(channel string) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	_, stopping := c.changes[channel]
	return c.w.wanted[channel] == c && !stopping && c.begun[channel]
}
