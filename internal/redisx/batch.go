package redisx

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxInFlight = 4               // sends at once as long as each has one call; beyond, calls gather into a batch
	maxBatches  = 2               // sends at once if one is a batch: there is a crowd then, and fewer batches are larger
	maxBatch    = 64              // calls in one batch
	maxBytes    = 128 << 10       // argument bytes in one batch, beyond its first call
	stalled     = 1 * time.Second // a send without a reply for so long stops counting as in flight; who has queued so long sends alone
)

// batcher sends the calls of many goroutines over one server with few round trips. The zero value is ready.
//
// There is no goroutine of its own: each send runs on the goroutine of one of its callers, the leader. When a send
// returns, the first caller in the queue becomes the next leader and takes along what has gathered behind it.
type batcher struct {
	mu       sync.Mutex
	slots    [maxInFlight]slot
	inFlight int // slots taken
	batches  int // and how many of them by sends of several calls
	queue    callQueue
	calls    sync.Pool   // of *call that are over, for the next ones
	watchdog *time.Timer // calls reclaim; made when it is first needed
	watching bool        // the watchdog is set
}

// slot is the right to be in flight.
type slot struct {
	since time.Time // when its send began; zero: it is free
	batch bool      // of several calls
	sends uint64    // how many it was taken from, by which one tells that it had stalled and lost its slot
}

// flight is one send in its slot.
type flight struct {
	slot int
	send uint64
}

// call is a caller in the queue, or in a batch that was made of it.
type call struct {
	node  sender
	cmd   command
	bytes int
	turn  chan turn
	since time.Time // when it came into the queue
	mine  flight    // of the leader

	queued     bool // guarded, with the links, by batcher.mu; in a batch the links are the leader's
	prev, next *call
}

// turn is what a caller in the queue waits for.
type turn uint8

const (
	served turn = iota // the reply is in cmd
	lead               // send the batch that begins with this call
	alone              // send this call, beside those in flight
)

// do sends cmd to node and returns its reply. A caller in the queue leaves when ctx ends; one on the wire waits for
// the reply or the client's read time-out.
func (b *batcher) do(ctx context.Context, node sender, cmd command) (any, error) {
	b.mu.Lock()
	if b.room() { // then nobody is in the queue
		f := b.takeoff(false)
		b.mu.Unlock()
		b.sendAlone(ctx, node, cmd, f)
		return cmd.Val(), cmd.Err()
	}
	c := b.newCall(node, cmd)
	b.queue.push(c)
	b.watch()
	b.mu.Unlock()

	select {
	case t := <-c.turn:
		b.serve(ctx, c, t)
	case <-ctx.Done():
		if b.leave(c) {
			b.calls.Put(c)
			return nil, &Error{Unavailable, context.Cause(ctx)}
		}
		b.serve(ctx, c, <-c.turn) // taken: on the wire, or about to be
	}
	b.calls.Put(c) // not after a panic: others may still be at the batch
	return cmd.Val(), cmd.Err()
}

func (b *batcher) newCall(node sender, cmd command) *call {
	c, ok := b.calls.Get().(*call)
	if !ok {
		c = &call{turn: make(chan turn, 1)}
	}
	*c = call{node: node, cmd: cmd, bytes: size(cmd.Args()), turn: c.turn, since: time.Now()}
	return c
}

func (b *batcher) sendAlone(ctx context.Context, node sender, cmd command, f flight) {
	defer b.land(f)            // also when a hook of the client panics
	_ = node.Process(ctx, cmd) // the error is in cmd
}

func (b *batcher) serve(ctx context.Context, c *call, t turn) {
	switch t {
	case lead:
		b.sendBatch(ctx, c)
	case alone:
		_ = c.node.Process(ctx, c.cmd) // the error is in cmd
	}
}

// errPanicked is the error of a batch in which a hook of the client panicked: the leader has the panic.
var errPanicked = errors.New("the client panicked while the batch was sent")

