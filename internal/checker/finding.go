package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind says what is wrong.
type Kind string

// The kinds, with the invariant that each of them breaks.
const (
	Oversold         Kind = "oversold"              // 1: more units in live orders than ever came in
	BelowZero        Kind = "below_zero"            // 1: a counter or a stock row
	UnitsLost        Kind = "units_lost"            // 2: fewer units are accounted for than came in
	UnitsExtra       Kind = "units_extra"           // 2: more are
	CounterGone      Kind = "counter_gone"          // 2: the sale is on, and there is no counter
	GhostCounter     Kind = "ghost_counter"         // 2: a counter without a sale
	Unreadable       Kind = "unreadable"            // 2: a stored value that is not of its form
	HoldOpen         Kind = "hold_open"             // 2a: units held, and no order row
	TransferOpen     Kind = "transfer_open"         // 2a: units between two segments
	HoldUndue        Kind = "hold_without_deadline" // 2a: units that are held, and that nobody will ever sweep, or too early
	DeadlineAlone    Kind = "deadline_without_hold" // 2a
	ConfirmOpen      Kind = "confirm_open"          // 2a: the order is paid in SQL, its hold is not confirmed
	RequestOpen      Kind = "request_open"          // 2a: an order of several lines that is still under way
	ReturnOpen       Kind = "return_open"           // 2a: the order is closed, its units have not come back
	StreamOpen       Kind = "stream_open"           // 2a: orders that have not landed, dead letters too
	StockDiffers     Kind = "stock_differs"         // 2b: the stock row is not what is left
	OverLimit        Kind = "over_limit"            // 3: a user has more than the limit; a duplicate order
	MarkerAlone      Kind = "marker_without_order"  // 3
	OrderUnmarked    Kind = "order_without_marker"  // 3
	MarkerForeign    Kind = "marker_of_another"     // 3: the marker of another user, item or activity has the order
	MarkerUnits      Kind = "marker_units"          // 3: the marker says another number of units than the order has
	RequestRows      Kind = "request_rows"          // 4: several order rows for one request
	RequestOrders    Kind = "request_orders"        // 4: a repeat was told another order
	RequestTwice     Kind = "request_twice"         // 4: done afresh twice
	RepeatRefused    Kind = "repeat_refused"        // 4: done, and a repeat was refused although nothing had come back
	AcceptedLost     Kind = "accepted_lost"         // 4: a buyer was told of an order that is nowhere
	OtherOrder       Kind = "other_order"           // 4: a buyer was told another order than the row has
	RefusedLive      Kind = "refused_live"          // 4: every answer was no, and there is a live order
	PaidLost         Kind = "paid_lost"             // 5: somebody was told that the order is paid, and it is not
	ClosedLost       Kind = "closed_lost"           // 5: somebody was told that the order is closed, and it is not
	ConfirmedUnpaid  Kind = "confirmed_unpaid"      // 5: the hold is confirmed, and nobody has paid
	EndedTwice       Kind = "ended_twice"           // 5: more units were confirmed and released than held
	Eternal          Kind = "eternal"               // 6: a key without a TTL
	LockOutlives     Kind = "lock_outlives"         // 6: a lock older than its TTL whose holder is gone
	LedgerDiffers    Kind = "ledger_differs"        // 7: the movements do not add up to the counter
	LedgerTwice      Kind = "ledger_twice"          // 7: two movements with one operation id
	NotBack          Kind = "not_back"              // 8: goroutines or connections
	FalseSoldOut     Kind = "false_sold_out"        // 9: sold out, and there was enough all the time
	FalseLimit       Kind = "false_limit"           // 9: limit reached, and the user was below it all the time
	FenceFell        Kind = "fence_fell"            // 10
	invariantUnknown      = "?"
)

// Finding is one thing that is wrong, with the numbers. Fields that do not apply are empty.
type Finding struct {
	Invariant                            string
	Kind                                 Kind
	Item, User, Activity, Request, Order string
	Key                                  string // in Redis, or a table, or what else it is about
	Want, Got                            int64
	Detail                               string
}

// String returns the finding on one line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invariant %s: %s", f.Invariant, f.Kind)
	for _, part := range []struct{ name, value string }{
		{"item", f.Item}, {"activity", f.Activity}, {"user", f.User}, {"request", f.Request}, {"order", f.Order}, {"key", f.Key},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s=%s", part.name, part.value)
		}
	}
	if f.Want != 0 || f.Got != 0 {
		fmt.Fprintf(&b, ": want %d, got %d", f.Want, f.Got)
	}
	if f.Detail != "" {
		b.WriteString(": " + f.Detail)
	}
	return b.String()
}

func invariantOf(k Kind) string {
	switch k {
	case Oversold, BelowZero:
		return "1"
	case UnitsLost, UnitsExtra, CounterGone, GhostCounter, Unreadable:
		return "2"
	case HoldOpen, HoldUndue, DeadlineAlone, ConfirmOpen, RequestOpen, TransferOpen, ReturnOpen, StreamOpen:
		return "2a"
	case StockDiffers:
		return "2b"
	case OverLimit, MarkerAlone, OrderUnmarked, MarkerForeign, MarkerUnits:
		return "3"
	case RequestRows, RequestOrders, RequestTwice, RepeatRefused, AcceptedLost, OtherOrder, RefusedLive:
		return "4"
	case PaidLost, ClosedLost, ConfirmedUnpaid, EndedTwice:
		return "5"
	case Eternal, LockOutlives:
		return "6"
	case LedgerDiffers, LedgerTwice:
		return "7"
	case NotBack:
		return "8"
	case FalseSoldOut, FalseLimit:
		return "9"
	case FenceFell:
		return "10"
	}
	return invariantUnknown
}

// sorted fills in the invariants and brings findings into an order that does not depend on maps.
func sorted(fs []Finding) []Finding {
	for i := range fs {
		fs[i].Invariant = invariantOf(fs[i].Kind)
	}
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Item, b.Item), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Request, b.Request), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Key, b.Key))
	})
	return fs
}
