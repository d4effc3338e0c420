package stock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// codes of the scripts. Each script says which of them it returns.
const (
	codeNotWarmed    = -1
	codeInsufficient = -2
	codeLimit        = -3
	codeReplayed     = -4
	codeMismatch     = -5
	codeInFlight     = -6
	codePaused       = -7
	codeNotStarted   = -8
	codeEnded        = -9
	codeOverloaded   = -11
	codeElsewhere    = -20
)

// mostTurns bounds how often a deduct is sent because the item lies elsewhere, or because its user's segment was filled
// up and others were faster.
const mostTurns = 64

// Deduct takes the order's units, all or nothing, in one script and one round trip. It decides everything there: the
// request id, the sale's switch and times, the stock and the user's limit. It needs no lock.
//
// A nil error means that the units are the user's, now or since an earlier try with the same request id
// ([Result.Replayed]). Every refusal leaves everything as it was and is not remembered: the same request id is judged
// afresh next time.
//
// Its errors: ErrNotWarmed, ErrInsufficient, ErrLimitReached, ErrReleased, ErrMismatch, ErrInFlight, ErrPaused,
// ErrNotStarted, ErrEnded, ErrOverloaded, ErrInvalid, ErrUnavailable and, when the reply was lost three times or ctx ended
// while it was under way, ErrUnknownOutcome. It may be called again with the same request id after any of them. It waits
// for Redis only, within ctx and the client's time-outs.
//
// More round trips are made the first time that an instance meets an item with segments or with a limit over something
// else than item and activity; when a user's segment is empty; and for lines in several partitions.
func (c *Counter) Deduct(ctx context.Context, o Order) (Result, error) {
	began := time.Now()
	ctx, span := c.tel.tracer.Start(ctx, telemetry.SpanStockDeduct)
	t := told{what: "deduct", outcome: outcomeDeducted, request: o.RequestID}
	r, err := c.check(ctx, &o)
	var res Result
	if err == nil {
		if c.cfg.hold > 0 || c.cfg.stream {
			r.trace = telemetry.TraceParent(ctx)
		}
		t.item, t.units = r.lines[0].item, r.units()
		if c.soldOut.refuses(ctx, r) {
			err = fail(ErrInsufficient, "sold out a moment ago")
		} else {
			res, err = c.take(ctx, r)
		}
		t.turns = r.turns
	}
	switch {
	case err != nil:
		t.err, t.outcome = err, outcomeOf(err)
	case res.Replayed:
		t.outcome = outcomeReplayed
	}
	c.tel.deducted(ctx, span, began, &t)
	return res, err
}

func (c *Counter) take(ctx context.Context, r *request) (Result, error) {
	random := ""
	if r.order == "" {
		r.made, random = true, newOrderID()
		r.order = random
	}
	returns := c.soldOut.seen()
	for r.turns < mostTurns {
		r.turns++
		together, err := c.locate(ctx, r)
		if err != nil {
			return Result{}, err
		}
		if random != "" && c.keys.parts > 0 {
			r.order = withParts(random, r.lines)
		}
		if !together {
			return c.takeApart(ctx, r)
		}
		a, err := c.deduct(ctx, r, r.lines, 0)
		if err != nil {
			return Result{}, err
		}
		again, err := c.another(ctx, r.lines, a)
		if err != nil {
			return Result{}, err
		}
		if !again {
			if a.code() == codeInsufficient {
				c.soldOut.learn(r, &r.lines[a.int(1)-1], a.int(2), returns)
			}
			return r.result(a)
		}
	}
	return Result{}, fail(ErrOverloaded, "others were faster each time")
}

// locate finds the partition of each line and reports whether they are all in one.
func (c *Counter) locate(ctx context.Context, r *request) (together bool, err error) {
	together = true
	for i := range r.lines {
		l := &r.lines[i]
		if len(r.lines) > 1 && c.keys.parts > 0 {
			// A guess would decide, wrongly perhaps, how the order is taken, and a retry might do it the other way.
			if l.place, err = c.find(ctx, l.item, l.activity); err != nil {
				return false, err
			}
		} else {
			l.place = c.placeOf(l.item, l.activity)
		}
		l.part = c.partOf(l.place, l.user)
		together = together && l.part == r.lines[0].part
	}
	return together, nil
}

// another reports whether the same lines are worth another turn after the answer: the item was looked for in the wrong
// place, or its user's segment has been filled up.
func (c *Counter) another(ctx context.Context, lines []line, a answer) (bool, error) {
	n := int(a.int(1)) - 1
	switch a.code() {
	case codeElsewhere, codeNotWarmed, codeInsufficient:
		if n < 0 || n >= len(lines) {
			return false, corrupt("answer of a script")
		}
	}
	switch a.code() {
	case codeElsewhere:
		lines[n].told = true
		return true, c.redirected(a, lines[n].item, lines[n].activity)
	case codeNotWarmed:
		l := &lines[n]
		if l.told { // so it is not a place that was remembered from an earlier sale, but a segment that is lost
			return false, nil
		}
		l.told = true
		return l.place.layout() != c.usual(l.item).layout() && c.places.forget(l.item, l.activity), nil
	case codeInsufficient:
		l := &lines[n]
		if l.place.segments == 1 || c.keys.quota {
			return false, nil
		}
		need := int64(0)
		for i := range lines {
			if lines[i].item == l.item {
				need += lines[i].units
			}
		}
		return c.refill(ctx, l, need)
	}
	return false, nil
}

