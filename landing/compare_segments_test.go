package landing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/stock"
)

// newSegments opens a shop that sells 40 units of item 7 in four segments, of which eight are sold. It returns the keys of the
// segments' counters, the item's home first.
func newSegments(t *testing.T, dialect string) (b *books, counters []string, sale stock.Sale) {
	t.Helper()
	b = newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream(), stock.WithPartitions(8)})
	if err := b.db.Create(&itemStock{ItemID: 7, Stock: 40}).Error; err != nil {
		t.Fatal(err)
	}
	sale = stock.Sale{Item: 7, Activity: 1, Units: 40, Segments: 4, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(time.Hour)}
	if _, err := b.counter.Warm(t.Context(), sale); err != nil {
		t.Fatal(err)
	}
	for user := range 8 {
		b.order(stock.Order{Item: 7, User: user, Units: 1})
	}
	b.work()
	var home int
	for _, key := range b.srv.Keys(t, b.prefix) {
		if counter, ok := strings.CutSuffix(key, "item:7:ctl"); ok {
			counters = append(counters, counter+"item:7")
			layout := b.rdb.HGet(t.Context(), key, "layout").Val()
			if _, err := fmt.Sscanf(layout, "4 %d", &home); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range counters {
		counters[i] = fmt.Sprintf("%sstock:{%02d}:item:7", b.prefix, (home+i)%8)
	}
	b.finds(b.compare())
	return b, counters, sale
}

// transfer takes units off one counter for another, and stops there, a while ago.
func (b *books) transfer(from, to string, units int) {
	b.Helper()
	of := strings.TrimSuffix(from, "item:7")
	var part int
	if _, err := fmt.Sscanf(to, b.prefix+"stock:{%d}", &part); err != nil {
		b.Fatal(err)
	}
	ends := time.Now().Add(time.Hour).UnixMilli()
	b.do("DECRBY", from, units)
	b.do("HINCRBY", from+":ctl", "moving", units)
	b.do("HSET", of+"move:T", "item", 7, "to", part, "units", units, "until", ends, "state", "taken")
	b.do("PEXPIREAT", of+"move:T", ends)
	b.do("ZADD", of+"moves", time.Now().Add(-time.Minute).UnixMilli(), "T")
	b.do("PEXPIREAT", of+"moves", ends)
}

// Units of a transfer that has stopped are in flight and no difference: they belong to the item's sum.
func TestUnitsOfAStoppedTransferAreCounted(t *testing.T) {
	t.Parallel()
	b, counters, _ := newSegments(t, onPostgres)
	b.transfer(counters[0], counters[1], 3)
	rep := b.compare()
	b.finds(rep)
	if rep.InFlight.Moving != 3 {
		t.Errorf("in flight: %+v, want 3 moving", rep.InFlight)
	}
	b.do("DEL", strings.TrimSuffix(counters[0], "item:7")+"move:T") // nobody can finish it any more
	rep = b.compare()
	b.finds(rep, RedisBelow)
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.wantOf(7, 32, 32, 0)
}

// 3.8: a counter that is gone while a transfer to it is open is found and made again, with what SQL has left but for the units
// on their way, which the sweeper then gives.
func TestACounterGoneWithATransferOpenIsRestored(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b, counters, _ := newSegments(t, dialect)
		b.transfer(counters[0], counters[1], 3)
		b.do("DEL", counters[1])
		b.sweep()
		rep := b.compare()
		b.finds(rep, CounterGone)
		b.apply(b.reviewed(rep))
		b.sweep()
		rep = b.compare()
		b.finds(rep)
		if rep.InFlight.Moving != 0 {
			t.Errorf("in flight: %+v, want nothing moving", rep.InFlight)
		}
		b.wantOf(7, 32, 32, 0)
	})
}

// Only a transfer that is under way leaves the item unsettled.
func TestATransferUnderWayIsUnsettled(t *testing.T) {
	t.Parallel()
	b, counters, _ := newSegments(t, onPostgres)
	b.transfer(counters[0], counters[1], 3)
	moves := strings.TrimSuffix(counters[0], "item:7") + "moves"
	if err := b.rdb.ZAdd(t.Context(), moves, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: "T"}).Err(); err != nil {
		t.Fatal(err)
	}
	rep := b.compare()
	if len(rep.Differences) > 0 || rep.InFlight.Moving != 3 || len(rep.Unsettled) != 1 || rep.Clean() {
		t.Errorf("%+v, want no difference and an unsettled item", rep)
	}
}

