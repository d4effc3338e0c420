package lock

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxWaiting    = 1000  // for one key
	maxWaitingAll = 16384 // in one Locker
	queueShards   = 32    // so that different keys rarely meet on one mutex
)

// A queue is the line of each key within this process, first come first served. Whoever is in front of a line holds the
// key, or is the only one who asks the backend for it. A line is there only while somebody is in front.
type queue struct {
	seed    maphash.Seed
	waiting atomic.Int64
	shards  [queueShards]queueShard
}

type queueShard struct {
	mu    sync.Mutex
	lines map[string]*line
}

// A line is guarded by the mutex of its shard.
type line struct {
	key         string
	shard       *queueShard
	first, last *waiter // the waiters behind the front
	waiting     int

	holder *hold // of the lease in front; nil while its owner still asks for it

	streak  streak        // how long this process has kept the key to itself
	held    time.Duration // moving average of how long the key is held; 0: not known
	watched *watched      // wake-ups, from the first time the key was taken
}

// A streak counts the leases that follow each other in one process, while another process may wait too.
type streak struct {
	n     int
	since time.Time
}

// retry is a place in the back-off table.
type retry struct {
	n   int       // attempts that moved the back-off
	due time.Time // when the wait after the n-th is over
}

// A waiter stands in one line. Its fields are guarded by the mutex of the line's shard.
type waiter struct {
	turn       chan turn // of capacity 1; one is sent at most
	state      waiterState
	prev, next *waiter

	request *Request // what a hand-over would give it; nil if it wants several keys
}

type waiterState uint8

const (
	standing waiterState = iota // in the line
	offered                     // out of the line: a hand-over to it is on its way
	called                      // out of the line: its turn was sent
	left                        // it gave up while it was offered
)

// A turn is what a waiter waits for.
type turn struct {
	kind    turnKind
	grant   Grant     // handed: the lock was passed on
	since   time.Time // handed: before that was sent
	doubt   bool      // front: a hand-over to the waiter's token had no answer, so the token may have the key
	standby time.Time // front: not to ask before, so that another process gets in
	retry   retry     // front: where the one before got to in the back-off table
	err     error     // failed
}

type turnKind uint8

const (
	front  turnKind = iota + 1 // it is in front of the line: ask the backend
	handed                     // it is in front of the line and has the lock
	failed                     // those in front found the backend away
)

func newQueue() *queue {
	q := &queue{seed: maphash.MakeSeed()}
	for i := range q.shards {
		q.shards[i].lines = map[string]*line{}
	}
	return q
}

func (q *queue) shard(key string) *queueShard {
	return &q.shards[maphash.String(q.seed, key)%queueShards]
}

// enter steps into the line of key. If nobody is in front, ln is the line with the caller in front and w is nil;
// otherwise w waits in it. With wait false, or with too many waiting, both stay out: the reason says why, and hint when
// to come back.
func (q *queue) enter(key string, r *Request, wait bool) (ln *line, w *waiter, why BusyReason, h hint) {
	sh := q.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ln = sh.lines[key]
	if ln == nil {
		ln = &line{key: key, shard: sh}
		sh.lines[key] = ln
		return ln, nil, "", h
	}
	switch {
	case !wait:
		return nil, nil, NoWait, ln.hint()
	case ln.waiting >= maxWaiting || q.waiting.Load() >= maxWaitingAll:
		return nil, nil, QueueFull, ln.hint()
	}
	w = &waiter{turn: make(chan turn, 1), request: r}
	ln.append(w)
	q.waiting.Add(1)
	return ln, w, "", h
}

// leave takes a waiter out of the line. If it is too late for that, its turn is in w.turn.
func (q *queue) leave(ln *line, w *waiter) (gone bool, h hint) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	switch w.state {
	case standing:
		ln.remove(w)
		q.waiting.Add(-1)
	case offered:
		w.state = left // whoever offers it the lock will see
	case called:
		return false, h
	}
	return true, ln.hint()
}

