package landing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

func holdAndStream() []stock.Option {
	return []stock.Option{stock.WithHold(time.Hour), stock.WithStream()}
}

// ended lets an activity of an item have ended some time ago, with the limit that it has.
func (b *books) ended(item, activity int64, ago time.Duration) {
	b.Helper()
	field, ctl := fmt.Sprint("act:", activity), fmt.Sprint(b.prefix, "stock:item:", item, ":ctl")
	f := strings.Fields(b.rdb.HGet(b.Context(), ctl, field).Val())
	if len(f) != 6 {
		b.Fatalf("%s %s: %q", ctl, field, f)
	}
	f[1] = fmt.Sprint(time.Now().Add(-ago).UnixMilli())
	b.do("HSET", ctl, field, strings.Join(f, " "))
}

// A marker outlives all else that Redis has of an order where the limit counts over the activity and another item of it ends
// later. It is no marker without an order while the order is live in SQL: taken off, the user would buy once more.
func TestTheMarkerOfALiveOrderOutlivesItsItem(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, holdAndStream())
		for item, ends := range map[int64]time.Duration{7: time.Hour, 8: 72 * time.Hour} {
			if err := b.db.Create(&itemStock{ItemID: item, Stock: 10}).Error; err != nil {
				t.Fatal(err)
			}
			_, err := b.counter.Warm(t.Context(), stock.Sale{
				Item: item, Activity: 1, Units: 10, Limit: stock.Limit{Units: 1, Over: stock.Activity}, Ends: time.Now().Add(ends),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		no := b.order(stock.Order{Item: 7, User: 1, Units: 1})
		b.work()
		if err := b.lander.Pay(t.Context(), no); err != nil {
			t.Fatal(err)
		}
		b.finds(b.compare())
		b.do("PEXPIRE", b.key("user:1:act:1$"), (96 * time.Hour).Milliseconds()) // as another order of the user leaves it
		b.do("DEL", b.prefix+"stock:item:7", b.prefix+"stock:item:7:ctl", b.key("hold:"+no))
		b.finds(b.compare()) // item 7 ended more than a day ago
		b.finds(b.compare(8))
		b.do("HSET", b.key("user:1:act:1$"), "nobodys", "1")
		rep := b.compare()
		b.finds(rep, MarkerWithoutOrder) // of one that is nowhere it still is one
		b.apply(b.reviewed(rep))
		b.finds(b.compare())
		_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 8, Activity: 1, User: 1, Units: 1, RequestID: "again"})
		if !errors.Is(err, stock.ErrLimitReached) {
			t.Errorf("user 1 buys another item of the activity: %v", err)
		}
	})
}

// A switch that is lost leaves a counter and markers behind. The markers of live orders stay, and the counter of an item that
// SQL has is not removed before a person has said so.
func TestALostSwitchTakesNothingWithIt(t *testing.T) {
	t.Parallel()
	b := newBooks(t, onPostgres, []stock.Option{stock.WithStream()})
	b.trade()
	for _, key := range b.srv.Keys(t, b.prefix+"req:") {
		b.do("DEL", key) // ten minutes later
	}
	b.finds(b.compare())
	b.do("DEL", b.prefix+"stock:item:1001:ctl")
	rep := b.compare()
	b.finds(rep, GhostKey)
	p := b.reviewed(rep)
	if c := p.Corrections[0]; c.Approved || c.Action != ActionRemove || c.Item != "1001" || c.Why == "" {
		t.Errorf("%+v, want it left to a person", c)
	}
	p.Corrections[0].Approved = true
	b.apply(p)
	b.warm(1001, 8, stock.Limit{Units: 1})
	b.finds(b.compare(1001))
	b.want(8, 8, 0)
	for user := range int64(2) {
		_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 1001, Activity: 1, User: user + 1, Units: 1, RequestID: fmt.Sprint("later", user)})
		if !errors.Is(err, stock.ErrLimitReached) {
			t.Errorf("user %d buys once more: %v", user+1, err)
		}
	}
}