// A segment that is lost, the item's home or another, is found as a counter that has gone, and made again with what SQL has left;
// a warm-up meanwhile does not put back what is sold. Then it sells to the last unit.
func TestALostSegmentIsRestored(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		for _, lost := range []int{0, 3} {
			b, counters, sale := newSegments(t, dialect)
			b.do("DEL", counters[lost], counters[lost]+":ctl")
			if _, err := b.counter.Warm(t.Context(), sale); !errors.Is(err, stock.ErrNotWarmed) {
				t.Errorf("Warm = %v, want it refused", err)
			}
			b.finds(b.compare(7), CounterGone)
			rep := b.compare()
			b.finds(rep, CounterGone)
			p := b.reviewed(rep)
			b.apply(p)
			b.finds(b.compare())
			b.apply(p)
			b.wantOf(7, 32, 32, 0)
			for user := range 32 {
				b.order(stock.Order{Item: 7, User: 100 + user, Units: 1})
			}
			_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 7, Activity: 1, User: 99, Units: 1, RequestID: "late"})
			if !errors.Is(err, stock.ErrInsufficient) {
				t.Errorf("the buyer after the last unit hears %v", err)
			}
		}
	})
}

// A node that comes back empty has lost more than the segment: limits and holds of its orders are written again with it, by the
// same plan.
func TestANodeThatComesBackEmpty(t *testing.T) {
	t.Parallel()
	b, counters, _ := newSegments(t, onPostgres)
	unpaid := b.order(stock.Order{Item: 7, User: 50, Units: 1})
	var part string
	for i, counter := range counters {
		if strings.Contains(b.key("hold:"+unpaid), counter[len(b.prefix)+len("stock:"):][:4]) {
			part = counters[i][len(b.prefix)+len("stock:"):][:4]
		}
	}
	b.work()
	lost := 0
	for _, key := range b.srv.Keys(t, b.prefix) {
		if strings.Contains(key, part) && !strings.Contains(key, "orders") {
			b.do("DEL", key)
			lost++
		}
	}
	rep := b.compare()
	classes := map[Class]int{}
	for _, d := range rep.Differences {
		classes[d.Class]++
	}
	if lost < 6 || classes[CounterGone] != 1 || classes[OrderWithoutHold] < 1 || classes[OrderWithoutMarker] < 1 || len(classes) != 3 {
		t.Fatalf("%d keys lost, found %v", lost, classes)
	}
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.wantOf(7, 31, 31, 0)
	_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 7, Activity: 1, User: 50, Units: 1, RequestID: "again"})
	if !errors.Is(err, stock.ErrLimitReached) {
		t.Errorf("a second order hears %v", err)
	}
}

// Units of an order that never landed come back to a counter that had gone: it is made again first.
func TestACounterIsRestoredBeforeUnitsComeBack(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	b.buy(9)
	b.do("DEL", b.counter.Streams()[0], b.prefix+"stock:item:1001")
	rep := b.compare()
	b.finds(rep, CounterGone, HoldWithoutOrder)
	b.apply(b.reviewed(rep))
	b.finds(b.compare())
	b.want(8, 8, 0)
}

// A warm-up that was broken off has left segments out: there is nothing to restore, and it is to be repeated.
func TestASegmentThatNeverWasIsNotWarmed(t *testing.T) {
	t.Parallel()
	b, counters, sale := newSegments(t, onPostgres)
	for _, counter := range counters {
		b.do("HDEL", counter+":ctl", "whole")
	}
	b.do("DEL", counters[3], counters[3]+":ctl")
	rep := b.compare()
	b.finds(rep, NotWarmed)
	if p := b.reviewed(rep); p.Corrections[0].Approved || p.Corrections[0].Action != "" {
		t.Errorf("plan %+v, want it left to a person", p.Corrections)
	}
	if _, err := b.counter.Warm(t.Context(), sale); err != nil {
		t.Fatal(err)
	}
}
