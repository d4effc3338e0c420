package crash

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/checker"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/stock"
)

func text(n int64) string { return strconv.FormatInt(n, 10) }

// age lets the time pass after which what a dead process had in hand may be taken by another one: entries of the stream,
// which a worker claims after 30 s, and requests that ran, whose lease is 30 s. It returns how many entries were in hand.
func (w *world) age() (inHand int) {
	w.Helper()
	for _, stream := range w.counter.Streams() {
		groups, err := w.rdb.XInfoGroups(w.ctx, stream).Result()
		if err != nil {
			continue // no stream
		}
		for _, g := range groups {
			for _, p := range w.pending(stream, g.Name) {
				w.must(w.rdb.Do(w.ctx, "XCLAIM", stream, g.Name, p.Consumer, 0, p.ID, "IDLE", 60_000, "RETRYCOUNT", p.RetryCount, "JUSTID").Err())
				inHand++
			}
		}
	}
	for _, key := range w.keys("idem:") {
		w.must(w.rdb.Eval(w.ctx, lapse, []string{key}).Err())
	}
	return inHand
}

// lapse ends the lease of a request that runs. Look and write are one step: a shop that forgets the record between them would
// leave one that nobody can read.
const lapse = `if redis.call('HGET', KEYS[1], 'st') == 'running' then return redis.call('HSET', KEYS[1], 'lease', '1') end return 0`

func (w *world) pending(stream, group string) []redis.XPendingExt {
	w.Helper()
	list, err := w.rdb.XPendingExt(w.ctx, &redis.XPendingExtArgs{Stream: stream, Group: group, Start: "-", End: "+", Count: 10_000}).Result()
	w.must(err)
	return list
}

