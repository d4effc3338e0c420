package stock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Reason says why units are given back. It is kept in SQL as the reason why an order was closed.
type Reason string

const (
	// Unpaid: the hold's deadline has passed without payment.
	Unpaid Reason = "unpaid"
	// Failed: the order could not be completed, for certain.
	Failed Reason = "failed"
	// Operator: somebody decided so.
	Operator Reason = "operator"
	// Duplicate: the request's order is in SQL already under another id.
	Duplicate Reason = "duplicate"
	// LimitReached: SQL has a live order of this user already.
	LimitReached Reason = "limit_reached"
	// Insufficient: SQL has fewer units than Redis promised. The units do not go back to the counter but are withheld,
	// and the item is frozen: Deduct answers ErrPaused until somebody has reconciled.
	Insufficient Reason = "insufficient"
)

func (r Reason) valid() bool {
	switch r {
	case Unpaid, Failed, Operator, Duplicate, LimitReached, Insufficient:
		return true
	}
	return false
}

// What has become of an order's units: values of [Ended.Outcome].
const (
	OutcomeConfirmed        = "confirmed"
	OutcomeReleased         = "released"
	OutcomeAlreadyConfirmed = "already_confirmed"
	OutcomeAlreadyReleased  = "already_released"
)

// Ended says what Confirm or Release did.
type Ended struct {
	// Outcome is "confirmed" or "released" if units ended by this call, or by an earlier one with the same [Operation];
	// "already_confirmed" or "already_released" if nothing was open any more and units had ended that way before.
	Outcome string
	// Units is how many units ended by that call; with an already outcome, how many have ended that way in all.
	Units int64
	// CounterGone is true if a release found no counter (expired or evicted) to give the units back to. It is never
	// made again; a comparison with SQL will show the difference.
	CounterGone bool
}

// An EndOption changes one Confirm or Release.
type EndOption func(*ending)

type ending struct {
	why       Reason // empty: confirm
	units     int64
	partial   bool
	operation string
	of        *Order
}

func (e *ending) release() bool { return e.why != "" }

// Units ends only n of the order's units, and needs [Operation].
func Units(n int64) EndOption {
	return func(e *ending) { e.units, e.partial = n, true }
}

// Operation names the step, so that a repeat of it is known and answered as the first time. At most 128 bytes, unique
// among the order's steps.
func Operation(id string) EndOption { return func(e *ending) { e.operation = id } }

// Of gives the order as it was deducted; its ID may be empty, and its RequestID too if the context has it. It saves a
// round trip, and is needed without [WithHold]: the request's record is then the proof that units are held.
func Of(o Order) EndOption { return func(e *ending) { e.of = &o } }

// Confirm ends an order's units for good: they are paid for. They never come back; a refund is Adjust. Call it after SQL
// has committed the payment. A deadline that has passed does not matter: who comes first, Confirm or Release, wins.
//
// It may be called again: see [Ended]. Its errors: ErrAlreadyReleased, ErrNotHeld, ErrMismatch if [Of] is not what was
// deducted or the operation id was used for something else, ErrInvalid, also for more units than are open,
// ErrUnavailable and ErrUnknownOutcome. It goes on for up to 5 s when ctx is over: what happened in SQL must reach Redis
// even if the client has gone.
func (c *Counter) Confirm(ctx context.Context, orderID string, opts ...EndOption) (Ended, error) {
	return c.end(ctx, orderID, "", opts)
}

// Release gives an order's units back: to the counter, and to the user's limit. Only what is held and open comes back,
// once: the entry of this order in the limit is taken off, those of other orders stay, and a counter that has gone is not
// made again. Call it only when the order can never be completed any more, for certain. With [WithStream] that is so once it is
// closed in SQL: what is given back while its entry still waits in the stream lands all the same.
//
// It may be called again: see [Ended]. Its errors are those of Confirm, with ErrAlreadyConfirmed in place of
// ErrAlreadyReleased. It goes on for up to 5 s when ctx is over.
func (c *Counter) Release(ctx context.Context, orderID string, why Reason, opts ...EndOption) (Ended, error) {
	if !why.valid() {
		return Ended{}, misuse("the reason is none of this package's")
	}
	return c.end(ctx, orderID, why, opts)
}

