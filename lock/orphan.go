package lock

import (
	"context"
	"time"
)

// secondLook is when an orphan is looked for once more: bytes in the server's socket buffer may be executed after the
// first delete.
const secondLook = time.Second

// An orphan is something in the backend that nobody holds, or nobody knows whether it is there. It is deleted in the
// background, by its token, until that is certain or its TTL has ended it.
type orphan struct {
	l     *Locker
	held  Held
	until time.Time // when it has ended by itself
	looks int       // how often an answer is still wanted
	fails int
}

// cleanUp deletes what an acquire without an answer may have left, now and again a second later.
func (l *Locker) cleanUp(held Held) {
	o := &orphan{l: l, held: held, until: time.Now().Add(held.TTL + secondLook), looks: 2}
	l.background.start(o.run)
}

// cleanUpLater looks once for what an early send without an answer may still do after the keys were freed.
func (l *Locker) cleanUpLater(held Held) {
	o := &orphan{l: l, held: held, until: time.Now().Add(held.TTL + secondLook), looks: 1}
	o.again(secondLook)
}

// releaseLater repeats a release that had no answer, until the lease has ended anyway.
func (l *Locker) releaseLater(held Held, deadline time.Time) {
	o := &orphan{l: l, held: held, until: deadline, looks: 1}
	o.again(l.pauseAfter(1))
}

func (o *orphan) run() {
	ctx, cancel := context.WithTimeout(o.l.base, releaseTimeout)
	defer cancel()
	o.held.Orphan, o.held.Repeat = true, true
	if _, err := o.l.backend.Release(ctx, o.held); err != nil {
		o.fails++
		o.again(o.l.pauseAfter(o.fails))
		return
	}
	if o.looks--; o.looks > 0 {
		o.again(secondLook)
	}
}

// again has the orphan looked at after d.
func (o *orphan) again(d time.Duration) {
	at := time.Now().Add(d)
	if at.After(o.until) {
		return
	}
	o.l.renewals.Add(at, func(time.Time) time.Time {
		o.l.background.start(o.run)
		return time.Time{}
	})
}
