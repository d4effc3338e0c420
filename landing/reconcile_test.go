package landing

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/stock"
)

// books is a shop with a Reconciler for which every order is old.
type books struct {
	*shop
	r *Reconciler
}

// newBooks opens a shop with a paid, an unpaid and a closed order.
func newBooks(t *testing.T, dialect string, counter []stock.Option, opts ...Option) *books {
	t.Helper()
	b := &books{shop: newShop(t, dialect, counter, append([]Option{WithThreshold(100)}, opts...)...)}
	b.lander.cfg.deadline = 0
	b.r = b.lander.Reconciler()
	b.r.between = time.Millisecond
	return b
}

func (b *books) trade() (paid, unpaid string) {
	b.Helper()
	paid, unpaid = b.buy(1), b.buy(2)
	gone := b.buy(3)
	b.work()
	if err := b.lander.Pay(b.Context(), paid); err != nil {
		b.Fatal(err)
	}
	if err := b.lander.Close(b.Context(), gone, stock.Operator); err != nil {
		b.Fatal(err)
	}
	return paid, unpaid
}

func (b *books) compare(items ...stock.ID) *Report {
	b.Helper()
	rep, err := b.r.Compare(b.Context(), items...)
	if err != nil {
		b.Fatal(err)
	}
	return rep
}

// finds checks that exactly these classes are found.
func (b *books) finds(rep *Report, want ...Class) {
	b.Helper()
	var got []Class
	for _, d := range rep.Differences {
		got = append(got, d.Class)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(rep.Unsettled) > 0 {
		b.Errorf("differences (-want +got):\n%s\n%+v", diff, rep)
	}
}

// reviewed makes the plan of a report, writes it, reads it again and signs it.
func (b *books) reviewed(rep *Report) *Plan {
	b.Helper()
	var file bytes.Buffer
	if err := b.r.Plan(rep).Write(&file); err != nil {
		b.Fatal(err)
	}
	p, err := ReadPlan(&file)
	if err != nil {
		b.Fatal(err)
	}
	p.ReviewedBy = "ops"
	return p
}

func (b *books) apply(p *Plan) *Applied {
	b.Helper()
	a, err := b.r.Apply(b.Context(), p)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func (b *books) do(args ...any) {
	b.Helper()
	if err := b.rdb.Do(b.Context(), args...).Err(); err != nil {
		b.Fatalf("%v: %v", args, err)
	}
}

func (b *books) sql(statement string, args ...any) {
	b.Helper()
	if err := b.db.Exec(statement, args...).Error; err != nil {
		b.Fatal(err)
	}
}

// key returns the only key that has all these texts in it.
func (b *books) key(texts ...string) string {
	b.Helper()
	var found []string
	for _, key := range b.srv.Keys(b.T, b.prefix) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(key+"$", text)
		}
		if has {
			found = append(found, key)
		}
	}
	if len(found) != 1 {
		b.Fatalf("%d keys with %q: %v", len(found), texts, found)
	}
	return found[0]
}

