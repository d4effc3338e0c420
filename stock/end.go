package stock

import (
	"context"
	"strings"
	"time"
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
	units     int64
	partial   bool
	operation string
	of        *Order
}

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

// endTimeout bounds Confirm and Release, which do not end with the caller's context.
const endTimeout = 5 * time.Second

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
// made again. Call it only when the order can never be completed any more, for certain.
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
	var e ending
	for _, opt := range opts {
		opt(&e)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := e.check(orderID); err != nil {
		return Ended{}, err
	}
	r, err := c.held(ctx, orderID, &e)
	if err != nil {
		return Ended{}, err
	}
	var amount any = ""
	if e.partial {
		amount = e.units
	}
	keys := []string{c.keys.hold(r.order), c.keys.request(r.id), c.keys.deadlines()}
	script := c.scripts.confirm
	args := []any{r.order, r.id, r.line.what, amount, e.operation}
	if why != "" {
		keys = append(keys, c.keys.counter(r.line.item), c.keys.control(r.line.item), c.keys.marker(c.scopeOf(&r.line), &r.line))
		script = c.scripts.release
		args = append(args, flag(why == Insufficient))
	}
	a, err := c.run(ctx, script, keys, args...)
	if err != nil {
		return Ended{}, err
	}
	return ended(a, why != "")
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

// held finds out what the order is for: from Of, else from its hold.
func (c *Counter) held(ctx context.Context, orderID string, e *ending) (request, error) {
	if e.of != nil {
		o := *e.of
		o.ID = orderID
		return o.check(ctx)
	}
	if c.cfg.hold == 0 {
		return request{}, misuse("without WithHold the order's request is the proof: add stock.Of(order)")
	}
	a, err := c.run(ctx, c.scripts.held, []string{c.keys.hold(orderID)})
	if err != nil {
		return request{}, reading(err)
	}
	if a.code() != 0 {
		return request{}, fail(ErrNotHeld, "")
	}
	l, ok := parseLine(a.text(1))
	if !ok {
		return request{}, corrupt("hold")
	}
	return request{order: orderID, id: a.text(2), line: l}, nil
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

// parseLine reads a fingerprint.
func parseLine(what string) (line, bool) {
	parts := strings.Split(what, ":")
	if len(parts) != 5 {
		return line{}, false
	}
	l := line{what: what}
	for i, to := range []*string{&l.item, &l.variant, &l.activity, &l.user} {
		text, err := unescape(parts[i])
		if err != nil {
			return line{}, false
		}
		*to = text
	}
	var err error
	l.units, err = parseUnits(parts[4])
	return l, err == nil
}