// deduct sends the script for lines of one partition. try is 0 unless they are part of an order in several.
func (c *Counter) deduct(ctx context.Context, r *request, lines []line, try int64) (answer, error) {
	keys, args := c.deductCall(r, lines, try)
	return c.run(ctx, c.scripts.deduct, keys, args...)
}

// deductCall returns the script's KEYS and ARGV.
func (c *Counter) deductCall(r *request, lines []line, try int64) (keys []string, args []any) {
	part := lines[0].part
	limits := !c.keys.quota
	numbered := lines[0].number != ""
	keys = make([]string, 0, 5*len(lines)+3)
	args = make([]any, 0, 6+6*len(lines))
	args = append(args, r.order, r.id, actField(lines[0].activity), packTrace(r.trace))
	for i := range lines {
		l := &lines[i]
		control := c.keys.control(part, l.item)
		keys = append(keys, control, c.keys.request(part, r.idOf(l)))
		if limits {
			keys = append(keys, c.keys.marker(part, l.place.over, l))
		}
		if c.cfg.hold > 0 {
			keys = append(keys, c.keys.hold(part, r.orderOf(l)))
		}
		shards := c.shards(l.place)
		home := ""
		if shards == 1 {
			keys = append(keys, strings.TrimSuffix(control, controlEnd))
		} else {
			keys = c.keys.appendCounter(keys, part, l.item, shards)
			home = strconv.Itoa(shards) + " " + strconv.Itoa(spread(l.user, shards))
		}
		args = append(args, l.units, l.what, int(l.place.over), l.place.layout(), home)
		if numbered {
			args = append(args, l.number)
		}
	}
	if numbered {
		args = append(args, r.what, try)
	}
	if len(lines) > 1 {
		keys = append(keys, c.keys.request(part, r.id))
	}
	if c.cfg.hold > 0 {
		keys = append(keys, c.keys.deadlines(part))
	}
	if c.cfg.stream {
		keys = append(keys, c.keys.stream(part))
	}
	return keys, args
}

// result turns the script's answer for the whole order into what Deduct returns.
func (r *request) result(a answer) (Result, error) {
	code := a.code()
	if code < 0 && code != codeReplayed {
		return Result{}, r.refusal(a)
	}
	res := Result{Left: code, Order: a.text(1)}
	lefts := 2
	if code == codeReplayed {
		if a.text(2) == stateReleased {
			return Result{}, fail(ErrReleased, "")
		}
		// An order id that was made for this call tells that the first time was a send of this call, whose reply was lost.
		res.Replayed, lefts = !r.made || res.Order != r.order, 3
	}
	for i := range r.lines {
		l := &r.lines[i]
		nth, err := a.number(lefts + 2*i)
		if err != nil {
			return Result{}, err
		}
		left, err := a.number(lefts + 2*i + 1)
		if err != nil {
			return Result{}, err
		}
		res.add(r, l, nth, left)
	}
	return res, nil
}

// add puts what one line got into the result.
func (res *Result) add(r *request, l *line, nth, left int64) {
	if res.Nth == 0 || left < res.Left {
		res.Left = left
	}
	if res.Nth == 0 {
		res.Nth = int(nth)
	}
	if len(r.lines) > 1 {
		res.Lines = append(res.Lines, Taken{
			Order: numbered(res.Order, l.number), RequestID: r.idOf(l), Item: l.item, Variant: l.variant,
			Units: l.units, Left: left, Nth: int(nth),
		})
	}
}

// refusal turns a refusal into an error.
func (r *request) refusal(a answer) error {
	e := &Error{}
	if n := int(a.int(1)); n >= 1 && n <= len(r.lines) {
		e.line = r.lines[n-1].given
	}
	switch a.code() {
	case codeNotWarmed:
		e.sentinel = ErrNotWarmed
	case codeInsufficient:
		e.sentinel = ErrInsufficient
	case codeLimit:
		e.sentinel = ErrLimitReached
	case codeMismatch:
		e.sentinel = ErrMismatch
	case codeInFlight:
		e.sentinel = ErrInFlight
	case codePaused:
		e.sentinel = ErrPaused
		if a.text(2) == stateFrozen {
			e.reason = "frozen until reconciled"
		}
	case codeNotStarted:
		e.sentinel, e.after = ErrNotStarted, time.Duration(a.int(2))*time.Millisecond
	case codeEnded:
		e.sentinel = ErrEnded
	case codeOverloaded:
		e.sentinel = ErrOverloaded
	default:
		return corrupt("answer of a script")
	}
	return e
}
