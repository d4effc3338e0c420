package landing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// What is on its way is no difference: younger than the deadline, in the stream, among the dead letters, between segments.
func TestWhatIsInFlightIsLeftOut(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, []stock.Option{stock.WithStream(), stock.WithPartitions(4)})
		b.buy(1)
		rep := b.compare()
		b.finds(rep)
		if rep.InFlight != (InFlight{Stream: 1}) {
			t.Errorf("in flight: %+v, want one order in the stream", rep.InFlight)
		}
		var entry map[string]any
		for _, stream := range b.counter.Streams() {
			found, err := b.rdb.XRange(t.Context(), stream, "-", "+").Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				entry = found[0].Values
				b.do("DEL", stream)
			}
		}
		b.do("DEL", b.prefix+"stock:{00}:orders:dead")
		if err := b.rdb.XAdd(t.Context(), deadArgs(b.shop, entry)).Err(); err != nil {
			t.Fatal(err)
		}
		b.do("PEXPIRE", deadKey(b.counter.Streams()[0]), 1000000)
		rep = b.compare()
		b.finds(rep)
		if rep.InFlight != (InFlight{Dead: 1}) {
			t.Errorf("in flight: %+v, want one dead letter", rep.InFlight)
		}
		b.do("DEL", deadKey(b.counter.Streams()[0]))
		b.lander.cfg.deadline = time.Minute
		rep = b.compare()
		b.finds(rep)
		if rep.InFlight != (InFlight{Young: 1}) {
			t.Errorf("in flight: %+v, want one young order", rep.InFlight)
		}
		b.lander.cfg.deadline = 0
		b.finds(b.compare(), HoldWithoutOrder)
		b.apply(b.reviewed(b.compare()))
	})
}

// Under a sale that goes on, with orders that land, are paid for and are closed, no look shows a difference that is none; and
// after it everything adds up.
func TestNoFalseDifferenceUnderLoad(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]stock.Option{
		"hold":     {stock.WithHold(time.Hour), stock.WithStream()},
		"record":   {stock.WithStream()},
		"segments": {stock.WithHold(time.Hour), stock.WithStream(), stock.WithPartitions(8)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t, onPostgres, opts)
			if err := b.db.Create(&itemStock{ItemID: 7, Stock: 100_000}).Error; err != nil {
				t.Fatal(err)
			}
			sale := stock.Sale{Item: 7, Activity: 1, Units: 100_000, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(time.Hour)}
			if name == "segments" {
				sale.Segments = 4
			}
			if _, err := b.counter.Warm(t.Context(), sale); err != nil {
				t.Fatal(err)
			}
			b.lander.cfg.deadline = 30 * time.Second
			ctx, stop := context.WithCancel(t.Context())
			var busy sync.WaitGroup
			busy.Go(func() { _ = b.lander.Worker().Run(ctx) })
			var sold atomic.Int64
			orders := make(chan string) // whoever ends orders sets the pace
			for w := range 2 {
				busy.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						user := w*1_000_000 + n
						res, err := b.counter.Deduct(ctx, stock.Order{Item: 7, Activity: 1, User: user, Units: 1, RequestID: fmt.Sprint("load", user)})
						if err != nil {
							if ctx.Err() == nil {
								t.Error(err)
							}
							return
						}
						select {
						case orders <- res.Order:
						case <-ctx.Done():
						}
					}
				})
			}
			busy.Go(func() { // pays some, closes some, leaves some unpaid, a few orders behind the buyers
				var recent []string
				for ctx.Err() == nil {
					select {
					case order := <-orders:
						recent = append(recent, order)
						sold.Add(1)
					case <-ctx.Done():
						return
					}
					if len(recent) <= 20 {
						continue
					}
					var err error
					switch order := recent[0]; rand.IntN(3) {
					case 0:
						err = b.lander.Pay(ctx, order)
					case 1:
						err = b.lander.Close(ctx, order, stock.Operator)
					}
					recent = recent[1:]
					if err != nil && !errors.Is(err, ErrNotLanded) && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
			b.r.between = 50 * time.Millisecond
			settled, looked := 0, 0
			for until := time.Now().Add(20 * time.Second); looked < 5 || sold.Load() < 300 && time.Now().Before(until); looked++ {
				rep, err := b.r.Compare(t.Context())
				if err != nil {
					t.Error(err)
					break
				}
				if len(rep.Differences) > 0 {
					t.Errorf("under load: %+v", rep)
				}
				if len(rep.Unsettled) == 0 {
					settled++
				}
			}
			stop()
			busy.Wait()
			b.work()
			b.lander.cfg.deadline = 0
			b.finds(b.compare())
			t.Logf("%d of %d comparisons under load could add up everything; %d rows", settled, looked, len(b.rows()))
		})
	}
}

