package stock

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func (e *env) entries(c *Counter) []Entry {
	e.Helper()
	var entries []Entry
	for _, key := range c.Streams() {
		messages, err := e.rdb.XRange(e.Context(), key, "-", "+").Result()
		if err != nil {
			e.Fatal(err)
		}
		for _, m := range messages {
			entry, err := ParseEntry(m.Values)
			if err != nil {
				e.Fatalf("entry %v: %v", m.Values, err)
			}
			entries = append(entries, entry)
		}
	}
	return entries
}

// D60, X24: the entry is written in the step that takes the units, with all that SQL needs; without WithStream there is
// no stream.
func TestStreamHasWhatSQLNeeds(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithStream())
		e.warm(c, Sale{Activity: "a:1", Units: 9, Limit: Limit{Units: 5}})
		o := Order{ID: "o1", RequestID: "q{1}", Item: 1001, Variant: "blue", Activity: "a:1", User: "u/7", Units: 2}
		e.deduct(c, o)
		e.deduct(c, o) // a repeat appends nothing
		e.refused(c, Order{RequestID: "q2", Item: 1001, Activity: "a:1", User: "u/7", Units: 4}, ErrLimitReached)
		got := e.entries(c)
		if len(got) != 1 {
			t.Fatalf("%d entries, want 1: %+v", len(got), got)
		}
		want := Entry{Order: "o1", RequestID: "q{1}", Item: "1001", Variant: "blue", Activity: "a:1", User: "u/7", Units: 2, Nth: 1, At: got[0].At}
		if got[0] != want || time.Since(got[0].At).Abs() > time.Minute {
			t.Errorf("entry = %+v, want %+v", got[0], want)
		}
		e.everyKeyExpires()

		plain := e.counter()
		e.deduct(plain, Order{RequestID: "q3", Item: 1001, Activity: "a:1", User: 8, Units: 1})
		if got := e.entries(c); len(got) != 1 {
			t.Errorf("a counter without WithStream appended: %+v", got)
		}
	})
}

// C21e: above its length limit the stream takes no more orders, and nothing is deducted for them; what was accepted is
// still answered.
func TestFullStreamRefusesBeforeDeducting(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithStream(), WithMaxBacklog(3))
		e.warm(c, Sale{Units: 9, Limit: Limit{Units: 1}})
		var done Order
		for i := range 3 {
			done = e.order(i)
			e.deduct(c, done)
		}
		e.unchanged("an order above the limit", func() {
			err := e.refused(c, e.order(9), ErrOverloaded)
			if err.ErrorType() != "overloaded" || !err.Retryable() || err.RetryAfter() <= 0 {
				t.Errorf("type %q, retryable %v, after %v", err.ErrorType(), err.Retryable(), err.RetryAfter())
			}
			if res := e.deduct(c, done); !res.Replayed {
				t.Error("an accepted order is not answered again")
			}
			e.refused(c, e.order(1), ErrLimitReached) // what is final is said, not "come back later"
		})
		e.left(c, 6)
		id := e.rdb.XRange(t.Context(), e.key("stock:orders"), "-", "+").Val()[0].ID
		e.rdb.XDel(t.Context(), e.key("stock:orders"), id)
		e.deduct(c, e.order(9))
	})
}

func TestEntriesOfOthersAreRefused(t *testing.T) {
	good := map[string]any{"order": "o", "request": "r", "what": "i:::u:1", "taken": "1 1700000000000"}
	if _, err := ParseEntry(good); err != nil {
		t.Fatal(err)
	}
	e := &env{T: t}
	for name, change := range map[string]func(m map[string]any){
		"no order":     func(m map[string]any) { delete(m, "order") },
		"no request":   func(m map[string]any) { m["request"] = "" },
		"a number":     func(m map[string]any) { m["order"] = 7 },
		"not of ours":  func(m map[string]any) { delete(m, "taken") },
		"empty item":   func(m map[string]any) { m["what"] = ":::u:1" },
		"no units":     func(m map[string]any) { m["what"] = "i:::u:" },
		"zero units":   func(m map[string]any) { m["what"] = "i:::u:0" },
		"units 1.5":    func(m map[string]any) { m["what"] = "i:::u:1.5" },
		"units 2^53":   func(m map[string]any) { m["what"] = "i:::u:9007199254740992" },
		"no time":      func(m map[string]any) { m["taken"] = "1 " },
		"negative nth": func(m map[string]any) { m["taken"] = "-1 1700000000000" },
	} {
		m := map[string]any{}
		for k, v := range good {
			m[k] = v
		}
		change(m)
		_, err := ParseEntry(m)
		if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "corrupt" {
			t.Errorf("%s: %v, want corrupt", name, err)
		}
	}
}