// occupy notes that the one in front has the lock.
func (q *queue) occupy(ln *line, h *hold, now time.Time) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	ln.holder = h
	if ln.streak.n == 0 {
		ln.streak.since = now
	}
	ln.streak.n++
}

// vacate gives the place of h in front to the next waiter.
func (q *queue) vacate(ln *line, h *hold, t turn) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if ln.holder == h {
		ln.note(time.Since(h.started))
		q.callLocked(ln, t)
	}
}

// offer takes the first waiter out of the line to hand it the lock, or returns nil: nobody waits, the first one wants
// several keys, or this process has kept the key to itself for long enough.
func (q *queue) offer(ln *line, now time.Time) *waiter {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	w := ln.first
	if w == nil || w.request == nil || ln.streak.over(now) {
		return nil
	}
	ln.remove(w)
	q.waiting.Add(-1)
	w.state = offered
	return w
}

// hand gives the place of h in front to a waiter that was taken out by offer. It returns false if that one has left.
func (q *queue) hand(ln *line, w *waiter, h *hold, t turn) bool {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if w.state == left {
		return false
	}
	ln.note(time.Since(h.started))
	ln.holder = nil
	w.state = called
	w.turn <- t
	return true
}

// endStreak begins the count anew where it is over, and reports whether it was in one of the lines.
func (q *queue) endStreak(lines []*line, now time.Time) (over bool) {
	for _, ln := range lines {
		ln.shard.mu.Lock()
		if ln.streak.over(now) {
			ln.streak = streak{}
			over = over || ln.first != nil
		}
		ln.shard.mu.Unlock()
	}
	return over
}

func (s streak) over(now time.Time) bool {
	return s.n > longestStreak || now.Sub(s.since) > streakTime
}

// holds returns all holds in front of a line; one of several keys may be there more than once.
func (q *queue) holds() []*hold {
	var all []*hold
	for i := range q.shards {
		sh := &q.shards[i]
		sh.mu.Lock()
		for _, ln := range sh.lines {
			if ln.holder != nil {
				all = append(all, ln.holder)
			}
		}
		sh.mu.Unlock()
	}
	return all
}

// call gives the front of the line to the next waiter, or ends the line if there is none.
func (q *queue) call(ln *line, t turn) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	q.callLocked(ln, t)
}

func (q *queue) callLocked(ln *line, t turn) {
	ln.holder = nil
	w := ln.first
	if w == nil {
		q.end(ln)
		return
	}
	ln.remove(w)
	q.waiting.Add(-1)
	w.state = called
	w.turn <- t
}

// fail gives everybody in the line the same answer and ends the line.
func (q *queue) fail(ln *line, err error) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	for w := ln.first; w != nil; w = ln.first {
		ln.remove(w)
		q.waiting.Add(-1)
		w.state = called
		w.turn <- turn{kind: failed, err: err}
	}
	q.end(ln)
}

func (q *queue) end(ln *line) {
	delete(ln.shard.lines, ln.key)
	if ln.watched != nil {
		ln.watched.unuse()
	}
}

// A hint is what is known in this process of when somebody new would get the lock.
type hint struct {
	after  time.Duration
	holder *hold // if after is not known
}

func (ln *line) hint() hint {
	if ln.held > 0 {
		return hint{after: time.Duration(ln.waiting+1) * ln.held}
	}
	return hint{holder: ln.holder}
}

// wait returns the estimate, 0 where nothing is known. Not to be called with the mutex of a line.
func (h hint) wait() time.Duration {
	if h.holder != nil {
		return time.Until(h.holder.deadline())
	}
	return h.after
}

// note adds one hold to the moving average.
func (ln *line) note(held time.Duration) {
	if ln.held == 0 {
		ln.held = held
		return
	}
	ln.held += (held - ln.held) / 8
}

func (ln *line) append(w *waiter) {
	w.prev = ln.last
	if ln.last != nil {
		ln.last.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	ln.waiting++
}

func (ln *line) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.last = w.prev
	}
	w.prev, w.next = nil, nil
	ln.waiting--
}