// B18: Redis loses everything in the middle of a sale. No duplicate order is written, Compare says what is missing, and after
// the warm-up with what SQL has left and the plan, the limits count the orders that were there before.
func TestRedisLosesEverythingMidSale(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()})
		paid, unpaid := b.trade()
		for _, key := range b.srv.Keys(t, b.prefix) {
			b.do("DEL", key)
		}
		rep := b.compare(1001)
		b.finds(rep, NotWarmed, OrderWithoutHold) // Redis cannot tell whether the sale is on: whether the order is closed is for a person
		if rep.Differences[0].SQL != 8 {
			t.Errorf("%+v, want the 8 units that SQL has", rep.Differences)
		}
		for _, c := range b.r.Plan(rep).Corrections {
			if c.Approved {
				t.Errorf("approved: %+v", c)
			}
		}
		b.warm(1001, 8, stock.Limit{Units: 1})
		again := b.order(stock.Order{Item: 1001, User: 1, Units: 1, RequestID: "after"}) // Redis has forgotten that user 1 has bought
		b.work()
		b.wantRow(again, 2, "limit_reached") // SQL has not
		rep = b.compare(1001)
		b.finds(rep, OrderWithoutHold, OrderWithoutMarker, OrderWithoutMarker)
		b.apply(b.reviewed(rep))
		b.finds(b.compare())
		b.want(8, 8, 0)
		for user := range int64(2) {
			_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 1001, Activity: 1, User: user + 1, Units: 1, RequestID: fmt.Sprint("later", user)})
			if !errors.Is(err, stock.ErrLimitReached) {
				t.Errorf("user %d buys once more: %v", user+1, err)
			}
		}
		b.due()
		b.sweep() // the hold that was written again ends like any other
		b.wantRow(paid, 1, "")
		b.wantRow(unpaid, 2, "unpaid")
		b.finds(b.compare())
		b.want(9, 9, 0)
	})
}

// O11: sold out in Redis while SQL has units that nobody holds is a loss, and an alarm.
func TestSoldOutTooEarlyIsAnAlarm(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	b.do("SET", b.prefix+"stock:item:1001", 0, "KEEPTTL")
	rep := b.compare()
	b.finds(rep, RedisBelow)
	if d := rep.Differences[0]; !d.SoldOut || d.Units != 8 {
		t.Errorf("%+v, want sold out with 8 units lost", d)
	}
	if log := b.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "sold out in Redis while SQL has units left") {
		t.Errorf("log: %s", log)
	}
}

// An order that is live in SQL and was given back in Redis is nobody's to correct but a person's, who closes it.
func TestOrderGivenBackInRedisIsLeftToAPerson(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()})
		_, unpaid := b.trade()
		if _, err := b.counter.Release(t.Context(), unpaid, stock.Operator); err != nil {
			t.Fatal(err)
		}
		rep := b.compare()
		b.finds(rep, OrderWithoutHold, RedisAbove)
		for _, c := range b.r.Plan(rep).Corrections {
			if c.Class == OrderWithoutHold && (c.Approved || c.Action != "") {
				t.Errorf("%+v, want it left to a person", c)
			}
		}
		if err := b.lander.Close(t.Context(), unpaid, stock.Operator); err != nil {
			t.Fatal(err)
		}
		b.finds(b.compare())
	})
}

// Compare changes nothing, and goes on when the item is not one of SQL's kind; it says so when it cannot work.
func TestCompareIsForReading(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	before := b.srv.Keys(t, b.prefix)
	b.finds(b.compare(1001, "no number"), NotWarmed)
	if after := b.srv.Keys(t, b.prefix); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("keys %v became %v", before, after)
	}
	if _, err := b.r.Compare(t.Context(), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty item: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.r.Compare(ctx); err == nil {
		t.Error("a context that is over: no error")
	}
}
