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
func (q *queue) enter(key string, r Request, wait bool) (ln *line, w *waiter, why BusyReason, h hint) {
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
	if w == nil || w.request.Token == "" || ln.streak.over(now) {
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

// holder returns the hold in front of the line of key, if there is one.
func (q *queue) holder(key string) *hold {
	sh := q.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ln := sh.lines[key]; ln != nil {
		return ln.holder
	}
	return nil
}

func (q *queue) waitingFor(key string) int {
	sh := q.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ln := sh.lines[key]; ln != nil {
		return ln.waiting
	}
	return 0
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

// fail tells everybody in the line that the backend is away, and ends the line.
func (q *queue) fail(ln *line) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	for w := ln.first; w != nil; w = ln.first {
		ln.remove(w)
		q.waiting.Add(-1)
		w.state = called
		w.turn <- turn{kind: failed}
	}
	q.end(ln)
}

func (q *queue) end(ln *line) {
	delete(ln.shard.lines, ln.key)
	if ln.watched != nil {
		ln.watched.unuse()
	}
}