// O09: one difference of each class is planted: it is found once, and nothing else; the plan is applied, and then nothing is
// found. Classes that are left to a person are found until somebody has done something.
func TestEachClassIsFoundOnceAndCorrected(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()})
		paid, unpaid := b.trade()
		b.finds(b.compare())
		counter := b.prefix + "stock:item:1001"
		var duplicate string
		for _, c := range []struct {
			name  string
			plant func()
			want  Class
			units int64
			undo  func() // by a person
		}{
			{"a counter with too many units", func() { b.do("INCRBY", counter, 2) }, RedisAbove, 2, nil},
			{"a counter with too few", func() { b.do("DECRBY", counter, 3) }, RedisBelow, 3, nil},
			{"a counter that is gone", func() { b.do("DEL", counter) }, CounterGone, 8, nil},
			{"a hold that is lost", func() { b.do("DEL", b.key("hold:"+unpaid)) }, OrderWithoutHold, 1, nil},
			{"an order that never landed", func() {
				b.buy(9)
				b.do("DEL", b.counter.Streams()[0])
			}, HoldWithoutOrder, 1, nil},
			{"a closed order whose units have not come back", func() {
				order := b.buy(8)
				b.work()
				b.sql("UPDATE seckill_order SET status = 2, close_reason = 'unpaid' WHERE order_no = ?", order)
				b.sql("UPDATE item_stock SET stock = stock + 1 WHERE item_id = 1001")
			}, HoldWithoutOrder, 1, nil},
			{"a limit that counts no order", func() {
				b.do("HSET", b.prefix+"limit:user:77:item:1001:act:1", "nobodys", "1")
				b.do("PEXPIRE", b.prefix+"limit:user:77:item:1001:act:1", 100000)
			}, MarkerWithoutOrder, 1, nil},
			{"an order that no limit counts", func() { b.do("HDEL", b.key("user:1:"), paid) }, OrderWithoutMarker, 1, nil},
			{"a second live order", func() {
				duplicate = "DUPLICATE"
				b.sql("INSERT INTO seckill_order (order_no, request_id, user_id, item_id, activity_id, nth, units, status) VALUES (?, 'again', 2, 1001, 1, 2, 1, 0)", duplicate)
				b.sql("UPDATE item_stock SET stock = stock - 1 WHERE item_id = 1001")
				b.do("DECR", counter)
				_, err := b.counter.Remember(b.Context(), stock.Entry{
					Order: duplicate, RequestID: "again", Item: "1001", Activity: "1", User: "2", Units: 1, Nth: 2,
				}, true)
				if err != nil {
					b.Fatal(err)
				}
			}, DuplicateOrders, 1, nil},
			{"a counter without a sale", func() { b.do("SET", b.prefix+"stock:item:77", 5) }, GhostKey, 0, nil},
			{"a key without TTL", func() { b.do("PERSIST", b.key("user:1:")) }, KeyWithoutTTL, 0, nil},
			{"withheld units", func() { b.do("HSET", counter+":ctl", "state", "frozen", "withheld", 2) }, Withheld, 2, nil},
			{"a frozen item", func() { b.do("HSET", counter+":ctl", "state", "frozen") }, Frozen, 0, nil},
			{"a value that cannot be read", func() { b.do("SET", b.prefix+"req:odd", "x", "PX", 100000) }, Unreadable, 0, func() {
				b.do("DEL", b.prefix+"req:odd")
			}},
			{"an item without a row", func() { b.warm(6, 5, stock.Limit{}) }, NoStockRow, 0, func() {
				b.do("DEL", b.prefix+"stock:item:6", b.prefix+"stock:item:6:ctl")
			}},
		} {
			c.plant()
			rep := b.compare()
			b.finds(rep, c.want)
			if t.Failed() || rep.Differences[0].Units != c.units {
				t.Fatalf("%s: %+v, want %d units", c.name, rep.Differences, c.units)
			}
			p := b.reviewed(rep)
			if corrected := c.undo == nil; p.Corrections[0].Approved != corrected {
				t.Fatalf("%s: %+v, want approved %t", c.name, p.Corrections, corrected)
			}
			got := b.apply(p)
			if c.undo != nil {
				c.undo()
			} else if got.Count(ResultApplied) != 1 {
				t.Fatalf("%s: applied %+v", c.name, got)
			}
			b.finds(b.compare())
			if t.Failed() {
				t.Fatalf("%s: that was after the plan", c.name)
			}
			b.apply(p) // again: nothing is left to do
			b.finds(b.compare())
		}
		b.wantRow(duplicate, 2, "limit_reached")
		b.wantRow(unpaid, 0, "")
		b.want(8, 8, 0)
		if eternal := b.srv.Eternal(t, b.prefix); len(eternal) > 0 {
			t.Errorf("keys without TTL: %v", eternal)
		}
		b.finds(b.compare(1001))
		b.finds(b.compare(1001, 5), NotWarmed)
	})
}

// The same sums hold with records in place of holds, and over segments.
func TestSumsOfEveryKindOfCounter(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]stock.Option{
		"record, stream": {stock.WithStream()},
		"segments":       {stock.WithStream(), stock.WithHold(time.Hour), stock.WithPartitions(16)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t, onPostgres, opts)
			item := int64(1001)
			if name == "segments" {
				item = 2002
				if err := b.db.Create(&itemStock{ItemID: item, Stock: 50}).Error; err != nil {
					t.Fatal(err)
				}
				_, err := b.counter.Warm(t.Context(), stock.Sale{Item: item, Activity: 1, Units: 50, Segments: 5, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(time.Hour)})
				if err != nil {
					t.Fatal(err)
				}
			}
			for user := range 6 {
				b.order(stock.Order{Item: item, User: user, Units: 1})
			}
			b.work()
			b.finds(b.compare())
			b.order(stock.Order{Item: item, User: 7, Units: 1})
			for _, stream := range b.counter.Streams() {
				b.do("DEL", stream)
			}
			var counters []string
			for _, key := range b.srv.Keys(t, b.prefix) {
				if strings.HasSuffix(key, fmt.Sprint("item:", item)) && strings.Contains(key, "stock:") {
					counters = append(counters, key)
				}
			}
			b.do("INCRBY", counters[0], 2)
			rep := b.compare()
			b.finds(rep, HoldWithoutOrder, RedisAbove)
			b.apply(b.reviewed(rep))
			b.finds(b.compare())
			b.do("DEL", counters[len(counters)-1])
			rep = b.compare()
			b.finds(rep, CounterGone)
			b.apply(b.reviewed(rep))
			b.finds(b.compare())
			var row itemStock
			if err := b.db.First(&row, "item_id = ?", item).Error; err != nil {
				t.Fatal(err)
			}
			b.wantOf(item, row.Stock, row.Stock, 0)
		})
	}
}
