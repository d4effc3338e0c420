package stock

import (
	"context"
	"strconv"
	"time"
)

// Sale is an item offered in an activity.
type Sale struct {
	// Item is what is sold; required.
	Item ID
	// Activity is the sale's id; optional. Limits count per activity: the same user may buy again in another one.
	Activity ID
	// Units is how many units of the item there are in all its activities together, from 1 to 2^53-1.
	Units int64
	// Starts is when Deduct begins to sell; the zero value means at once.
	Starts time.Time
	// Ends is when Deduct stops to sell, by Redis's clock; required. What is kept in Redis lives by it: the counter
	// one hour longer than the latest end of the item's activities, limits one day longer than the activity's.
	Ends time.Time
	// Limit bounds what one user gets.
	Limit Limit
}

// Limit bounds the units of a user.
type Limit struct {
	// Units is the most units that a user may have at a time, in live orders and open holds; 0 means no limit.
	Units int64
	// PerOrder is the most units of one order; 0 means no limit of its own.
	PerOrder int64
	// Over says what the limit counts over.
	Over Scope
}

// Scope says what a limit counts over, and so which parts its key names.
type Scope uint8

const (
	// ItemInActivity counts per user, item and activity.
	ItemInActivity Scope = iota
	// Activity counts per user and activity, over all its items.
	Activity
	// Variant counts per user, item, variant and activity.
	Variant
)

// Warmed says what a warm-up did.
type Warmed struct {
	// Left is how many units the counter has now.
	Left int64
	// Added is how many units were added by this call: all of them the first time, the difference later, often 0.
	Added int64
	// First is true if the counter was not there before.
	First bool
}

// A WarmOption changes one warm-up.
type WarmOption func(*warming)

type warming struct{ takeOver bool }

// TakeOver replaces a counter that is there but was not warmed up by this package (it has no switch, often no TTL)
// instead of refusing with [ErrStray]. What it counted is lost: look at it first.
func TakeOver() WarmOption { return func(w *warming) { w.takeOver = true } }

// Warm opens a sale: it writes the counter and the switch of the item, with their TTLs. It may be called again at any
// time, by any number of instances: a counter that is there is never overwritten. If Sale.Units is more than was warmed
// before, the difference is added; the activity's times and its limit become those of the call.
//
// It returns ErrInvalid if the sale's values are wrong, and as misuse if there are fewer units than were warmed before
// (use Adjust), or if an activity that has begun gets another scope or an end more than a day behind its first one:
// limits kept until now would be forgotten, so open another activity. ErrEnded if the sale is over; ErrStray if a foreign
// value lies under the counter's key; ErrNotWarmed if the counter has gone while its switch is there, for then nobody
// knows how many units are left until SQL has been compared.
func (c *Counter) Warm(ctx context.Context, s Sale, opts ...WarmOption) (Warmed, error) {
	var w warming
	for _, opt := range opts {
		opt(&w)
	}
	item, activity, err := s.check()
	if err != nil {
		return Warmed{}, err
	}
	if err := c.checkCluster(ctx); err != nil {
		return Warmed{}, err
	}
	starts := int64(0)
	if !s.Starts.IsZero() {
		starts = max(s.Starts.UnixMilli(), 0)
	}
	a, err := c.run(ctx, c.scripts.warm,
		[]string{c.keys.counter(item), c.keys.control(item)},
		s.Units, actField(activity), starts, s.Ends.UnixMilli(), s.Limit.Units, s.Limit.PerOrder, int(s.Limit.Over), flag(w.takeOver))
	if err != nil {
		return Warmed{}, err
	}
	switch a.code() {
	case 0, 1:
		c.learn(item, activity, s.Limit.Over)
		return Warmed{Left: a.int(1), Added: a.int(2), First: a.code() == 0}, nil
	case 2:
		return Warmed{Left: a.int(1)}, misuse("more units were warmed before: take some off with Adjust")
	case 3:
		return Warmed{}, fail(ErrStray, "look at it, then warm up with TakeOver()")
	case 4:
		return Warmed{}, fail(ErrNotWarmed, "the counter has gone during the sale: compare with SQL, then restore it")
	case 5:
		return Warmed{}, misuse("the activity has begun: its limit's scope must stay, and its end may move by a day at most; use another activity")
	case -9:
		return Warmed{}, fail(ErrEnded, "Sale.Ends has passed")
	}
	return Warmed{}, corrupt("answer of a script")
}

func (s *Sale) check() (item, activity string, err error) {
	if err := checkID("Sale.Item", s.Item, &item, true); err != nil {
		return "", "", err
	}
	if err := checkID("Sale.Activity", s.Activity, &activity, false); err != nil {
		return "", "", err
	}
	switch {
	case s.Units < 1 || s.Units > maxUnits:
		return "", "", &Error{sentinel: ErrInvalid, reason: "Sale.Units must be from 1 to 2^53-1"}
	case s.Ends.IsZero() || s.Ends.Year() > 9999 || !s.Ends.After(s.Starts):
		return "", "", &Error{sentinel: ErrInvalid, reason: "Sale.Ends must be set, and after Sale.Starts"}
	case s.Limit.Units < 0 || s.Limit.Units > maxUnits || s.Limit.PerOrder < 0 || s.Limit.PerOrder > maxUnits:
		return "", "", &Error{sentinel: ErrInvalid, reason: "Sale.Limit must be from 0 to 2^53-1"}
	case s.Limit.Over > Variant:
		return "", "", &Error{sentinel: ErrInvalid, reason: "Sale.Limit.Over is not one of the scopes"}
	}
	return item, activity, nil
}

// actField is the activity's field in the switch.
func actField(activity string) string { return "act:" + activity }

func flag(on bool) string { return strconv.Itoa(map[bool]int{true: 1}[on]) }

// scopeOf returns the scope that is known for the sale, or guesses the usual one. A wrong guess costs a round trip: the
// deduct script answers with the right one.
func (c *Counter) scopeOf(l *line) Scope {
	if over, ok := c.scopes.Load([2]string{l.item, l.activity}); ok {
		return over.(Scope)
	}
	return ItemInActivity
}

func (c *Counter) learn(item, activity string, over Scope) {
	if over == ItemInActivity {
		c.scopes.Delete([2]string{item, activity})
		return
	}
	c.scopes.Store([2]string{item, activity}, over)
}
