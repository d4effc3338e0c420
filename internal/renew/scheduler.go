package renew

import (
	"container/heap"
	"sync"
	"time"
)

// A Scheduler calls tasks at their time. The zero value is ready; it has a goroutine from the first one to Close. Safe for
// concurrent use, also from within the tasks it calls.
type Scheduler struct {
	mu      sync.Mutex
	entries byTime
	timer   *time.Timer
	armed   time.Time // when the timer fires; zero: it is not running
	quit    chan struct{}
	done    chan struct{}
	closed  bool
}

// A Task is what is called at its time, on the scheduler's goroutine. Due returns when it wants to be called next; the
// zero time means never again. It may be called before its time, after a Reset, so it looks at now; and it must not
// block.
type Task interface {
	Due(now time.Time) (next time.Time)
}

// Func is a Task that is a function.
type Func func(now time.Time) (next time.Time)

// Due implements Task.
func (f Func) Due(now time.Time) (next time.Time) { return f(now) }

// An Entry is a task with the time of its next call. It is part of one Scheduler at most, and for one Start.
type Entry struct {
	task    Task
	at      time.Time
	index   int // in the heap, or one of the two below
	removed bool
}

const (
	idle    = -1 // in no heap: never again, unless Reset
	running = -2 // its task is being called
)

// Add has fn called at the given time. After Close nothing is called any more, and Add only returns an entry.
//
// A function that uses its own entry shares it with the caller of Add, and needs a mutex for that.
func (s *Scheduler) Add(at time.Time, fn Func) *Entry {
	e := &Entry{}
	s.Start(e, at, fn)
	return e
}

// Start is Add for a task that has its entry within itself: it costs no allocation. The entry must be new.
func (s *Scheduler) Start(e *Entry, at time.Time, t Task) {
	e.task, e.index = t, idle
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(time.Until(at))
		s.armed = at
		s.quit, s.done = make(chan struct{}), make(chan struct{})
		go s.run(s.timer, s.quit, s.done)
	}
	s.push(e, at)
}

// Reset changes the time of the next call. When e's task is running at that moment, the earlier of at and of what it
// returns counts. Reset of a removed entry does nothing.
func (s *Scheduler) Reset(e *Entry, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.removed || s.closed:
	case e.index == running:
		e.at = earlier(e.at, at)
	case e.index == idle:
		s.push(e, at)
	default:
		e.at = at
		heap.Fix(&s.entries, e.index)
		s.arm(at)
	}
}

// Remove has e's task not called again. It does not wait for a call that is running. It may be called twice.
func (s *Scheduler) Remove(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.removed = true
	if e.index >= 0 {
		heap.Remove(&s.entries, e.index)
	}
}

// Len returns how many entries are waiting for their time.
func (s *Scheduler) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Close drops all entries and waits for the goroutine to end. It must not be called from within a task. It may be
// called twice.
func (s *Scheduler) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for _, e := range s.entries {
		e.index = idle
	}
	s.entries = nil
	quit, done := s.quit, s.done
	s.mu.Unlock()
	if quit == nil {
		return
	}
	if first {
		close(quit)
	}
	<-done
}

func (s *Scheduler) run(timer *time.Timer, quit, done chan struct{}) {
	defer close(done)
	defer timer.Stop()
	for {
		select {
		case <-quit:
			return
		case <-timer.C:
			s.due()
		}
	}
}

// due calls the tasks whose time has come and sets the timer for the rest.
func (s *Scheduler) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = time.Time{}
	// One instant for the whole round: a task that wants to be called at once waits for the next round, so that it
	// cannot keep the others from theirs.
	now := time.Now()
	for len(s.entries) > 0 && !s.entries[0].at.After(now) {
		s.call(s.entries[0], now)
	}
	if len(s.entries) > 0 {
		s.arm(s.entries[0].at)
	}
}

// call runs e's task without the mutex, so that it may use the scheduler.
func (s *Scheduler) call(e *Entry, now time.Time) {
	heap.Pop(&s.entries)
	e.index, e.at = running, time.Time{}
	s.mu.Unlock()
	next := e.task.Due(now)
	s.mu.Lock()
	e.index = idle
	if next = earlier(e.at, next); next.IsZero() || e.removed || s.closed {
		return
	}
	if !next.After(now) {
		next = now.Add(1)
	}
	s.push(e, next)
}

func (s *Scheduler) push(e *Entry, at time.Time) {
	e.at = at
	heap.Push(&s.entries, e)
	s.arm(at)
}

// arm has the timer fire at the given time at the latest. It is never set back: a timer that fires for nothing is
// cheaper than one that is set for every entry.
func (s *Scheduler) arm(at time.Time) {
	if s.armed.IsZero() || at.Before(s.armed) {
		s.armed = at
		s.timer.Reset(time.Until(at))
	}
}

// earlier returns the earlier of two times, of which a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