// sendBatch sends the batch that begins with lead.
func (b *batcher) sendBatch(ctx context.Context, lead *call) {
	err := errPanicked
	defer func() {
		b.land(lead.mine) // first: the next leader need not wait until all of these have been told
		fillIn(lead, err)
		for c := lead.next; c != nil; {
			next := c.next // c is its caller's again as soon as that has its turn
			c.turn <- served
			c = next
		}
	}()
	// The batch carries other callers' commands: this caller's context must not end them.
	ctx = context.WithoutCancel(ctx)
	if lead.next == nil {
		err = lead.node.Process(ctx, lead.cmd)
		return
	}
	pipe := lead.node.Pipeline()
	for c := lead; c != nil; c = c.next {
		_ = pipe.Process(ctx, c.cmd) // only queues
	}
	_, err = pipe.Exec(ctx)
}

// fillIn gives the batch's error to calls that have neither reply nor error: a pipeline that found no connection.
func fillIn(lead *call, err error) {
	if err == nil {
		return
	}
	for c := lead; c != nil; c = c.next {
		if c.cmd.Err() == nil && c.cmd.Val() == nil {
			c.cmd.SetErr(err)
		}
	}
}

// room reports whether one more send may go. Called with b.mu held, as is all below that does not lock it.
func (b *batcher) room() bool {
	if b.batches > 0 {
		return b.inFlight < maxBatches
	}
	return b.inFlight < maxInFlight
}

// takeoff takes a free slot, of which there must be one.
func (b *batcher) takeoff(batch bool) flight {
	b.inFlight++
	if batch {
		b.batches++
	}
	i := 0
	for !b.slots[i].since.IsZero() {
		i++
	}
	s := &b.slots[i]
	s.since = time.Now()
	s.batch = batch
	return flight{i, s.sends}
}

// land ends a send, unless it had stalled and lost its slot.
func (b *batcher) land(f flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots[f.slot].sends == f.send {
		b.free(f.slot)
		b.next()
	}
}

func (b *batcher) free(slot int) {
	s := &b.slots[slot]
	if s.batch {
		b.batches--
	}
	b.inFlight--
	s.since = time.Time{}
	s.sends++
}

// next has the first callers in the queue lead what has gathered behind them, as far as there is room for batches.
func (b *batcher) next() {
	for b.room() {
		first := b.queue.cut()
		if first == nil {
			return
		}
		first.mine = b.takeoff(first.next != nil)
		first.turn <- lead
	}
}

// watch has stalled sends found while somebody is in the queue. One timer does for all of them: one for each send would
// cost more than all else here.
func (b *batcher) watch() {
	if b.watching {
		return
	}
	b.watching = true
	var oldest time.Time
	for _, s := range b.slots {
		if oldest.IsZero() || !s.since.IsZero() && s.since.Before(oldest) {
			oldest = s.since
		}
	}
	if b.queue.first.since.Before(oldest) {
		oldest = b.queue.first.since
	}
	wait := time.Until(oldest.Add(stalled))
	if b.watchdog == nil {
		b.watchdog = time.AfterFunc(wait, b.reclaim)
	} else {
		b.watchdog.Reset(wait)
	}
}

// reclaim gives the slots of stalled sends to those who wait. Who has waited as long as that, behind ever more sends that
// hang, waits no longer.
func (b *batcher) reclaim() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watching = false
	now := time.Now()
	for i, s := range b.slots {
		if !s.since.IsZero() && now.Sub(s.since) >= stalled {
			b.free(i)
		}
	}
	b.next()
	for c := b.queue.first; c != nil && now.Sub(c.since) >= stalled; c = b.queue.first {
		b.queue.remove(c)
		c.turn <- alone
	}
	if b.queue.first != nil {
		b.watch()
	}
}

// leave takes c out of the queue, or reports that it is no longer there.
func (b *batcher) leave(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.queued {
		return false
	}
	b.queue.remove(c)
	return true
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
