package stock

import (
	"time"
)

// Sale is an item offered in an activity.
type Sale struct {
	// Item is what is sold; required.
	Item ID
	// Activity is the sale's id; optional. Limits count per activity: the same user may buy again in another one.
	Activity ID
	// Units is how many units of the item there are in all its activities together, from 0 to 2^53-1. 0 is for an item
	// that is sold out in SQL when Redis is filled: Deduct then answers [ErrInsufficient] and not [ErrNotWarmed].
	Units int64
	// Segments spreads the units over several counters, each in a partition of its own: for an item that is too hot for
	// one Redis node. From 1, which is the default, to the number of partitions; of a quota, to 100. Each user belongs to
	// one segment; when it is empty, units move there from the others. Exactly Units are sold.
	Segments int
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
	// Units is the most units that a user may have at a time, in live orders and open holds; 0 means no limit. Each deduct reads
	// all orders that its user has under a limit; without one it does not, however many there are.
	Units int64
	// PerOrder is the most units of one item in one order; 0 means no limit of its own.
	PerOrder int64
	// Over says what Units counts over.
	Over Scope
}

// Scope says what a limit counts over, and so which parts its key names.
type Scope uint8

const (
	// ItemInActivity counts per user, item and activity.
	ItemInActivity Scope = iota
	// Activity counts per user and activity, over all its items. In partitions it puts all of them into one, unless
	// each has as many segments as there are partitions. Give its items one end: what a user had of an item is remembered
	// until a day after that item's own.
	Activity
	// Variant counts per user, item, variant and activity.
	Variant
)

// sale is a Sale that has been checked.
type sale struct {
	item, activity string
	units          int64
	segments       int
	starts, ends   int64 // Unix milliseconds
	limit          Limit
}

func (c *Counter) checkSale(s *Sale) (*sale, error) {
	r := &sale{units: s.Units, segments: max(s.Segments, 1), limit: s.Limit}
	if err := checkID("Sale.Item", s.Item, &r.item, true); err != nil {
		return nil, err
	}
	if err := checkID("Sale.Activity", s.Activity, &r.activity, false); err != nil {
		return nil, err
	}
	most, parts := 1, c.keys.parts
	switch {
	case c.keys.quota:
		most = mostParts
	case parts > 0:
		most = parts
	}
	switch {
	case s.Units < 0 || s.Units > maxUnits:
		return nil, &Error{sentinel: ErrInvalid, reason: "Sale.Units must be from 0 to 2^53-1"}
	case s.Ends.IsZero() || s.Ends.Year() > 9999 || !s.Ends.After(s.Starts):
		return nil, &Error{sentinel: ErrInvalid, reason: "Sale.Ends must be set, and after Sale.Starts"}
	case s.Limit.Units < 0 || s.Limit.Units > maxUnits || s.Limit.PerOrder < 0 || s.Limit.PerOrder > maxUnits:
		return nil, &Error{sentinel: ErrInvalid, reason: "Sale.Limit must be from 0 to 2^53-1"}
	case s.Limit.Over > Variant:
		return nil, &Error{sentinel: ErrInvalid, reason: "Sale.Limit.Over is not one of the scopes"}
	case s.Segments < 0 || r.segments > most && most > 1:
		return nil, misuse("Sale.Segments: from 1 to the number of partitions, or to 100 for a quota")
	case r.segments > most:
		return nil, misuse("Sale.Segments needs WithPartitions(n), with n of at least as many")
	case c.keys.quota && (r.activity != "" || s.Limit.Units != 0 || s.Limit.Over != ItemInActivity):
		return nil, misuse("a quota has no activities and no limit per user: leave Sale.Activity and Limit.Units empty")
	case s.Limit.Over == Activity && r.segments > 1 && r.segments != parts:
		return nil, misuse("a limit over the activity keeps all of a user's orders in one partition: use one segment, or as many as there are partitions")
	}
	if !s.Starts.IsZero() {
		r.starts = max(s.Starts.UnixMilli(), 0)
	}
	r.ends = s.Ends.UnixMilli()
	return r, nil
}

// share returns the units of one of n segments; the remainder goes to the first ones.
func share(units int64, n, i int) int64 {
	each, rest := units/int64(n), units%int64(n)
	if int64(i) < rest {
		return each + 1
	}
	return each
}

// actField is the activity's field in the switch.
func actField(activity string) string { return "act:" + activity }

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
