package faultproxy

import (
	"sync"
	"testing"
	"time"
)

// waitTimeout is how long Wait and connecting to the server may take; both should
// be immediate, but the machine may be busy with other tests.
const waitTimeout = 30 * time.Second

// Rule is an Action waiting for the commands that its Match chooses. Its methods
// may be called from any goroutine, except for Wait, which may end the test.
type Rule struct {
	match  Match
	action Action

	mu       sync.Mutex
	matched  int
	fired    int
	first    chan struct{} // closed when it has fired
	released chan struct{}
	isOpen   bool // released is closed
}

func newRule(match Match, action Action) *Rule {
	return &Rule{match: match, action: action, first: make(chan struct{}), released: make(chan struct{})}
}

// takes says whether the rule applies to the command, and counts it.
func (r *Rule) takes(c Command) bool {
	if !r.match.matches(c) || (r.action.onReply() && c.answers == 0) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.matched++
	return r.match.chooses(r.matched)
}

// fire notes that the fault has happened.
func (r *Rule) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired++
	if r.fired == 1 {
		close(r.first)
	}
}

// Fired returns how often the fault has happened.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Wait returns once the fault has happened: when a request was lost or is held, or,
// for faults of the reply, when the server has executed the command and its reply was
// swallowed or is held.
func (r *Rule) Wait(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case <-r.first:
	case <-timer.C:
		t.Fatalf("faultproxy: no command met the rule within %v: name %q, containing %q", waitTimeout, r.match.name, r.match.texts)
	}
}

// Release lets what HoldRequest or HoldReply keeps go on, and everything the rule
// would hold later. It may be called twice.
func (r *Rule) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOpen {
		r.isOpen = true
		close(r.released)
	}
}