// D12, F071, F072: a hold past its deadline is listed until somebody ends it; then its unit is free for the next buyer,
// and touching the lost hold never revives it.
func TestExpiredHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Second))
		e.warm(c, Sale{Activity: "x", Units: 2, Limit: Limit{Units: 1}})
		o := Order{RequestID: "q", Item: 1001, Variant: "v", Activity: "x", User: 7, Units: 1}
		res := e.deduct(c, o)
		paid := o
		paid.RequestID, paid.User = "q2", 8
		second := e.deduct(c, paid)
		if holds, err := c.Expired(t.Context(), 10); err != nil || len(holds) != 0 {
			t.Fatalf("before the deadline: %v, %v", holds, err)
		}
		if _, err := c.Confirm(t.Context(), second.Order); err != nil {
			t.Fatal(err)
		}
		if e.mini != nil {
			e.mini.SetTime(time.Now().Add(2 * time.Second))
		}
		var holds []Hold
		testserver.Eventually(t, 10*time.Second, func() bool {
			var err error
			if holds, err = c.Expired(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			return len(holds) > 0
		}, "the hold's deadline")
		h := holds[0]
		want := Entry{Order: res.Order, RequestID: "q", Item: "1001", Variant: "v", Activity: "x", User: "7", Units: 1, Nth: 1, At: h.At}
		if len(holds) != 1 || h.Entry != want || h.Open != 1 || h.Deadline.Sub(h.At) != time.Second {
			t.Errorf("Expired = %+v, want %+v alone, one second after it was taken", holds, want)
		}
		// A deadline that has passed changes nothing by itself: it is listed again, and a payment could still win.
		if again, err := c.Expired(t.Context(), 10); err != nil || len(again) != 1 {
			t.Errorf("asked again: %v, %v", again, err)
		}
		e.ended(c.Release(t.Context(), h.Order, Unpaid))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.unchanged("touching the lost hold", func() {
			_, err := c.Confirm(t.Context(), h.Order)
			e.wants(err, ErrAlreadyReleased, "Confirm")
			e.refused(c, o, ErrReleased)
			if holds, err := c.Expired(t.Context(), 10); err != nil || len(holds) != 0 {
				t.Errorf("after the end: %v, %v", holds, err)
			}
		})
		o.RequestID = "again"
		e.deduct(c, o) // the same user may buy again
	})
}

// Several sweepers at once end each hold once.
func TestSweepersRace(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Second))
		e.warm(c, Sale{Units: 50})
		for i := range 50 {
			e.deduct(c, e.order(i))
		}
		if e.mini != nil {
			e.mini.SetTime(time.Now().Add(2 * time.Second))
		}
		var released atomic.Int64
		testserver.Eventually(t, 20*time.Second, func() bool {
			parallel(3, func(int) {
				holds, err := c.Expired(t.Context(), 20)
				if err != nil {
					t.Error(err)
				}
				for _, h := range holds {
					got, err := c.Release(t.Context(), h.Order, Unpaid)
					if err != nil {
						t.Error(err)
					}
					if got.Outcome == OutcomeReleased {
						released.Add(got.Units)
					}
				}
			})
			return released.Load() >= 50
		}, "all holds")
		if released.Load() != 50 {
			t.Errorf("%d units released, want 50", released.Load())
		}
		e.left(c, 50)
	})
}

// A deadline whose hold was lost is taken off the list: nobody could ever end it.
func TestDeadlineWithoutHold(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Second))
		e.warm(c, Sale{Units: 5})
		e.rdb.ZAdd(t.Context(), e.key("stock:deadlines"), redis.Z{Score: 1, Member: "lost"})
		if holds, err := c.Expired(t.Context(), 10); err != nil || len(holds) != 0 {
			t.Errorf("Expired = %v, %v", holds, err)
		}
		if e.exists("stock:deadlines") {
			t.Error("the deadline is still listed")
		}
		for _, limit := range []int{0, -1, 1001} {
			_, err := c.Expired(t.Context(), limit)
			e.wants(err, ErrInvalid, "limit %d", limit)
		}
	})
}

