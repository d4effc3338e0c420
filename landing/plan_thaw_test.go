package landing

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/stock"
)

// promised brings item 1001 to where Redis promises more than SQL has by what is for sale and by four orders that have not landed
// yet, and one unit is withheld: the item is frozen.
func promised(t *testing.T, opts ...Option) *books {
	t.Helper()
	b := newBooks(t, onSQLite, holdAndStream(), opts...)
	b.sql("UPDATE item_stock SET stock = 0 WHERE item_id = 1001")
	b.buy(1)
	b.work()
	ctl := b.prefix + "stock:item:1001:ctl"
	b.do("HSET", ctl, "state", "open")
	for user := range int64(4) {
		b.buy(10 + user) // before it was frozen
	}
	b.do("HSET", ctl, "state", "frozen")
	b.want(0, 5, 1)
	return b
}

// D63: an item is not opened by itself while Redis promises more than SQL has, whatever the threshold. What is for sale is
// withdrawn; what orders hold is refused as they land; then, and not before, a plan opens the item.
func TestNoItemIsOpenedThatSQLHasNothingOf(t *testing.T) {
	t.Parallel()
	b := promised(t)
	rep := b.compare()
	b.finds(rep, OrdersAbove, RedisAbove, Withheld)
	p := b.reviewed(rep)
	if c := p.Corrections[0]; c.Action != "" || c.Units != 4 || c.Approved {
		t.Errorf("%+v, want the orders left to SQL", c)
	}
	if c := p.Corrections[1]; c.Action != ActionWithdraw || c.Units != 5 || !c.Approved {
		t.Errorf("%+v, want a withdrawal", c)
	}
	if c := p.Corrections[2]; c.Action != ActionThaw || c.Approved || c.Why == "" {
		t.Errorf("%+v, want it left to a person", c)
	}
	b.apply(p)
	b.want(0, 0, 1) // what is held is not the counter's
	b.apply(p)
	b.want(0, 0, 1)
	_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 1001, Activity: 1, User: 77, Units: 1, RequestID: "late"})
	if !errors.Is(err, stock.ErrPaused) {
		t.Errorf("a buyer, while SQL has nothing: %v", err)
	}
	rep = b.compare()
	b.finds(rep, OrdersAbove, Withheld)
	for _, c := range b.r.Plan(rep).Corrections {
		if c.Approved {
			t.Errorf("approved while four orders are still to be refused: %+v", c)
		}
	}
	b.work()
	rep = b.compare()
	b.finds(rep, Withheld)
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.want(0, 0, 0)
}

// The threshold counts every difference in units of an item, also one that no correction takes away whole.
func TestTheThresholdCountsWhatStaysToo(t *testing.T) {
	t.Parallel()
	b := promised(t, WithThreshold(9)) // nine too many, and one withheld
	for _, c := range b.r.Plan(b.compare()).Corrections {
		if c.Approved {
			t.Errorf("approved: %+v", c)
		}
	}
	b.do("SET", b.prefix+"stock:item:1001", 0, "KEEPTTL")
	b.r.e.cfg.threshold = 4 // four that nobody can withdraw, and one withheld
	rep := b.compare()
	b.finds(rep, OrdersAbove, Withheld)
	for _, c := range b.r.Plan(rep).Corrections {
		if c.Approved {
			t.Errorf("approved: %+v", c)
		}
	}
}

// With the default threshold of 0 a person decides about everything that changes what can be sold: also about opening an item,
// and about a counter that comes back with no unit.
func TestThresholdZeroOpensNothing(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onSQLite, WithThreshold(0))
	ctl := b.prefix + "stock:item:1001:ctl"
	b.do("HSET", ctl, "state", "frozen")
	rep := b.compare()
	b.finds(rep, Frozen)
	p := b.reviewed(rep)
	if c := p.Corrections[0]; c.Approved || c.Action != ActionThaw || c.Why != "left to a person: the threshold is 0" {
		t.Errorf("%+v, want it left to a person", c)
	}
	p.Corrections[0].Approved = true
	b.apply(p)
	b.finds(b.compare())
	b.sql("UPDATE item_stock SET stock = 0 WHERE item_id = 1001")
	b.do("DEL", b.prefix+"stock:item:1001")
	rep = b.compare()
	b.finds(rep, CounterGone)
	if c := b.r.Plan(rep).Corrections[0]; c.Approved || c.Action != ActionRestore || c.Units != 0 {
		t.Errorf("%+v, want it left to a person", c)
	}
}

// Whoever approved the opening of an item did not know of what Redis has too many since then: the plan is stale.
func TestAnItemIsNotOpenedOnOldNews(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onSQLite)
	b.do("HSET", b.prefix+"stock:item:1001:ctl", "state", "frozen")
	p := b.reviewed(b.compare())
	b.do("INCR", b.prefix+"stock:item:1001")
	if got, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrStale) || len(got.Results) > 0 {
		t.Errorf("applied %+v, %v", got, err)
	}
	b.finds(b.compare(), Frozen, RedisAbove)
}
