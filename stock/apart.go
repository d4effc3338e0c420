package stock

import (
	"context"
	"errors"
	"time"
)

// An order whose lines lie in several partitions is taken line by line, in the order of the items' ids. Its own record
// (whole_open.lua) lets one runner at a time do that: others hear ErrInFlight. When a line is refused, the lines before
// it are taken back, and the answer is that refusal. Each round has a number, the try: what an overtaken runner still
// has on the way finds the newer try's mark and does nothing.

const (
	// usualTakeOver is after how long another runner may continue an order whose runner has stopped in the middle.
	usualTakeOver = 10 * time.Second
	// cleanUp bounds what is done after the caller's context has ended.
	cleanUp = 5 * time.Second
)

// states of a request record and of a switch.
const (
	stateOpen     = "open"
	stateDone     = "done"
	stateRefused  = "refused"
	stateHeld     = "held"
	stateReleased = "released"
	statePaused   = "paused"
	stateFrozen   = "frozen"
)

// errElsewhere asks for another turn: the item was looked for in the wrong place.
var errElsewhere = errors.New("elsewhere")

// apart is one runner of an order in several partitions.
type apart struct {
	c    *Counter
	r    *request
	key  string // the whole order's record
	name string // this runner's
	try  int64
}

// takeApart takes an order whose lines lie in several partitions.
func (c *Counter) takeApart(ctx context.Context, r *request) (Result, error) {
	if c.cfg.stream && c.cfg.hold == 0 {
		return Result{}, misuse("lines in several partitions reach the stream after they were taken, and only a hold heals a crash in between: add WithHold, or a limit over the activity, which puts its items into one partition")
	}
	own := r.order // a round may go on with the order id of an earlier call
	for range 3 {
		r.order = own
		res, err := c.takeApartOnce(ctx, r)
		if !errors.Is(err, errElsewhere) {
			return res, err
		}
		if _, err := c.locate(ctx, r); err != nil {
			return Result{}, err
		}
		if r.made {
			own = withParts(own[:madeLen], r.lines)
		}
	}
	return Result{}, fail(ErrOverloaded, "the items keep moving")
}

func (c *Counter) takeApartOnce(ctx context.Context, r *request) (Result, error) {
	run := &apart{c: c, r: r, key: c.keys.request(spread(r.id, c.keys.parts), r.id), name: newOrderID()}
	a, err := c.run(ctx, c.scripts.wholeOpen, []string{run.key},
		r.what, r.order, run.name, c.cfg.recordLife().Milliseconds(), c.takeOver.Milliseconds())
	if err != nil {
		return Result{}, err
	}
	made := r.order
	switch a.code() {
	case 0, 1:
		r.order, run.try = a.text(1), a.int(2)
	default:
		return Result{}, r.refusal(a)
	}
	if a.code() == 1 {
		return run.replay(ctx, made)
	}
	res, sent, err := run.takeAll(ctx)
	if err == nil {
		return run.finish(ctx, res)
	}
	return Result{}, run.giveUp(ctx, sent, err)
}

// takeAll takes line after line, and returns how many it has tried; 0 of an order that was given back, line by line, while
// its runner had stopped in the middle: it can never be whole any more, and what else is held has its deadline.
func (run *apart) takeAll(ctx context.Context) (Result, int, error) {
	res := Result{Order: run.r.order}
	for i := range run.r.lines {
		l := &run.r.lines[i]
		a, err := run.takeLine(ctx, run.r.lines[i:i+1])
		if err != nil {
			return Result{}, i + 1, err
		}
		at := 2
		if a.code() == codeReplayed {
			at = 3
			if a.text(2) == stateReleased {
				return Result{}, 0, fail(ErrReleased, "")
			}
		}
		nth, err := a.number(at)
		if err != nil {
			return Result{}, i + 1, err
		}
		left, err := a.number(at + 1)
		if err != nil {
			return Result{}, i + 1, err
		}
		res.add(run.r, l, nth, left)
	}
	return res, len(run.r.lines), nil
}

// takeLine takes one line, or returns its refusal.
func (run *apart) takeLine(ctx context.Context, lines []line) (answer, error) {
	for range mostTurns {
		a, err := run.c.deduct(ctx, run.r, lines, run.try)
		if err != nil {
			return nil, err
		}
		again, err := run.c.another(ctx, lines, a)
		switch {
		case err != nil:
			return nil, err
		case again && a.code() != codeInsufficient:
			return nil, errElsewhere
		case again:
			continue
		case a.code() >= 0 || a.code() == codeReplayed:
			return a, nil
		}
		one := request{lines: lines}
		return nil, one.refusal(a)
	}
	return nil, fail(ErrOverloaded, "others were faster each time")
}

