package stock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A segmented item has a counter in several partitions. A user's orders always go to the same one, so when that is empty
// units move there from the fullest. "Sold out" is said only when no segment had any and none were on the way, at one
// instant: the segments are read twice, and nothing may have come in between.

const (
	// hanging is how long a transfer is left to whoever began it before a deduct that waits for its units finishes it.
	hanging = 100 * time.Millisecond
	// mostRounds bounds the rounds of one refill.
	mostRounds = 64
)

// refills lets one caller at a time fill up a segment; the others wait for what it finds out.
type refills struct {
	mu sync.Mutex
	m  map[string]*filling
}

type filling struct {
	done  chan struct{}
	more  bool      // units came
	total int64     // else: all that there was,
	at    time.Time // and when that was so
}

// refill brings units to the line's segment and reports true when another turn is worth it. False means that at one
// instant during this call all segments together had fewer than need.
func (c *Counter) refill(ctx context.Context, l *line, need int64) (bool, error) {
	began := time.Now()
	key := c.keys.item(l.part, l.item)
	c.refills.mu.Lock()
	if f := c.refills.m[key]; f != nil {
		c.refills.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return false, &Error{sentinel: ErrUnavailable, cause: context.Cause(ctx)}
		}
		return f.more || f.at.Before(began) || f.total >= need, nil
	}
	f := &filling{done: make(chan struct{}), more: true} // unless it finds out otherwise, the others try again
	if c.refills.m == nil {
		c.refills.m = map[string]*filling{}
	}
	c.refills.m[key] = f
	c.refills.mu.Unlock()

	defer func() {
		c.refills.mu.Lock()
		delete(c.refills.m, key)
		c.refills.mu.Unlock()
		close(f.done)
	}()
	more, total, at, err := c.fill(ctx, l, need)
	if err != nil {
		return false, err
	}
	f.more, f.total, f.at = more, total, at
	return more, nil
}

// fill does the work of refill. Without more it returns what all segments had together, and when.
func (c *Counter) fill(ctx context.Context, l *line, need int64) (more bool, total int64, at time.Time, err error) {
	before, err := c.lookAtAll(ctx, l)
	if err != nil {
		return false, 0, at, err
	}
	for round := range mostRounds {
		at = time.Now()
		total = before.total()
		switch {
		case before.left(l.part) >= need:
			return true, 0, at, nil
		case total >= need:
			moved, err := c.fillFrom(ctx, l, before, need)
			if err != nil || moved {
				return moved, 0, at, err
			}
		case before.moving():
			if err := c.finishHanging(ctx, l, before); err != nil {
				return false, 0, at, err
			}
			if err := pause(ctx, round); err != nil {
				return false, 0, at, err
			}
		}
		after, err := c.lookAtAll(ctx, l)
		if err != nil {
			return false, 0, at, err
		}
		if total < need && !before.moving() && !after.moving() && before.sameReturns(after) {
			return false, total, at, nil
		}
		before = after
	}
	return false, 0, at, fail(ErrOverloaded, "units keep moving between segments")
}

// fillFrom moves units from the fullest segments until the line's own has enough. It reports whether any came.
func (c *Counter) fillFrom(ctx context.Context, l *line, views segmentViews, need int64) (bool, error) {
	missing := need - views.left(l.part)
	moved := false
	for missing > 0 {
		from, left := views.fullest(l.part)
		if left <= 0 {
			break
		}
		got, err := c.move(ctx, l.item, from, l.part, max(missing, left/2))
		if err != nil {
			return moved, err
		}
		views.at(from).left = 0 // look elsewhere if it was not enough
		missing -= got
		moved = moved || got > 0
	}
	return moved, nil
}

// finishHanging completes transfers whose maker seems to have stopped.
func (c *Counter) finishHanging(ctx context.Context, l *line, views segmentViews) error {
	for i := range views {
		if views[i].moving > 0 {
			if err := c.finishTransfers(ctx, views[i].part, hanging); err != nil {
				return err
			}
		}
	}
	return nil
}

type segmentView struct {
	view
	part int
}

type segmentViews []segmentView

func (c *Counter) lookAtAll(ctx context.Context, l *line) (segmentViews, error) {
	views := make(segmentViews, l.place.segments)
	errs := make([]error, len(views))
	var wg sync.WaitGroup
	for i := range views {
		wg.Go(func() {
			views[i].part = c.segment(l.place, i)
			views[i].view, errs[i] = c.look(ctx, views[i].part, l.item, 1)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range views {
		if !views[i].open || views[i].left < 0 {
			return nil, fail(ErrNotWarmed, "a segment is missing")
		}
	}
	return views, nil
}

func (s segmentViews) at(part int) *segmentView {
	for i := range s {
		if s[i].part == part {
			return &s[i]
		}
	}
	return &segmentView{}
}

func (s segmentViews) left(part int) int64 { return s.at(part).view.left }

func (s segmentViews) total() (total int64) {
	for i := range s {
		total += s[i].view.left
	}
	return total
}

func (s segmentViews) moving() bool {
	for i := range s {
		if s[i].view.moving > 0 {
			return true
		}
	}
	return false
}

func (s segmentViews) sameReturns(other segmentViews) bool {
	for i := range s {
		if s[i].returns != other[i].returns {
			return false
		}
	}
	return true
}

// fullest returns the segment with most units, the given one left out.
func (s segmentViews) fullest(but int) (part int, left int64) {
	for i := range s {
		if s[i].part != but && s[i].view.left > left {
			part, left = s[i].part, s[i].view.left
		}
	}
	return part, left
}

// pause waits a moment, longer in later rounds, up to about 10 ms.
func pause(ctx context.Context, round int) error {
	base := min(time.Millisecond<<min(round, 3), 8*time.Millisecond)
	timer := time.NewTimer(base + rand.N(base/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &Error{sentinel: ErrUnavailable, cause: context.Cause(ctx)}
	}
}