func (w *world) keys(family string) []string {
	w.Helper()
	var keys []string
	it := w.rdb.Scan(w.ctx, 0, w.setup.Prefix+family+"*", 1000).Iterator()
	for it.Next(w.ctx) {
		keys = append(keys, it.Val())
	}
	w.must(it.Err())
	return keys
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// insist asks for the wish until the answer is final, or patience ends; without patience an answer that is not final will do.
func (w *world) insist(o wish, patience time.Duration) (a answer) {
	for end := time.Now().Add(patience); ; {
		a = w.market.buy(w.ctx, w.shop.addr, o)
		if a.final() || time.Now().After(end) || w.ctx.Err() != nil || !w.shop.alive() {
			return a
		}
		pause(20 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.After(d) }

// redeliver puts a copy of each order that SQL knows into the stream, three times and shuffled: as an operator who replays,
// or a Redis that was restored, may do it.
func (w *world) redeliver() {
	w.Helper()
	if w.setup.Landing {
		w.must(w.deliver(w.rows()))
	}
}

// deliver puts copies of orders into the stream.
func (w *world) deliver(rows []seckillOrder) error {
	w.Helper()
	type copied struct {
		stream string
		values map[string]any
	}
	var all []copied
	for _, r := range rows {
		stream := w.counter.Streams()[0]
		if w.setup.Segments {
			_, part, _ := strings.Cut(r.OrderNo[len(r.OrderNo)-3:], "-")
			n, err := strconv.Atoi(part)
			w.must(err)
			stream = w.counter.Streams()[n]
		}
		entry := map[string]any{
			"order": r.OrderNo, "request": r.RequestID,
			"what":  fmt.Sprintf("%d::%d:%d:%d", r.ItemID, r.ActivityID, r.UserID, r.Units),
			"taken": fmt.Sprintf("%d %d", r.Nth, r.CreateTime.UnixMilli()),
		}
		if e, err := stock.ParseEntry(entry); err != nil || rowOf(e).UserID != r.UserID {
			w.Fatalf("entries of the stream have another form by now: %+v, %v", e, err)
		}
		all = append(all, copied{stream, entry}, copied{stream, entry}, copied{stream, entry})
	}
	w.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, c := range all {
		_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
			p.XAdd(w.ctx, &redis.XAddArgs{Stream: c.stream, Values: c.values})
			p.Expire(w.ctx, c.stream, time.Hour)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// landed waits until the streams are empty and nothing is pending.
func (w *world) landed() {
	w.Helper()
	if !w.setup.Landing {
		return
	}
	testserver.Eventually(w, patience, func() bool {
		w.living()
		n, err := w.backlog()
		return err == nil && n == 0
	}, "every accepted order has landed")
}

// promised checks that each order that somebody was told of has a row by now: before the sweeper makes one for it.
func (w *world) promised() {
	w.Helper()
	if w.forgot {
		return
	}
	there := map[string]bool{}
	for _, r := range w.rows() {
		there[r.OrderNo] = true
	}
	for _, r := range w.market.history() {
		if (r.Outcome == checker.Deducted || r.Outcome == checker.Replayed) && !there[r.Order] {
			w.Errorf("user %s was told of order %s, which has not landed", r.User, r.Order)
		}
	}
}

// backlog is how many entries are in the streams, and in the hands of workers.
func (w *world) backlog() (n int64, err error) {
	for _, stream := range w.counter.Streams() {
		there, err := w.rdb.Exists(w.ctx, stream).Result()
		if err != nil {
			return 0, err
		}
		if there == 0 {
			continue
		}
		length, err := w.rdb.XLen(w.ctx, stream).Result()
		if err != nil {
			return 0, err
		}
		groups, err := w.rdb.XInfoGroups(w.ctx, stream).Result()
		if err != nil {
			return 0, err
		}
		n += length
		for _, g := range groups {
			n += g.Pending
		}
	}
	return n, nil
}

// swept lets all deadlines pass and sweeps until nothing is held any more.
func (w *world) swept() {
	w.Helper()
	if !w.setup.Landing {
		return
	}
	testserver.Eventually(w, patience, func() bool {
		w.living()
		n, due, err := w.held()
		if err != nil || n > 0 && due.After(time.Now()) {
			return false // a shop that is asked before has only work with it
		}
		if n == 0 {
			return true
		}
		w.market.post(w.ctx, w.shop.addr, "/sweep", wish{key: "sweep"})
		return false
	}, "everything held has ended")
}

// overdue waits until the deadline of all that is held has passed.
func (w *world) overdue() {
	w.Helper()
	testserver.Eventually(w, patience, func() bool {
		if _, due, err := w.held(); err != nil || due.After(time.Now()) {
			return false
		}
		late, err := w.counter.Expired(w.ctx, 1000)
		w.must(err)
		held, _, err := w.held()
		w.must(err)
		return int64(len(late)) == held
	}, "all deadlines have passed")
}

// reconciled compares the two sides, applies the plan, and compares again until nothing is found. What Redis knows nothing
// of any more is warmed up with the units that SQL has, as the report says.
func (w *world) reconciled() {
	w.Helper()
	for range 5 {
		found, err := reconcile(w.ctx, w.lander, int64(theItem))
		w.must(err)
		if len(found) == 0 {
			return
		}
		for _, d := range found {
			says := w.Logf
			if !w.mayDiffer(d.Class) {
				says = w.Errorf // a plan would heal it, and hide what somebody has done wrong
			}
			says("reconciled: %s item %s order %s units %d", d.Class, d.Item, d.Order, d.Units)
			if d.Class == landing.NotWarmed {
				w.warm(theItem, max(d.SQL, 1)) // none is refused; the next plan withdraws the one
			}
		}
	}
	w.Error("Redis and SQL differ, however often a plan is applied")
}

// mayDiffer tells whether what has been broken explains a difference. A counter that was lost or changed explains no hold, no
// marker and no order; a Redis that has forgotten explains what is missing there, and what a request did once more.
func (w *world) mayDiffer(c landing.Class) bool {
	may := []landing.Class{landing.RedisAbove, landing.OrdersAbove, landing.CounterGone, landing.Withheld, landing.Frozen}
	if w.forgot {
		may = append(may, landing.RedisBelow, landing.NotWarmed, landing.OrderWithoutHold, landing.HoldWithoutOrder,
			landing.OrderWithoutMarker, landing.MarkerWithoutOrder)
	}
	return slices.Contains(may, c)
}

// held is how many holds have a deadline still, and when the first one is due.
func (w *world) held() (n int64, due time.Time, err error) {
	for _, stream := range w.counter.Streams() {
		all, err := w.rdb.ZRangeWithScores(w.ctx, strings.TrimSuffix(stream, "orders")+"deadlines", 0, -1).Result()
		if err != nil {
			return 0, time.Time{}, err
		}
		n += int64(len(all))
		if len(all) == 0 {
			continue
		}
		if at := time.UnixMilli(int64(all[0].Score)); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return n, due, nil
}

// judge returns what is wrong.
func (w *world) judge() []checker.Finding {
	w.Helper()
	w.noLocks()
	kept, err := checker.ReadRedis(w.ctx, w.rdb, w.setup.Prefix)
	w.must(err)
	rows, err := checker.ReadSQL(w.ctx, w.pool, checker.Seckill())
	w.must(err)
	return checker.Check(checker.Run{
		Sales: w.sales, History: w.market.history(), Redis: kept, SQL: rows, Settled: true, Forgot: w.forgot, Miscounted: w.miscounted,
	})
}

// noLocks waits until no lock is left, which must be within its TTL: none may live longer than that from now on.
func (w *world) noLocks() {
	w.Helper()
	keys := w.lockLives()
	if len(keys) == 0 {
		return
	}
	testserver.Eventually(w, lockTTL+5*time.Second, func() bool {
		n, err := w.rdb.Exists(w.ctx, keys...).Result()
		return err == nil && n == 0
	}, "no lock is left behind")
}

// lockLives returns the locks that there are, and checks that none lives longer than its TTL from now on.
func (w *world) lockLives() []string {
	w.Helper()
	keys := w.keys("lock:")
	for _, key := range keys {
		life, err := w.rdb.PTTL(w.ctx, key).Result()
		w.must(err)
		if life == -1 || life > lockTTL {
			w.Errorf("invariant 6: the lock %s lives for %v more, its TTL is %v", key, life, lockTTL)
		}
	}
	return keys
}

// clean fails the test if anything is wrong.
func (w *world) clean() {
	w.Helper()
	found := w.judge()
	for _, f := range found {
		w.Error(f)
	}
	if n, err := w.backlog(); err != nil || n > 0 {
		w.Errorf("%d entries are left in the streams, %v", n, err)
	}
	w.living()
	if w.Failed() {
		w.dump()
	}
}

// dump shows what led there.
func (w *world) dump() {
	for _, r := range w.market.history() {
		w.Logf("answer: user %s %s order %q request %.8s at %s", r.User, r.Outcome, r.Order, r.Request, r.End.Format("05.000"))
	}
	for _, r := range w.rows() {
		why := ""
		if r.CloseReason != nil {
			why = *r.CloseReason
		}
		w.Logf("row: user %d order %s request %.8s status %d %s", r.UserID, r.OrderNo, r.RequestID, r.Status, why)
	}
	for i, c := range w.children {
		if lines := strings.Split(strings.TrimSpace(c.log.String()), "\n"); lines[0] != "" {
			w.Logf("shop %d:\n%s", i+1, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
}

// rows returns the orders that are in SQL.
func (w *world) rows() []seckillOrder {
	w.Helper()
	var rows []seckillOrder
	w.must(w.db.Order("id").Find(&rows).Error)
	return rows
}