// The memory of an order in Redis: what the design allows is 1200 bytes from deduct to landing, 900 afterwards.
func TestMemoryOfAnOrder(t *testing.T) {
	srv := testserver.NewRedis(t)
	e := &env{T: t, rdb: srv.Client(t), prefix: "shop:"}
	c := e.counter(WithHold(30*time.Minute), WithStream())
	e.warm(c, Sale{Activity: 9, Units: 100_000, Limit: Limit{Units: 1}})
	used := func() int64 {
		var n int64
		info := e.rdb.Info(t.Context(), "memory").Val()
		_, rest, _ := strings.Cut(info, "used_memory:")
		fmt.Sscan(rest, &n)
		return n
	}
	const orders = 8192 // a hash table of Redis is largest, for what it holds, just behind a power of two
	before := used()
	take := func(i int) *request {
		r, err := c.check(t.Context(), &Order{Item: 1001, Activity: 9, User: 1_000_000 + i, Units: 1, RequestID: fmt.Sprintf("%043d", i)})
		if err != nil {
			t.Fatal(err)
		}
		r.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		return r
	}
	ids := make([]string, orders)
	parallel(64, func(w int) {
		for i := w; i < orders; i += 64 {
			res, err := c.take(t.Context(), take(i))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = res.Order
		}
	})
	full := (used() - before) / orders
	parallel(64, func(w int) {
		for i := w; i < orders; i += 64 {
			if _, err := c.Confirm(t.Context(), ids[i]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	e.rdb.Del(t.Context(), "shop:stock:orders")
	landed := (used() - before) / orders
	t.Logf("%d bytes an order from deduct to landing, %d once landed and confirmed", full, landed)
	if full > 1200 || landed > 900 {
		t.Errorf("an order takes %d bytes, and %d once landed and confirmed; want at most 1200 and 900", full, landed)
	}
}

// A hold that somebody has overwritten is reported, and does not keep the holds behind it from being ended.
func TestUnreadableHoldIsPassedOver(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Hour))
		e.warm(c, Sale{Units: 5})
		broken, sound := e.deduct(c, e.order(1)).Order, e.deduct(c, e.order(2)).Order
		for score, order := range []string{broken, sound} {
			e.rdb.ZAdd(t.Context(), e.key("stock:deadlines"), redis.Z{Score: float64(score), Member: order})
		}
		e.hset("stock:hold:"+broken, "taken", "x")
		holds, err := c.Expired(t.Context(), 10)
		if typed := e.wants(err, ErrInvalid, "Expired"); typed.ErrorType() != "corrupt" || len(holds) != 1 || holds[0].Order != sound {
			t.Errorf("Expired = %+v, %v; want the other hold beside the error", holds, err)
		}
		// Nor does it when only one is asked for.
		holds, err = c.Expired(t.Context(), 1)
		if e.wants(err, ErrInvalid, "Expired"); len(holds) != 1 || holds[0].Order != sound {
			t.Errorf("Expired = %+v, %v; want the other hold beside the error", holds, err)
		}
	})
}

// A hold that cannot be ended now is put off: those behind it come first, and it comes again when the time has passed. One that
// has ended is not put back on the list.
func TestPostponedHold(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Hour))
		e.warm(c, Sale{Units: 5})
		stuck, behind := e.deduct(c, e.order(1)).Order, e.deduct(c, e.order(2)).Order
		due := func(score float64, order string) {
			e.rdb.ZAdd(t.Context(), e.key("stock:deadlines"), redis.Z{Score: score, Member: order})
		}
		due(1, stuck)
		due(2, behind)
		first := func(want string) Hold {
			t.Helper()
			holds, err := c.Expired(t.Context(), 1)
			if err != nil || len(holds) != 1 || holds[0].Order != want {
				t.Fatalf("Expired = %+v, %v; want %s", holds, err, want)
			}
			return holds[0]
		}
		h := first(stuck)
		if err := c.Postpone(t.Context(), &h, time.Minute); err != nil {
			t.Fatal(err)
		}
		first(behind)
		due(1, stuck)
		if again := first(stuck); again != h {
			t.Errorf("the hold has changed: %+v, was %+v", again, h)
		}
		if _, err := c.Release(t.Context(), h.Order, Unpaid); err != nil {
			t.Fatal(err)
		}
		e.unchanged("putting off what has ended", func() {
			if err := c.Postpone(t.Context(), &h, time.Minute); err != nil {
				t.Error(err)
			}
			e.wants(c.Postpone(t.Context(), &h, 0), ErrInvalid, "for no time")
			e.wants(c.Postpone(t.Context(), &Hold{Entry: h.Entry}, time.Minute), ErrInvalid, "a hold of the caller's own")
		})
	})
}