// Each activity of an item ends by itself: what Redis has forgotten of one that ended more than a day ago is not missing, though
// the item is on sale in another one. An order that still waits for payment there is closed.
func TestAnActivityThatIsOverHasNothingToRemember(t *testing.T) {
	t.Parallel()
	b := newBooks(t, onPostgres, holdAndStream())
	paid, unpaid := b.trade()
	_, err := b.counter.Warm(t.Context(), stock.Sale{Item: 1001, Activity: 2, Units: 10, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b.finds(b.compare())
	b.ended(1001, 1, time.Hour)
	b.do("DEL", b.key("limit:user:1:"))
	b.finds(b.compare()) // nobody can buy more in that activity
	b.ended(1001, 1, 25*time.Hour)
	b.do("DEL", b.key("hold:"+paid), b.key("hold:"+unpaid), b.key("limit:user:2:"))
	b.do("INCRBY", b.prefix+"stock:item:1001", 2) // and a difference that there is
	rep := b.compare()
	b.finds(rep, OrderWithoutHold, RedisAbove)
	p := b.reviewed(rep)
	if c := p.Corrections[0]; c.Action != ActionClose || c.Order != unpaid || !c.Approved {
		t.Errorf("%+v, want the unpaid order closed", c)
	}
	b.apply(p)
	b.wantRow(unpaid, 2, "unpaid")
	rep = b.compare() // Redis had forgotten whose the unit was that SQL has got back
	b.finds(rep, RedisBelow)
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.want(9, 9, 0)
}

// A limit that counts over the activity counts an order as long as any item of it is on sale, and as long as Redis can be told.
func TestALimitOverTheActivityEndsWithItsLastItem(t *testing.T) {
	t.Parallel()
	b := newBooks(t, onSQLite, holdAndStream())
	for _, item := range []int64{7, 8} {
		b.sell(item, 10, stock.Limit{Units: 1, Over: stock.Activity})
	}
	b.order(stock.Order{Item: 7, User: 1, Units: 1})
	b.work()
	b.do("DEL", b.key("user:1:act:1$"))
	b.ended(7, 1, time.Hour)
	b.finds(b.compare(), OrderWithoutMarker) // item 8 is on sale
	b.ended(8, 1, time.Hour)
	b.finds(b.compare()) // none is
}

// An unpaid order that no hold will end is a difference whatever the sale does: most comparisons are made after it. Its hold is
// written or listed again while Redis remembers the sale, and then ends like any other; later the order is closed. One that is
// paid for in Redis, and one whose sale Redis knows nothing of, are left to a person.
func TestAnUnpaidOrderWithoutAnOpenHoldIsAlwaysFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose   func(b *books, no string)
		ago    time.Duration // since the sale ended; 0: it is on
		action Action
		swept  bool
	}{
		"lost in the sale":             {func(b *books, no string) { b.do("DEL", b.key("hold:"+no)) }, 0, ActionRemember, true},
		"lost after the sale":          {func(b *books, no string) { b.do("DEL", b.key("hold:"+no)) }, time.Minute, ActionRemember, true},
		"not listed, in the sale":      {func(b *books, no string) { b.do("ZREM", b.prefix+"stock:deadlines", no) }, 0, ActionRemember, true},
		"not listed, after the sale":   {func(b *books, no string) { b.do("DEL", b.prefix+"stock:deadlines") }, time.Minute, ActionRemember, true},
		"a day after the sale":         {func(b *books, no string) { b.do("DEL", b.key("hold:"+no)) }, 25 * time.Hour, ActionClose, false},
		"paid for in Redis":            {func(b *books, no string) { b.confirm(no) }, 0, "", false},
		"paid for in Redis, afterward": {func(b *books, no string) { b.confirm(no) }, time.Minute, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t, onSQLite, holdAndStream())
			no := b.buy(1)
			b.work()
			b.finds(b.compare())
			if c.ago > 0 {
				b.ended(1001, 1, c.ago)
				b.finds(b.compare())
			}
			c.lose(b, no)
			rep := b.compare()
			b.finds(rep, OrderWithoutHold)
			b.finds(b.compare(1001), OrderWithoutHold)
			p := b.reviewed(rep)
			if got := p.Corrections[0]; got.Action != c.action || got.Approved != (c.action != "") {
				t.Fatalf("%+v, want %q", got, c.action)
			}
			b.apply(p)
			if c.action == "" {
				return
			}
			if c.swept {
				b.finds(b.compare())
				b.due()
				b.sweep()
				b.finds(b.compare())
				b.want(10, 10, 0)
			}
			b.wantRow(no, 2, "unpaid")
		})
	}
	t.Run("Redis knows nothing of the sale", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, onSQLite, holdAndStream())
		_, unpaid := b.trade()
		for _, key := range b.srv.Keys(t, b.prefix) {
			b.do("DEL", key)
		}
		rep := b.compare(1001)
		b.finds(rep, NotWarmed, OrderWithoutHold)
		p := b.reviewed(rep)
		for i := range p.Corrections {
			if c := &p.Corrections[i]; c.Class == OrderWithoutHold {
				if c.Approved || c.Action != ActionClose {
					t.Errorf("%+v, want it left to a person", c)
				}
				c.Approved = true // the sale is over, says the person
			}
		}
		if got := b.apply(p); got.Count(ResultApplied) != 1 {
			t.Errorf("applied %+v", got)
		}
		if row := b.row(unpaid); row.Status != 2 {
			t.Errorf("the order is not closed: %+v", row)
		}
		b.finds(b.compare(1001), NotWarmed)
	})
}

