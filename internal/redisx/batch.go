package redisx

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxInFlight = 4               // sends at once; beyond, calls gather into a batch
	maxBatch    = 64              // calls in one batch
	maxBytes    = 128 << 10       // argument bytes in one batch, beyond its first call
	stalled     = 1 * time.Second // a send without a reply for so long stops counting as in flight
)

// batcher sends the calls of many goroutines over one server with few round trips. The zero value is ready.
//
// There is no goroutine of its own: each send runs on the goroutine of one of its callers, the leader. When a send
// returns, the first caller in the queue becomes the next leader and takes along what has gathered behind it.
type batcher struct {
	mu       sync.Mutex
	inFlight int
	queue    []*call
}

type call struct {
	node   sender
	cmd    command
	bytes  int
	turn   chan bool // true: lead a batch, its cmds are in batch; false: the reply is in cmd
	batch  []*call
	queued bool // still in the queue, guarded by batcher.mu
}

// do sends cmd to node and returns its reply. A caller in the queue leaves when ctx ends; one on the wire waits for
// the reply or the client's read time-out.
func (b *batcher) do(ctx context.Context, node sender, cmd command) (any, error) {
	b.mu.Lock()
	if b.inFlight < maxInFlight {
		b.inFlight++
		b.mu.Unlock()
		b.send(func() { _ = node.Process(ctx, cmd) }) // the error is in cmd
		return cmd.Val(), cmd.Err()
	}
	c := &call{node: node, cmd: cmd, bytes: size(cmd.Args()), turn: make(chan bool, 1), queued: true}
	b.queue = append(b.queue, c)
	b.mu.Unlock()

	select {
	case lead := <-c.turn:
		return b.serve(ctx, c, lead)
	case <-ctx.Done():
		if b.leave(c) {
			return nil, &Error{Unavailable, context.Cause(ctx)}
		}
		return b.serve(ctx, c, <-c.turn) // taken: on the wire, or about to be
	}
}

func (b *batcher) serve(ctx context.Context, c *call, lead bool) (any, error) {
	if lead {
		defer func() { // also when a hook of the client panics: the others then find no reply
			for _, other := range c.batch[1:] {
				other.turn <- false
			}
		}()
		// The batch carries other callers' commands: this caller's context must not end them.
		b.send(func() { sendBatch(context.WithoutCancel(ctx), c) })
	}
	return c.cmd.Val(), c.cmd.Err()
}

// send runs fn as one send in flight and passes the turn on when it returns, or when it has stalled.
func (b *batcher) send(fn func()) {
	var once sync.Once
	timer := time.AfterFunc(stalled, func() { once.Do(b.pass) })
	defer once.Do(b.pass)
	defer timer.Stop()
	fn()
}

// pass ends one send: the first caller in the queue leads the next.
func (b *batcher) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.inFlight--
		return
	}
	lead := b.queue[0]
	n, bytes := 1, 0
	for n < len(b.queue) && n < maxBatch && bytes+b.queue[n].bytes <= maxBytes && b.queue[n].node == lead.node {
		bytes += b.queue[n].bytes
		n++
	}
	lead.batch = slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	for _, c := range lead.batch {
		c.queued = false
	}
	lead.turn <- true
}

// leave takes c out of the queue, or reports that it is no longer there.
func (b *batcher) leave(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.queued {
		return false
	}
	i := slices.Index(b.queue, c)
	b.queue = slices.Delete(b.queue, i, i+1)
	c.queued = false
	return true
}

func sendBatch(ctx context.Context, lead *call) {
	if len(lead.batch) == 1 {
		_ = lead.node.Process(ctx, lead.cmd) // the error is in cmd
		return
	}
	pipe := lead.node.Pipeline()
	for _, c := range lead.batch {
		_ = pipe.Process(ctx, c.cmd) // only queues
	}
	if _, err := pipe.Exec(ctx); err != nil {
		fillIn(lead.batch, err)
	}
}

// fillIn gives the batch's error to calls that have neither reply nor error: a pipeline that found no connection.
func fillIn(batch []*call, err error) {
	for _, c := range batch {
		if c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}

func size(args []any) int {
	n := 0
	for _, a := range args {
		switch a := a.(type) {
		case string:
			n += len(a)
		case []byte:
			n += len(a)
		default:
			n += 8
		}
	}
	return n
}

var _ redis.Cmder = command{}