// finish closes the order: all lines are in.
func (run *apart) finish(ctx context.Context, res Result) (Result, error) {
	a, err := run.close(ctx, stateDone)
	if err != nil {
		return Result{}, unknown(err)
	}
	if a.code() == 0 {
		return Result{}, fail(ErrInFlight, "another instance has taken over")
	}
	return res, run.append(ctx)
}

// append puts the lines into the stream, each once. Until then nobody could land a line of an order that is refused.
func (run *apart) append(ctx context.Context) error {
	c := run.c
	if !c.cfg.stream {
		return nil
	}
	for i := range run.r.lines {
		l := &run.r.lines[i]
		_, err := c.run(ctx, c.scripts.append, []string{c.keys.hold(l.part, run.r.orderOf(l)), c.keys.stream(l.part)},
			run.r.orderOf(l), streamLife.Milliseconds())
		if err != nil {
			return unknown(err)
		}
	}
	return nil
}

// giveUp ends a run that did not take all lines and returns what Deduct answers. After a refusal the lines are taken
// back; after a fault they stay, for the same request to go on with.
func (run *apart) giveUp(ctx context.Context, sent int, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	e, typed := as(why)
	fault := typed && (errors.Is(why, ErrUnavailable) || errors.Is(why, ErrUnknownOutcome) || errors.Is(why, ErrInFlight) || e.ErrorType() == "corrupt")
	if fault || sent == 0 {
		_, err := run.close(ctx, stateOpen) // at worst the retry waits until it may take over
		if fault && (sent > 1 || run.try > 1 || err != nil) {
			return unknown(why)
		}
		return why
	}
	if run.try > 1 {
		sent = len(run.r.lines) // an earlier run may have got further
	}
	for i := range sent {
		if err := run.undo(ctx, &run.r.lines[i]); err != nil {
			_, _ = run.close(ctx, stateOpen) // the retry will undo it; without one the hold's deadline does
			return unknown(err)
		}
	}
	if _, err := run.close(ctx, stateRefused); err != nil {
		return unknown(err)
	}
	return why
}

// undo takes one line back. Its limit may count over something else than this runner thought when it was another that has
// taken the line; the script tells.
func (run *apart) undo(ctx context.Context, l *line) error {
	c := run.c
	for range 4 {
		keys := []string{c.keys.hold(l.part, run.r.orderOf(l)), c.keys.request(l.part, run.r.idOf(l)), c.keys.deadlines(l.part),
			c.keys.control(l.part, l.item)}
		var over any = ""
		layout := "" // the line lies where it was taken
		if c.keys.quota {
			layout = l.place.layout()
		} else {
			over = int(l.place.over)
			keys = append(keys, c.keys.marker(l.part, l.place.over, l))
		}
		shards := c.shards(l.place)
		keys = c.keys.appendCounter(keys, l.part, l.item, shards)
		a, err := c.run(ctx, c.scripts.undo, keys, run.r.orderOf(l), run.r.idOf(l), l.what, "", "", actField(l.activity), over, layout, run.try,
			shards, spread(l.user, shards), c.keys.channel(), l.item, c.cfg.recordLife().Milliseconds())
		if err != nil {
			return err
		}
		if a.code() != codeElsewhere {
			return nil
		}
		if err := c.redirected(a, l.item, l.activity); err != nil {
			return err
		}
		l.place = c.placeOf(l.item, l.activity)
	}
	return corrupt("switch")
}

// replay answers an order that is all in. made is the order id that this call came with.
func (run *apart) replay(ctx context.Context, made string) (Result, error) {
	res := Result{Order: run.r.order, Replayed: !run.r.made || run.r.order != made}
	released := 0
	for i := range run.r.lines {
		l := &run.r.lines[i]
		a, err := run.c.run(ctx, run.c.scripts.record, []string{run.c.keys.request(l.part, run.r.idOf(l))})
		if err != nil {
			return Result{}, err
		}
		if a.code() != 0 || a.text(1) != l.what {
			return Result{}, corrupt("request record")
		}
		if a.text(3) == stateReleased {
			released++
		}
		nth, err := a.number(4)
		if err != nil {
			return Result{}, err
		}
		left, err := a.number(5)
		if err != nil {
			return Result{}, err
		}
		res.add(run.r, l, nth, left)
	}
	if released == len(run.r.lines) {
		return Result{}, fail(ErrReleased, "")
	}
	return res, run.append(ctx)
}

func (run *apart) close(ctx context.Context, state string) (answer, error) {
	return run.c.run(ctx, run.c.scripts.wholeClose, []string{run.key}, run.name, state)
}

// recordLife is how long a request record lives.
func (c *config) recordLife() time.Duration {
	if c.hold > 0 {
		return max(c.keep, c.hold+leastKeep)
	}
	return c.keep
}

// unknown is the answer when some lines may be in: the same request will find out.
func unknown(err error) error {
	return &Error{sentinel: ErrUnknownOutcome, cause: err, reason: "repeat with the same request id"}
}
