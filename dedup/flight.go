package dedup

import (
	"bytes"
	"sync"
)

// A flight is one request that this process is busy with: the one who asks the store or runs, and those who wait for
// him without a command. Its fields belong to the mutex of flights, but for the channels, and for rec and err once done
// is closed.
//
// Exactly one goroutine at a time has the baton of a flight: it may ask the store, and if the store says "run" it keeps
// the baton while it works. It ends the flight with the answer for all (land, share, keep), or passes the baton to one who waits.
type flight struct {
	id          string
	fingerprint []byte
	noTakeover  bool
	claim       *Claim // the store has said "run", so the fingerprint is that of the record
	waiters     int
	turn        chan struct{} // the baton, for one of the waiters; made with the first of them
	done        chan struct{} // closed when the flight ends; made with the first waiter
	landed      bool
	shared      bool // what landed is not stored
	rec         *Record
	err         error
}

type flights struct {
	perKey, most int

	mu      sync.Mutex
	byID    map[string]*flight
	apart   map[*flight]struct{} // with a claim, and not in byID
	waiting int
}

// A part is what a caller has in a flight.
type part uint8

const (
	leads  part = iota + 1 // it has the baton
	waits                  // it calls leave or take
	landed                 // it finds the answer there
)

// join returns the flight of a request and the caller's part in it. The error is ErrMismatch or ErrInFlight, and then
// there is no flight.
func (fs *flights) join(id string, req *Request) (f *flight, p part, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.byID[id]
	switch {
	case f == nil:
		f = newFlight(id, req)
		fs.byID[id] = f
		return f, leads, nil
	case !bytes.Equal(f.fingerprint, req.Fingerprint) || f.noTakeover != req.NoTakeover:
		if f.claim != nil && f.fingerprint != nil && req.Fingerprint != nil && !bytes.Equal(f.fingerprint, req.Fingerprint) {
			return nil, 0, &Error{Err: ErrMismatch}
		}
		return newFlight(id, req), leads, nil // only the store knows: a flight of its own, without waiters
	case f.landed:
		return f, landed, nil
	case f.waiters >= fs.perKey || fs.waiting >= fs.most:
		return nil, 0, &Error{Err: ErrInFlight, Reason: "too many wait for it"}
	}
	if f.done == nil {
		f.done, f.turn = make(chan struct{}), make(chan struct{}, 1)
	}
	f.waiters++
	fs.waiting++
	return f, waits, nil
}

func newFlight(id string, req *Request) *flight {
	return &flight{id: id, fingerprint: req.Fingerprint, noTakeover: req.NoTakeover}
}

// take is called by a waiter who has received the baton.
func (fs *flights) take(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
	fs.waiting--
}

// leave is called by a waiter who goes without the baton. It reports whether the flight has landed meanwhile.
func (fs *flights) leave(f *flight) (landed bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
	fs.waiting--
	if f.waiters == 0 && len(f.turn) > 0 { // nobody is left to take the baton up
		<-f.turn
		fs.remove(f)
	}
	return f.landed
}

// run notes that the one with the baton runs.
func (fs *flights) run(f *flight, c *Claim) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.claim = c
	if fs.byID[f.id] != f {
		fs.apart[f] = struct{}{}
	}
}

// claims returns the claims that have not ended.
func (fs *flights) claims() []*Claim {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var open []*Claim
	for _, f := range fs.byID {
		if f.claim != nil {
			open = append(open, f.claim)
		}
	}
	for f := range fs.apart {
		open = append(open, f.claim)
	}
	return open
}

// pass gives the baton to one of the waiters, or ends the flight if there is none.
func (fs *flights) pass(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.claim = nil
	if f.waiters == 0 {
		fs.remove(f)
		return
	}
	delete(fs.apart, f)
	f.turn <- struct{}{}
}

// land ends the flight with the answer for all who wait.
func (fs *flights) land(f *flight, rec *Record, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.end(f, rec, err)
	fs.remove(f)
}

// share is land with an answer that is not stored.
func (fs *flights) share(f *flight, rec *Record, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.shared = true
	fs.end(f, rec, err)
	fs.remove(f)
}

// keep ends the flight with the answer for all who wait, and for all who come until drop.
func (fs *flights) keep(f *flight, rec *Record) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.end(f, rec, nil)
}

func (fs *flights) end(f *flight, rec *Record, err error) {
	if f.landed {
		return
	}
	f.rec, f.err, f.landed = rec, err, true
	if f.done != nil {
		close(f.done)
	}
}

// drop removes a flight that was kept.
func (fs *flights) drop(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.remove(f)
}

func (fs *flights) remove(f *flight) {
	if fs.byID[f.id] == f {
		delete(fs.byID, f.id)
	} else {
		delete(fs.apart, f)
	}
}
