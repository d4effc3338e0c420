package landing

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// What became of a correction: values of [Result.Outcome].
const (
	// ResultApplied: it was made, by this call or by another one at the same time.
	ResultApplied = "applied"
	// ResultGone: there is nothing to correct any more; an earlier call has done it, or it has settled by itself.
	ResultGone = "gone"
	// ResultLeft: it was not approved.
	ResultLeft = "left"
	// ResultUnsettled: the item's units go back and forth, so nobody can say whether it still applies. Apply again later.
	ResultUnsettled = "unsettled"
	// ResultFailed: it could not be made, see [Result.Error]; or an item was not to be opened, as another correction of it
	// could not be made.
	ResultFailed = "failed"
)

// Applied is what [Reconciler.Apply] did.
type Applied struct {
	Results []Result `json:"results"`
}

// Result is what became of one correction.
type Result struct {
	Correction
	Outcome string `json:"outcome"`
	// Error is what went wrong with one that failed.
	Error string `json:"error,omitempty"`
}

// Count returns how many corrections have that outcome.
func (a *Applied) Count(outcome string) (n int) {
	for i := range a.Results {
		if a.Results[i].Outcome == outcome {
			n++
		}
	}
	return n
}

// Apply makes the approved corrections of a plan that somebody has reviewed. First it compares once more: if a difference is
// not what the plan says any more (other units, above all), the plan is stale and nothing is done; a difference that is gone
// needs no correction. So a plan can be applied again, after a crash half-way through it too, and changes nothing more; and
// two calls at once, of one plan or of two plans for the same state, change what one of them would.
//
// A correction that fails does not keep the others from being made, unless Redis or the database is away, or the context is
// over. Only an item is not opened (thaw) then whose own corrections could not be made.
//
// Its errors: [ErrInvalid] for a plan without ReviewedBy, or with an action that does not fit its class; [ErrStale]; those of
// Compare, of package stock and of the database, joined. After an error Applied says what was done all the same.
func (r *Reconciler) Apply(ctx context.Context, p *Plan) (*Applied, error) {
	if err := p.check(); err != nil {
		return &Applied{}, err
	}
	ctx, done := r.tel.apply(ctx)
	a, err := r.apply(ctx, p)
	done(ctx, a, err)
	return a, err
}

func (p *Plan) check() error {
	switch {
	case p == nil || p.Version != planVersion || p.ID == "" || len(p.ID) > 64:
		return fail(ErrInvalid, "the plan is not one of this package's: use Plan or ReadPlan")
	case p.ReviewedBy == "":
		return fail(ErrInvalid, "nobody has reviewed the plan: set reviewed_by")
	case len(p.ReviewedBy) > 128:
		return fail(ErrInvalid, "reviewed_by is longer than 128 bytes")
	}
	for i := range p.Corrections {
		if c := &p.Corrections[i]; c.Approved && c.Action == "" {
			return fail(ErrInvalid, fmt.Sprintf("a difference of class %s is approved, and there is no correction for it", c.Class))
		} else if c.Approved && !c.Action.fits(c.Class) {
			return fail(ErrInvalid, fmt.Sprintf("the plan says %q of a difference of class %s, which nothing of that kind corrects", c.Action, c.Class))
		}
	}
	return nil
}

func (r *Reconciler) apply(ctx context.Context, p *Plan) (*Applied, error) {
	done := &Applied{}
	if len(p.Corrections) == 0 {
		return done, nil
	}
	rep, err := r.compare(ctx, p.sought())
	if err != nil {
		return done, err
	}
	now := map[subject]*Difference{}
	for i := range rep.Differences {
		now[rep.Differences[i].subject()] = &rep.Differences[i]
	}
	unsettled := map[string]bool{}
	for _, item := range rep.Unsettled {
		unsettled[item] = true
	}
	if err := p.fresh(now); err != nil {
		return done, err
	}
	failed := map[string]bool{}
	var faults []error
	for _, c := range p.Corrections {
		d := now[c.subject()]
		res := Result{Correction: c, Outcome: ResultApplied}
		switch {
		case !c.Approved:
			res.Outcome = ResultLeft
		case unsettled[c.Item] && (d == nil && c.sum() || d != nil && c.Action == ActionThaw):
			res.Outcome = ResultUnsettled
		case d == nil:
			res.Outcome = ResultGone
		case c.Action == ActionThaw && failed[c.Item]:
			res.Outcome, res.Error = ResultFailed, "another correction of this item could not be made"
		default:
			if err := r.correct(ctx, p, &c, d); err != nil {
				faults = append(faults, fmt.Errorf("landing: correction %s of %s: %w", c.Action, c.Class, err))
				if away(err) {
					return done, errors.Join(faults...)
				}
				res.Outcome, res.Error = ResultFailed, err.Error()
				failed[c.Item] = true
			}
		}
		done.Results = append(done.Results, res)
	}
	return done, errors.Join(faults...)
}

