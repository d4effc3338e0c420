package redisx

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener is told what happens on watched channels. Its functions must not block.
type Listener struct {
	Begun   func(channel string)          // it is listened to from now on; after a reconnect again: something may have been missed
	Message func(channel, payload string) // something was published
	Refused func(err error)               // the server does not let us listen; there may be more than one of these
}

// Watch listens to a changing set of channels over one connection or, on a cluster, over one for each master. A
// connection that breaks, falls silent or no longer leads to the right master is made anew. There is no connection and
// no goroutine while no channel is wanted. Safe for concurrent use.
type Watch struct {
	c       *Client
	cluster func() bool // sharded channels, one connection for each master
	on      Listener

	ctx    context.Context // of everything it sends; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	wanted  map[string]*watchConn // channel -> where it is listened to, nil for not yet
	conns   map[string]*watchConn // by address of the master, "" without a cluster
	routing bool                  // a goroutine is finding connections for channels
	fails   int                   // connections that ended one after the other
}

const (
	watchPing    = 3 * time.Second        // between two signs of life
	watchSilence = 10 * time.Second       // without one a connection is given up
	watchRetry   = 100 * time.Millisecond // before a connection is made anew, doubled each time
	watchRetryTo = 5 * time.Second
)

// NewWatch returns a Watch without channels. cluster tells whether the server is part of a cluster, and is asked whenever
// a connection is made.
func NewWatch(c *Client, cluster func() bool, on Listener) *Watch {
	w := &Watch{c: c, cluster: cluster, on: on, wanted: map[string]*watchConn{}, conns: map[string]*watchConn{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Add has the channel listened to. It does not wait for that.
func (w *Watch) Add(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.wanted[channel]; ok || w.closed {
		return
	}
	w.wanted[channel] = nil
	w.route(0)
}

// Remove ends it.
func (w *Watch) Remove(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn := w.wanted[channel]
	delete(w.wanted, channel)
	if conn != nil {
		conn.change(channel, false)
	}
}

// Listens reports whether the server has confirmed the channel on the connection there is now.
func (w *Watch) Listens(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn := w.wanted[channel]
	return conn != nil && conn.begun[channel]
}

// Close ends all connections and waits for their goroutines.
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed = true
	clear(w.wanted)
	for _, conn := range w.conns {
		conn.quit()
	}
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}

// route finds connections for the channels that have none, after a pause. It is called with w.mu held.
func (w *Watch) route(after time.Duration) {
	if w.routing || w.closed {
		return
	}
	w.routing = true
	w.wg.Go(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			w.connect()
		case <-w.ctx.Done():
		}
	})
}

func (w *Watch) connect() {
	cluster := w.cluster()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		channel, ok := w.unrouted()
		if !ok {
			break
		}
		w.mu.Unlock()
		open, addr, err := w.node(channel, cluster)
		w.mu.Lock()
		if err != nil {
			w.routing = false
			w.retry()
			return
		}
		if conn, wanted := w.wanted[channel]; wanted && conn == nil && !w.closed {
			w.listen(channel, addr, cluster, open)
		}
	}
	w.routing = false
}

func (w *Watch) unrouted() (channel string, ok bool) {
	for channel, conn := range w.wanted {
		if conn == nil {
			return channel, true
		}
	}
	return "", false
}

// node returns how to open a connection for the channel, and to which master. It may ask the server.
func (w *Watch) node(channel string, cluster bool) (open func(context.Context, ...string) *redis.PubSub, addr string, err error) {
	rdb, ok := w.c.UniversalClient.(*redis.ClusterClient)
	switch {
	case ok && cluster:
		node, err := rdb.MasterForKey(w.ctx, channel)
		if err != nil {
			return nil, "", err
		}
		return node.SSubscribe, node.Options().Addr, nil
	case cluster:
		return w.c.SSubscribe, "", nil
	}
	return w.c.Subscribe, "", nil
}

// listen has the channel listened to over the connection to addr, which is opened if need be. Called with w.mu held.
func (w *Watch) listen(channel, addr string, sharded bool, open func(context.Context, ...string) *redis.PubSub) {
	conn := w.conns[addr]
	if conn == nil {
		conn = &watchConn{w: w, addr: addr, sharded: sharded, begun: map[string]bool{}, changes: map[string]bool{}, changed: make(chan struct{}, 1), quitting: make(chan struct{})}
		w.conns[addr] = conn
		w.wg.Go(func() { conn.run(open) })
	}
	w.wanted[channel] = conn
	conn.change(channel, true)
}

// ended is called by a connection that is over. Its channels are found another one.
func (w *Watch) ended(conn *watchConn, reload bool) {
	if rdb, ok := w.c.UniversalClient.(*redis.ClusterClient); ok && reload {
		rdb.ReloadState(w.ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[conn.addr] == conn {
		delete(w.conns, conn.addr)
	}
	again := false
	for channel, c := range w.wanted {
		if c == conn {
			w.wanted[channel] = nil
			again = true
		}
	}
	if again {
		w.retry()
	}
}

// retry is called with w.mu held.
func (w *Watch) retry() {
	pause := min(watchRetry<<min(w.fails, 10), watchRetryTo)
	w.fails++
	w.route(pause)
}
