package lock

import "time"

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

	free time.Time // when the lease that was in the way ends, unless it is renewed
}

// A waiter stands in one line. Its fields are guarded by the mutex of the line's shard.
type waiter struct {
	turn       chan turn // of capacity 1; one is sent at most
	state      waiterState
	prev, next *waiter

	request Request // what a hand-over would give it; zero if it wants several keys
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
}

type turnKind uint8

const (
	front  turnKind = iota + 1 // it is in front of the line: ask the backend
	handed                     // it is in front of the line and has the lock
	failed                     // those in front found the backend away
)

func (s streak) over(now time.Time) bool {
	return s.n > longestStreak || now.Sub(s.since) > streakTime
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