// sought is what the plan is about: all that Redis knows, and items that it may have lost.
func (p *Plan) sought() sought {
	s := seek(nil)
	for i := range p.Corrections {
		if c := &p.Corrections[i]; c.Approved && c.Item != "" {
			s.also = append(s.also, c.Item)
		}
	}
	return s
}

// away reports whether an error says that Redis or the database cannot be reached, so that no other correction can be made.
func away(err error) bool {
	for _, sentinel := range []error{
		stock.ErrUnavailable, stock.ErrUnknownOutcome, gormplugin.ErrUnavailable, gormplugin.ErrUnknownOutcome, context.Canceled,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// fresh checks that each approved difference is gone or what it was, and that nobody opens an item which SQL has less of by
// now than whoever reviewed the plan could know.
func (p *Plan) fresh(now map[subject]*Difference) error {
	planned := map[subject]bool{}
	for i := range p.Corrections {
		planned[p.Corrections[i].subject()] = true
	}
	for i := range p.Corrections {
		c := &p.Corrections[i]
		d := now[c.subject()]
		switch {
		case !c.Approved:
		case d == nil:
			if opposite, ok := now[c.opposite()]; ok && c.sum() {
				return stale(c, opposite.Units)
			}
		case d.Units != c.Units:
			return stale(c, d.Units)
		case c.sum() && d.Steps != c.Steps: // of an operator, or of another plan
			return fail(ErrStale, fmt.Sprintf("a step was made on the item of %s since the plan was made: compare and plan anew", c.Class))
		case d.action != c.Action: // it was paid for meanwhile, say
			return fail(ErrStale, fmt.Sprintf("%s cannot be corrected by %s any more: compare and plan anew", c.Class, c.Action))
		case c.Action == ActionThaw:
			for _, class := range []Class{RedisAbove, OrdersAbove, CounterGone, NoStockRow} {
				if s := (subject{class: class, item: c.Item}); now[s] != nil && !planned[s] {
					return fail(ErrStale, fmt.Sprintf("the item is to be opened, and %s was not there when the plan was made: compare and plan anew", class))
				}
			}
		}
	}
	return nil
}

// opposite is the difference the other way round.
func (d *Difference) opposite() subject {
	s := d.subject()
	switch s.class {
	case RedisAbove:
		s.class = RedisBelow
	case RedisBelow:
		s.class = RedisAbove
	}
	return s
}

func stale(c *Correction, units int64) error {
	return fail(ErrStale, fmt.Sprintf("%s was %d units when the plan was made, and is %d now: compare and plan anew", c.Class, c.Units, units))
}

// correct makes one correction. Steps on an item have an operation id that belongs to the plan, so that each is made once, and
// are made only if the item is as the comparison has seen it: a step of somebody else, since then, makes them wrong.
func (r *Reconciler) correct(ctx context.Context, p *Plan, c *Correction, d *Difference) (err error) {
	step, operator, seen := "reconcile/"+p.ID, p.ReviewedBy, stock.AsSeen(d.item)
	shop := r.e.counter
	switch c.Action {
	case ActionWithdraw:
		_, err = shop.Adjust(ctx, c.Item, -c.Units, step, operator, seen)
	case ActionRestock:
		_, err = shop.Adjust(ctx, c.Item, c.Units, step, operator, seen)
	case ActionRestore:
		_, err = shop.Restore(ctx, c.Item, c.Units, step, operator, seen)
	case ActionThaw:
		_, err = shop.Thaw(ctx, c.Item, step+"/thaw", operator, seen)
	case ActionRelease:
		err = r.release(ctx, &d.entry)
	case ActionRemember:
		_, err = shop.Remember(ctx, d.entry, d.open)
	case ActionUnmark:
		_, err = shop.Unmark(ctx, d.mark)
	case ActionClose:
		why := stock.Unpaid
		if c.Class == DuplicateOrders {
			why = stock.LimitReached
		}
		err = r.e.close(ctx, d.Order, why)
		if errors.Is(err, ErrClosed) {
			err = nil
		}
	case ActionRemove:
		_, err = shop.RemoveStray(ctx, d.Key)
	case ActionExpire:
		_, err = shop.Expire(ctx, d.Key, d.ends)
	}
	if errors.Is(err, stock.ErrStale) || errors.Is(err, stock.ErrMismatch) && (c.sum() || c.Action == ActionThaw) {
		return &Error{sentinel: ErrStale, reason: "somebody else has made a step on the item meanwhile: compare and plan anew", cause: err}
	}
	return err
}

// release ends an order that never landed. If it has landed since, nothing is done.
func (r *Reconciler) release(ctx context.Context, e *stock.Entry) error {
	f, err := r.e.refuse(ctx, e, stock.Failed, "")
	if err != nil {
		return err
	}
	if f.release == "" {
		return nil
	}
	err = r.e.end(ctx, e, f)
	if errors.Is(err, stock.ErrAlreadyConfirmed) {
		return nil // paid for meanwhile: the next comparison shows it
	}
	return err
}
