package landing

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Action says what a correction does.
type Action string

// The actions. None of them takes anything from SQL's word: they bring Redis to what SQL says, or an order to its end.
const (
	// ActionWithdraw takes units off a counter that has too many, ActionRestock adds them to one that has too few.
	ActionWithdraw Action = "withdraw"
	ActionRestock  Action = "restock"
	// ActionRestore makes a counter again that has gone, with the units that SQL says are left.
	ActionRestore Action = "restore"
	// ActionThaw opens a frozen item; withheld units are booked as withdrawn, as SQL never had them.
	ActionThaw Action = "thaw"
	// ActionRelease writes the order as a closed row, so that a late copy cannot land, and gives its units back in Redis.
	ActionRelease Action = "release"
	// ActionRemember writes a live order's marker, or its hold, again.
	ActionRemember Action = "remember"
	// ActionUnmark takes an order off its user's limit.
	ActionUnmark Action = "unmark"
	// ActionClose closes a live order, in SQL and in Redis.
	ActionClose Action = "close"
	// ActionRemove removes a counter that belongs to no sale, ActionExpire gives a key a TTL.
	ActionRemove Action = "remove"
	ActionExpire Action = "expire"
)

// order is in which order corrections are made: first a counter that has gone, without which nothing can be given back or
// remembered, then what an item's sum depends on, and its opening last.
func (a Action) order() int {
	return slices.Index([]Action{
		ActionRemove, ActionExpire, ActionRestore, ActionUnmark, ActionRemember, ActionRelease, ActionClose, ActionWithdraw, ActionRestock,
		ActionThaw,
	}, a)
}

// fits reports whether the action can be the correction of a difference of this class.
func (a Action) fits(c Class) bool {
	switch c {
	case RedisAbove:
		return a == ActionWithdraw
	case RedisBelow:
		return a == ActionRestock
	case CounterGone:
		return a == ActionRestore
	case Withheld, Frozen:
		return a == ActionThaw
	case HoldWithoutOrder:
		return a == ActionRelease
	case OrderWithoutHold:
		return a == ActionRemember || a == ActionClose
	case OrderWithoutMarker:
		return a == ActionRemember
	case MarkerWithoutOrder:
		return a == ActionUnmark
	case DuplicateOrders:
		return a == ActionClose
	case GhostKey:
		return a == ActionRemove
	case KeyWithoutTTL:
		return a == ActionExpire
	}
	return false
}

// movesUnits tells whether the correction changes how many units can be sold, or takes an order from its user.
func (a Action) movesUnits() bool {
	switch a {
	case ActionWithdraw, ActionRestock, ActionRestore, ActionThaw, ActionRelease, ActionClose:
		return true
	}
	return false
}

// planVersion is the version of a plan's form.
const planVersion = 1

// Plan is what is to be done about differences. It is made by [Reconciler.Plan], kept as JSON, read by a person, and executed
// by [Reconciler.Apply].
type Plan struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Made    time.Time `json:"made"`
	// ReviewedBy is who has looked at the plan. Apply refuses one that nobody has.
	ReviewedBy  string       `json:"reviewed_by"`
	Corrections []Correction `json:"corrections"`
}

// Correction is a difference with what is to be done about it.
type Correction struct {
	Difference
	// Action is empty where nothing can be done by itself: Detail says more.
	Action Action `json:"action,omitempty"`
	// Approved corrections are made. Plan approves what is within the threshold of the item; whoever reviews the plan may
	// approve more, or less.
	Approved bool `json:"approved"`
	// Why says why a correction was not approved.
	Why string `json:"why,omitempty"`
}

// Plan returns what is to be done about the differences of a report. Corrections that move units, or open an item, are approved
// where all differences in units of an item together are within the threshold (WithThreshold); above, and always with the
// default of 0, a person has to decide. An item is not opened by itself either while its sum is unknown, or will differ still
// when the plan is done. Corrections that move none are approved, but for a counter of an item that SQL has.
func (r *Reconciler) Plan(rep *Report) *Plan {
	p := &Plan{Version: planVersion, ID: rand.Text(), Made: rep.At, Corrections: []Correction{}}
	units, differs, threshold := map[string]int64{}, map[string]bool{}, r.e.cfg.threshold
	for _, item := range rep.Unsettled {
		differs[item] = true
	}
	for i := range rep.Differences {
		d := &rep.Differences[i]
		if d.movesUnits() || d.sum() {
			units[d.Item] += d.Units
		}
		differs[d.Item] = differs[d.Item] || d.stays()
	}
	for _, d := range rep.Differences {
		c := Correction{Difference: d, Action: d.action}
		switch {
		case d.action == "":
			c.Why = "there is no correction for it"
		case d.person != "":
			c.Why = d.person
		case d.movesUnits() && units[d.Item] > threshold:
			c.Why = fmt.Sprintf("%d units of this item, the threshold is %d", units[d.Item], threshold)
		case d.movesUnits() && threshold == 0:
			c.Why = "the threshold is 0"
		case d.action == ActionThaw && differs[d.Item]:
			c.Why = "another difference of this item stays"
		default:
			c.Approved = true
		}
		if !c.Approved {
			c.Why = "left to a person: " + c.Why
		}
		p.Corrections = append(p.Corrections, c)
	}
	slices.SortStableFunc(p.Corrections, func(a, b Correction) int { return cmp.Compare(a.Action.order(), b.Action.order()) })
	return p
}

// stays reports whether an item's sum differs still when the correction is made, if there is one: then it must not be opened.
func (d *Difference) stays() bool {
	return d.Class == NoStockRow || d.Class == NotWarmed || d.sum() && d.action == ""
}

// Write writes the plan as JSON, indented for whoever reviews it.
func (p *Plan) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}

// ReadPlan reads what Write has written. A field that it does not know is an error, [ErrInvalid]: a misspelt "approved" must
// not pass for a no.
func ReadPlan(r io.Reader) (*Plan, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var p Plan
	if err := dec.Decode(&p); err != nil {
		return nil, &Error{sentinel: ErrInvalid, reason: "the plan is not of its form: " + err.Error(), cause: err}
	}
	if p.Version != planVersion {
		return nil, fail(ErrInvalid, fmt.Sprintf("the plan is of version %d, this package reads %d", p.Version, planVersion))
	}
	for i := range p.Corrections {
		if a := p.Corrections[i].Action; a != "" && a.order() < 0 {
			return nil, fail(ErrInvalid, "the plan has an action that there is not")
		}
	}
	return &p, nil
}