func (b *books) confirm(no string) {
	b.Helper()
	if _, err := b.counter.Confirm(b.Context(), no); err != nil {
		b.Fatal(err)
	}
}

// A refund closes a paid order in SQL and gives its unit back there; in Redis it is a step of an operator. Before that step one
// unit is missing in Redis, after it none, and the user may buy again.
func TestARefundIsNoDifference(t *testing.T) {
	t.Parallel()
	b := newBooks(t, onSQLite, holdAndStream())
	paid, _ := b.trade()
	b.sql("UPDATE seckill_order SET status = 2, close_reason = 'operator' WHERE order_no = ?", paid)
	b.sql("UPDATE item_stock SET stock = stock + 1 WHERE item_id = 1001")
	rep := b.compare()
	b.finds(rep, MarkerWithoutOrder, RedisBelow)
	if d := rep.Differences[1]; d.Units != 1 {
		t.Errorf("%+v, want the refunded unit", d)
	}
	if _, err := b.counter.Adjust(t.Context(), 1001, 1, "refund-"+paid, "alice"); err != nil {
		t.Fatal(err)
	}
	rep = b.compare()
	b.finds(rep, MarkerWithoutOrder)
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.want(9, 9, 0)
	b.order(stock.Order{Item: 1001, User: 1, Units: 1, RequestID: "once more"})
}

// A dead letter, and an entry of the stream, hold nothing once their order is closed in SQL, though nothing else in Redis says
// so any more: what was closed has come back.
func TestAnEntryOfAClosedOrderHoldsNothing(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"dead letter", "stream"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t, onSQLite, holdAndStream())
			no := b.buy(1)
			stream := b.counter.Streams()[0]
			if where == "dead letter" {
				entry := b.entries()[0]
				b.do("DEL", stream)
				if err := b.rdb.XAdd(t.Context(), deadArgs(b.shop, entry)).Err(); err != nil {
					t.Fatal(err)
				}
				b.do("PEXPIRE", deadKey(stream), time.Hour.Milliseconds())
			}
			b.finds(b.compare()) // it holds its unit
			b.due()
			b.sweep()
			b.wantRow(no, 2, "unpaid")
			b.want(10, 10, 0)
			b.finds(b.compare())
			b.do("DEL", b.key("hold:"+no)) // a day after its activity
			b.finds(b.compare())
		})
	}
}

// A segment whose switch alone is lost has a counter that nothing can be bought from. It makes room for the one that is made
// again with what SQL has left; both within the threshold, or both by a person.
func TestASegmentWithoutItsSwitchIsMadeAnew(t *testing.T) {
	t.Parallel()
	b, counters, _ := newSegments(t, onSQLite)
	for i := range counters {
		b.do("DEL", counters[i]+":ctl")
		rep := b.compare()
		b.finds(rep, CounterGone, GhostKey)
		b.r.e.cfg.threshold = rep.Differences[0].Units - 1
		for _, c := range b.r.Plan(rep).Corrections {
			if c.Approved {
				t.Errorf("approved above the threshold: %+v", c)
			}
		}
		b.r.e.cfg.threshold = rep.Differences[0].Units
		if got := b.apply(b.reviewed(rep)); got.Count(ResultApplied) != 2 {
			t.Errorf("applied %+v", got)
		}
		b.finds(b.compare())
		b.wantOf(7, 32, 32, 0)
	}
}
