package landing

import (
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// Class says in which way Redis and SQL differ.
type Class string

// The classes. docs/landing.md says what each means and what to do about it.
const (
	// RedisAbove: the counter, and what is held, are more than SQL has, by units that are for sale: Redis promises what SQL will
	// refuse. Units of orders that are too many themselves are OrdersAbove.
	RedisAbove Class = "redis_above_sql"
	// OrdersAbove: what orders hold that have not landed is more than SQL has. It will refuse some of them.
	OrdersAbove Class = "orders_above_sql"
	// RedisBelow: they are less. Units are lost to the sale; with an empty counter it says "sold out" too early.
	RedisBelow Class = "redis_below_sql"
	// CounterGone: the sale is on, and its counter is missing (evicted, lost), or a segment's switch with it.
	CounterGone Class = "counter_gone"
	// NotWarmed: Redis knows nothing of an item that Compare was asked about, or a warm-up was broken off.
	NotWarmed Class = "not_warmed"
	// NoStockRow: an item is on sale in Redis, and SQL has no row of it.
	NoStockRow Class = "no_stock_row"
	// OrderWithoutHold: an order is live in SQL, and in Redis nothing holds its units, they were given back, or it waits for
	// payment and nothing will ever end it.
	OrderWithoutHold Class = "order_without_hold"
	// HoldWithoutOrder: units are held, and no live order has them.
	HoldWithoutOrder Class = "hold_without_order"
	// MarkerWithoutOrder: a user's limit counts an order that is neither held nor live, on this item or on any other.
	MarkerWithoutOrder Class = "marker_without_order"
	// OrderWithoutMarker: an order is held or live, and its user's limit does not count it.
	OrderWithoutMarker Class = "order_without_marker"
	// DuplicateOrders: a user has more units in live orders than the limit.
	DuplicateOrders Class = "duplicate_live_orders"
	// GhostKey: a counter without a switch: it belongs to no sale, or its sale's switch is lost.
	GhostKey Class = "ghost_key"
	// KeyWithoutTTL: a key that would stay for ever.
	KeyWithoutTTL Class = "key_without_ttl"
	// Unreadable: a value in Redis that is not of its form.
	Unreadable Class = "unreadable"
	// Withheld: SQL refused units that Redis had sold. They are kept out of sale, and the item is frozen.
	Withheld Class = "withheld"
	// Frozen: the item is frozen, and no units are withheld.
	Frozen Class = "frozen"
)

// classes are all of them, for telemetry.
func classes() []Class {
	return []Class{
		RedisAbove, OrdersAbove, RedisBelow, CounterGone, NotWarmed, NoStockRow, OrderWithoutHold, HoldWithoutOrder, MarkerWithoutOrder,
		OrderWithoutMarker, DuplicateOrders, GhostKey, KeyWithoutTTL, Unreadable, Withheld, Frozen,
	}
}

// Difference is one thing about which Redis and SQL do not agree. What does not apply is empty.
type Difference struct {
	Class    Class  `json:"class"`
	Item     string `json:"item,omitempty"`
	Activity string `json:"activity,omitempty"`
	User     string `json:"user,omitempty"`
	Order    string `json:"order,omitempty"`
	Request  string `json:"request,omitempty"`
	// Key is the key in Redis, where the difference is about one.
	Key string `json:"key,omitempty"`
	// Units is how many units it is about: by how many the two sides differ, or how many an order has.
	Units int64 `json:"units,omitempty"`
	// Redis and SQL are the two sides, for an item: what the counter has with what is held, and what the row has.
	Redis int64 `json:"redis,omitempty"`
	SQL   int64 `json:"sql,omitempty"`
	// SoldOut is true if Redis has nothing left to sell while SQL has: the sale loses money.
	SoldOut bool `json:"sold_out,omitempty"`
	// Steps is how many steps of operators the item remembers: after another one a correction of its units is stale.
	Steps int `json:"steps,omitempty"`
	// Detail says more, for people.
	Detail string `json:"detail,omitempty"`

	action Action
	person string // why a person must decide about the action, whatever the threshold
	part   bool   // the key is part of an item that is on sale
	entry  stock.Entry
	open   bool // the order waits for payment
	mark   stock.Mark
	ends   time.Time
	item   *stock.SurveyedItem // as it was when its units were added up
}

// subject is what the difference is about.
type subject struct {
	class                                     Class
	item, activity, user, order, request, key string
}

func (d *Difference) subject() subject {
	return subject{d.Class, d.Item, d.Activity, d.User, d.Order, d.Request, d.Key}
}

// movesUnits tells whether correcting it changes how many units can be sold, or takes an order from its user: then the threshold
// decides.
func (d *Difference) movesUnits() bool { return d.part || d.action.movesUnits() }

// sum tells whether the difference comes from adding up an item's units.
func (d *Difference) sum() bool {
	switch d.Class {
	case RedisAbove, OrdersAbove, RedisBelow, CounterGone:
		return true
	}
	return false
}

// Report is what [Reconciler.Compare] has found.
type Report struct {
	// At is when the counters were read, by Redis's clock.
	At time.Time `json:"at"`
	// Items is how many items were compared.
	Items int `json:"items"`
	// Differences are in an order that is the same each time; none if the two sides agree.
	Differences []Difference `json:"differences"`
	// Unsettled are items whose units went back and forth all the time, so that nothing can be said about their sums.
	Unsettled []string `json:"unsettled,omitempty"`
	// InFlight is what was left out because it is on its way.
	InFlight InFlight `json:"in_flight"`

	asked bool // it was made for some items
}

// sees reports whether such a comparison can find differences of a class: keys belong to no item.
func (r *Report) sees(c Class) bool {
	switch c {
	case GhostKey, KeyWithoutTTL, Unreadable:
		return !r.asked
	}
	return true
}

// InFlight counts what is on its way, and so no difference.
type InFlight struct {
	// Young are orders held for less than the landing deadline, without a row.
	Young int `json:"young"`
	// Stream and Dead are orders in the streams, and dead letters: an operator replays those or gives them up.
	Stream int `json:"stream"`
	Dead   int `json:"dead"`
	// Moving are units in transfers between segments.
	Moving int64 `json:"moving"`
}

// Clean reports whether nothing differs and everything could be compared.
func (r *Report) Clean() bool { return len(r.Differences) == 0 && len(r.Unsettled) == 0 }