// end confirms (why is empty) or releases.
func (c *Counter) end(ctx context.Context, orderID string, why Reason, opts []EndOption) (Ended, error) {
	e := ending{why: why}
	for _, opt := range opts {
		if opt != nil {
			opt(&e)
		}
	}
	name, t := telemetry.SpanStockConfirm, told{what: "confirm", why: why}
	if e.release() {
		name, t.what = telemetry.SpanStockRelease, "release"
	}
	ctx, span := c.tel.tracer.Start(ctx, name)
	if e.of != nil {
		t.request = e.of.RequestID
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	got, err := c.endAll(work, orderID, &e, &t)
	t.outcome, t.units = got.Outcome, got.Units
	if err != nil {
		t.err, t.outcome = err, outcomeOf(err)
	}
	c.tel.ended(ctx, span, &t)
	return got, err
}

// endAll ends units of an order, of all its lines.
func (c *Counter) endAll(ctx context.Context, orderID string, e *ending, t *told) (Ended, error) {
	if err := e.check(orderID); err != nil {
		return Ended{}, err
	}
	held, err := c.heldBy(ctx, orderID, e)
	if err != nil {
		return Ended{}, err
	}
	t.item = held[0].line.item
	if e.partial && len(held) > 1 {
		return Ended{}, misuse("a part of an order with several lines is ended by the line's own id, the order's with /1, /2 and so on")
	}
	var all Ended
	var faults []error
	for i := range held {
		one, trace, err := c.endLine(ctx, &held[i], e)
		t.first = trace
		if err != nil {
			faults = append(faults, err)
			continue
		}
		all.add(one)
	}
	if len(faults) > 0 {
		return all, severest(faults)
	}
	return all, nil
}

func (e *ending) check(orderID string) error {
	var text string
	if err := checkID("the order id", orderID, &text, true); err != nil {
		return err
	}
	if err := checkID("the operation id", e.operation, &text, e.partial); err != nil {
		return err
	}
	if e.partial && (e.units < 1 || e.units > maxUnits) {
		return &Error{sentinel: ErrInvalid, reason: "Units must be from 1 to 2^53-1"}
	}
	return nil
}

// add sums up the ends of several lines.
func (e *Ended) add(line Ended) {
	if e.Outcome == "" || line.Outcome == OutcomeConfirmed || line.Outcome == OutcomeReleased {
		e.Outcome = line.Outcome
	}
	e.Units += line.Units
	e.CounterGone = e.CounterGone || line.CounterGone
}

// severest returns the fault that decides what the caller does next: a lost reply before anything else.
func severest(faults []error) error {
	for _, sentinel := range []error{ErrUnknownOutcome, ErrUnavailable} {
		for _, err := range faults {
			if errors.Is(err, sentinel) {
				return err
			}
		}
	}
	return faults[0]
}

// endLine ends units of one line. It returns the trace context of the deduct, where that is known.
func (c *Counter) endLine(ctx context.Context, h *heldLine, e *ending) (Ended, string, error) {
	told := false // the place has been asked for by this call, so it is not one that was remembered from an earlier sale
	if e.why == Insufficient && c.keys.parts > 0 && !c.keys.quota {
		// The order id tells the order's own segment and no script the others.
		c.places.forget(h.line.item, h.line.activity)
		if _, err := c.find(ctx, h.line.item, h.line.activity); err != nil {
			return Ended{}, "", err
		}
		c.locateHeld(h)
		told = true
	}
	for range 4 {
		if e.why == Insufficient && h.line.place.segments > 1 && !c.keys.quota {
			if err := c.freeze(ctx, h); err != nil {
				return Ended{}, "", err
			}
		}
		a, err := c.sendEnd(ctx, h, e)
		if err != nil {
			return Ended{}, "", err
		}
		switch {
		case a.code() == codeElsewhere:
			if err := c.redirected(a, h.line.item, h.line.activity); err != nil {
				return Ended{}, "", err
			}
			told = true
		case a.code() == 0 && !h.fixed && !told && h.line.place.layout() != c.usual(h.line.item).layout() && c.places.forget(h.line.item, h.line.activity):
			// The place was remembered from an earlier sale.
		default:
			got, err := ended(a, e.release())
			if err == nil && e.release() {
				c.soldOut.forget(h.line.item)
			}
			return got, unpackTrace(a.text(3)), err
		}
		c.locateHeld(h)
	}
	return Ended{}, "", corrupt("switch")
}

// freeze freezes all segments of an item of which SQL has less than Redis promised: the release script itself reaches only
// the order's own. It comes before the release, so that a crash in between is repeated, and not after an order has ended,
// so that a late repeat does not freeze an item that has been reconciled.
func (c *Counter) freeze(ctx context.Context, h *heldLine) error {
	open, err := c.isOpen(ctx, h)
	if err != nil || !open {
		return err
	}
	for n := range h.line.place.segments {
		key := c.keys.control(c.segment(h.line.place, n), h.line.item)
		if _, err := c.run(ctx, c.scripts.toggle, []string{key}, "freeze", "", "", ""); err != nil {
			return err
		}
	}
	return nil
}

// isOpen reports whether units of the order are held and not all ended. The request's record tells only where there is no
// hold: it is forgotten earlier.
func (c *Counter) isOpen(ctx context.Context, h *heldLine) (bool, error) {
	hold, there, err := c.readHold(ctx, h.order, h.line.part)
	if err != nil || there {
		return there && hold.RequestID == h.id && hold.Open > 0, err
	}
	a, err := c.run(ctx, c.scripts.record, []string{c.keys.request(h.line.part, h.id)})
	if err != nil {
		return false, reading(err)
	}
	return a.code() == 0 && a.text(2) == h.order && a.text(3) == stateHeld, nil
}

func (c *Counter) sendEnd(ctx context.Context, h *heldLine, e *ending) (answer, error) {
	l := &h.line
	layout := l.place.layout()
	if h.fixed && !c.keys.quota {
		layout = "" // the order id tells the partition
	}
	var amount any = ""
	if e.partial {
		amount = e.units
	}
	keys := []string{c.keys.hold(l.part, h.order), c.keys.request(l.part, h.id), c.keys.deadlines(l.part), c.keys.control(l.part, l.item)}
	if !e.release() {
		return c.run(ctx, c.scripts.confirm, keys, h.order, h.id, l.what, amount, e.operation, actField(l.activity), "", layout)
	}
	var over any = ""
	if !c.keys.quota {
		over = int(l.place.over)
		keys = append(keys, c.keys.marker(l.part, l.place.over, l))
	}
	shards := c.shards(l.place)
	keys = c.keys.appendCounter(keys, l.part, l.item, shards)
	return c.run(ctx, c.scripts.release, keys, h.order, h.id, l.what, amount, e.operation, actField(l.activity), over, layout,
		flag(e.why == Insufficient), shards, spread(l.user, shards), c.keys.channel(), l.item)
}

func ended(a answer, release bool) (Ended, error) {
	done, already, tooLate := OutcomeConfirmed, OutcomeAlreadyConfirmed, ErrAlreadyReleased
	if release {
		done, already, tooLate = OutcomeReleased, OutcomeAlreadyReleased, ErrAlreadyConfirmed
	}
	switch a.code() {
	case 1:
		return Ended{Outcome: done, Units: a.int(1), CounterGone: a.int(2) == 1}, nil
	case 2:
		return Ended{Outcome: already, Units: a.int(1)}, nil
	case 3:
		return Ended{}, fail(tooLate, "")
	case 0:
		return Ended{}, fail(ErrNotHeld, "")
	case codeMismatch:
		return Ended{}, fail(ErrMismatch, "")
	}
	return Ended{}, corrupt("answer of a script")
}
