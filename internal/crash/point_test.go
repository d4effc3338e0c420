package crash

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// point is an arrow between two steps: the command at which it is broken, before the command is executed or after.
type point struct {
	name, arrow string
	stage       stage
	script      string // in Redis, "package/name"; or
	sql         string // the statement's first word, and a text in it
	of          string
	done        bool   // broken when the command has been executed, and its reply is under way
	late        bool   // the command arrives after its sender has died
	dieAt       string // a kill is in the shop's own code
	second      bool   // the second order's: recovery will end it the other way if it can
}

// withLanding are the points of a shop whose orders land by a worker, with holds and a stream.
var withLanding = []point{
	{name: "1", arrow: "lock acquired, script not sent", stage: order, script: "stock/deduct"},
	{name: "2", arrow: "script sent, not done", stage: order, script: "stock/deduct", late: true},
	{name: "3", arrow: "script done, no reply", stage: order, script: "stock/deduct", done: true},
	{name: "4", arrow: "reply received, message stored", stage: order, script: "stock/deduct", done: true, dieAt: "deducted"},
	{name: "4b", arrow: "all done, no answer", stage: order, script: "dedup/complete", dieAt: "done"},
	{name: "5", arrow: "message stored, not read", stage: land, script: "landing/take"},
	{name: "5b", arrow: "message read, no reply", stage: land, script: "landing/take", done: true},
	{name: "6", arrow: "message read, order not inserted", stage: land, sql: "INSERT", of: "seckill_order"},
	{name: "7", arrow: "order inserted, stock not updated", stage: land, sql: "UPDATE", of: "item_stock"},
	{name: "8", arrow: "stock updated, no commit", stage: land, sql: "COMMIT"},
	{name: "8b", arrow: "committed, no reply", stage: land, sql: "COMMIT", done: true},
	{name: "9", arrow: "committed, not acknowledged", stage: land, script: "landing/done"},
	{name: "10", arrow: "acknowledged, no reply", stage: land, script: "landing/done", done: true},
	{name: "10b", arrow: "done, not unlocked", stage: order, script: "lock/release"},
	{name: "10c", arrow: "to be closed, no commit", stage: closing, sql: "COMMIT"},
	{name: "10d", arrow: "closed, no reply", stage: closing, sql: "COMMIT", done: true},
	{name: "11", arrow: "closed in SQL, not released", stage: closing, script: "stock/release"},
	{name: "11b", arrow: "swept in SQL, not released", stage: sweep, script: "stock/release"},
	{name: "12", arrow: "released, no reply", stage: closing, script: "stock/release", done: true},
	{name: "12b", arrow: "released again for a late entry, not acknowledged", stage: stale, script: "landing/done"},
	{name: "12c", arrow: "to be paid, no commit", stage: pay, sql: "COMMIT", second: true},
	{name: "12d", arrow: "paid, no reply", stage: pay, sql: "COMMIT", done: true, second: true},
	{name: "13", arrow: "paid in SQL, not confirmed", stage: pay, script: "stock/confirm"},
	{name: "13b", arrow: "confirmed, no reply", stage: pay, script: "stock/confirm", done: true},
	{name: "14", arrow: "transfer taken, not given", stage: transfer, script: "stock/move_give"},
	{name: "14b", arrow: "transfer given, no reply", stage: transfer, script: "stock/move_give", done: true},
	{name: "15", arrow: "plan written, not applied", stage: reconciling, script: "stock/adjust"},
	{name: "15b", arrow: "plan applied, no reply", stage: reconciling, script: "stock/adjust", done: true},
}

// inHandler are the points of a shop whose orders land in the handler, with neither holds nor a stream.
var inHandler = []point{
	{name: "1", arrow: "lock acquired, script not sent", stage: order, script: "stock/deduct"},
	{name: "2", arrow: "script sent, not done", stage: order, script: "stock/deduct", late: true},
	{name: "3", arrow: "script done, no reply", stage: order, script: "stock/deduct", done: true},
	{name: "7", arrow: "order inserted, stock not updated", stage: order, sql: "UPDATE", of: "item_stock"},
	{name: "8", arrow: "stock updated, no commit", stage: order, sql: "COMMIT"},
	{name: "8b", arrow: "committed, no reply", stage: order, sql: "COMMIT", done: true},
	{name: "9", arrow: "committed, answer not stored", stage: order, script: "dedup/complete"},
	{name: "10", arrow: "done, not unlocked", stage: order, script: "lock/release"},
	{name: "10c", arrow: "to be closed, no commit", stage: closing, sql: "COMMIT"},
	{name: "10d", arrow: "closed, no reply", stage: closing, sql: "COMMIT", done: true},
	{name: "11", arrow: "closed in SQL, not released", stage: closing, script: "stock/release"},
	{name: "12", arrow: "released, no reply", stage: closing, script: "stock/release", done: true},
	{name: "12c", arrow: "to be paid, no commit", stage: pay, sql: "COMMIT", second: true},
	{name: "12d", arrow: "paid, no reply", stage: pay, sql: "COMMIT", done: true, second: true},
}

// rule breaks the point's n-th command.
func (p *point) rule(w *world, n int, a faultproxy.Action) *faultproxy.Rule {
	w.Helper()
	if p.sql != "" {
		return w.toSQL.On(faultproxy.Named(p.sql).Containing(p.of).Nth(n), a)
	}
	sha, known := w.scripts[p.script]
	if !known {
		w.Fatalf("the shop has not loaded the script %s", p.script)
	}
	return w.toRedis.On(faultproxy.Any().Containing(sha).Nth(n), a)
}

// stage is what the shop does when the point comes.
type stage int

const (
	order stage = iota
	land
	closing
	pay
	sweep
	stale
	transfer
	reconciling
)

// The buyers of a case: one more than there are units, and one user with two wishes.
const (
	theItem  = 1001
	theUnits = 4
)

func (s stage) units() int64 {
	if s == transfer {
		return 3 * segments // enough for some segment to run dry before the others
	}
	return theUnits
}

// wishes are what clients want in a case: more than there is, and one user twice.
func (s stage) wishes() []wish {
	var list []wish
	for user := int64(1); user <= s.units()+2; user++ {
		list = append(list, wish{key: "key-" + text(user), user: user, item: theItem})
	}
	return append(list, wish{key: "key-again", user: 1, item: theItem})
}

// prepare brings the shop to where the stage begins.
func (s stage) prepare(w *world) {
	w.Helper()
	if s == order || s == transfer {
		return
	}
	s.shop(w)
	switch s {
	case pay, closing, sweep, reconciling:
		w.work()
		w.landed()
	case stale:
		w.swept()
	}
	switch s {
	case sweep:
		w.overdue()
	case reconciling: // somebody has been at the counter, so that what Redis knows is wrong
		w.miscounted = true
		w.must(w.rdb.IncrBy(w.ctx, w.setup.Prefix+"stock:item:"+text(theItem), 2).Err())
	}
}

// act does what the stage is about, and returns when the clients have their answers or have given up.
func (s stage) act(w *world) {
	switch s {
	case order, transfer:
		s.shop(w)
	case land, stale:
		w.work()
	case closing:
		for _, r := range w.live(2) {
			w.market.end(w.ctx, w.shop.addr, r.OrderNo, "close")
		}
	case pay:
		for _, r := range w.live(2) {
			w.market.end(w.ctx, w.shop.addr, r.OrderNo, "pay")
		}
	case sweep:
		w.market.post(w.ctx, w.shop.addr, "/sweep", wish{key: "sweep"})
	case reconciling:
		w.market.post(w.ctx, w.shop.addr, "/reconcile", wish{key: "reconcile"})
	}
}

// shop has everybody ask once, all at the same time.
func (s stage) shop(w *world) {
	var all sync.WaitGroup
	for _, o := range s.wishes() {
		all.Go(func() { w.market.buy(w.ctx, w.shop.addr, o) })
	}
	all.Wait()
}

// work starts the worker.
func (w *world) work() {
	if w.setup.Landing {
		w.market.post(w.ctx, w.shop.addr, "/work", wish{key: "work"})
	}
}

// live returns up to n live orders.
func (w *world) live(n int) (rows []seckillOrder) {
	for _, r := range w.rows() {
		if r.Status == unpaid && len(rows) < n {
			rows = append(rows, r)
		}
	}
	return rows
}

// recovered brings everything to its end: clients ask three times, orders are paid and closed three times, entries come
// three times, deadlines pass and the sweeper runs. Where the books may differ they are reconciled, and then clients come
// once more.
func (w *world) recovered(p *point, killed bool) {
	w.Helper()
	w.setup.DieAt = ""
	w.open()
	if killed {
		w.age()
	}
	w.work()
	w.repeat(p.stage.wishes(), 3)
	w.landed()
	w.promised()
	w.endAll(3)
	w.redeliver()
	w.landed()
	w.swept()
	if w.forgot || w.miscounted {
		w.reconciled()
		w.repeat(p.stage.wishes(), 1)
		w.landed()
		w.swept()
		w.reconciled()
	}
	w.truthful(p.stage.wishes())
	w.redeliver()
	w.landed()
	w.swept()
}

// repeat has all clients ask until their answers are final, so many times.
func (w *world) repeat(wishes []wish, times int) {
	w.Helper()
	for range times {
		var all sync.WaitGroup
		for _, o := range wishes {
			all.Go(func() {
				if a := w.insist(o, patience); !a.final() {
					w.Errorf("user %d has no final answer within %v: the last one was %d %s", o.user, patience, a.status, a.code)
				}
			})
		}
		all.Wait()
		w.living()
	}
}

// truthful has everybody ask once more while nothing else happens, one behind the other: the answer must be final, and
// it must be what both stores say.
func (w *world) truthful(wishes []wish) {
	w.Helper()
	answers := map[string]answer{}
	for _, o := range wishes {
		left, err := w.counter.Remaining(w.ctx, o.item)
		w.must(err)
		a := w.insist(o, patience)
		answers[o.key] = a
		switch {
		case !a.final():
			w.Errorf("at rest user %d has no final answer within %v: the last one was %d %s", o.user, patience, a.status, a.code)
		case a.code == string(fault.Insufficient) && left > 0:
			w.Errorf("at rest user %d was told that item %d is sold out, and %d units were left", o.user, o.item, left)
		}
	}
	w.living()
	w.landed()
	rows, alive := map[string]seckillOrder{}, map[int64]bool{}
	for _, r := range w.rows() {
		rows[r.RequestID] = r
		alive[r.UserID] = alive[r.UserID] || r.Status != closed
	}
	for _, o := range wishes {
		a := answers[o.key]
		row, there := rows[w.market.requestOf(o)]
		live := there && row.Status != closed
		says := fmt.Sprintf("at rest user %d, request %.8s, was answered %d %s order %q", o.user, w.market.requestOf(o), a.status, a.code, a.order)
		switch {
		case !a.final() || w.forgot: // of several orders that Redis has told of, SQL has one at most
		case a.ok() && (!there || row.OrderNo != a.order || row.UserID != o.user || row.ItemID != o.item):
			w.Errorf("%s; the row: %+v", says, row)
		case !a.ok() && live:
			w.Errorf("%s, and the order is live: %+v", says, row)
		case a.ok(), a.code == string(fault.Insufficient):
		case a.code == string(fault.Released):
			if !there {
				w.Errorf("%s, and there is no row of it", says)
			}
		case a.code == string(fault.LimitReached), a.code == string(fault.Duplicate):
			if !alive[o.user] {
				w.Errorf("%s, and the user has no live order", says)
			}
		default:
			w.Errorf("%s: not true of a sale that is on", says)
		}
	}
}

// endAll has some orders paid and some closed, and asks again what was asked before.
func (w *world) endAll(times int) {
	for range times {
		for i, r := range w.rows() {
			switch {
			case r.Status == paid, r.Status == unpaid && i%3 == 0:
				w.market.end(w.ctx, w.shop.addr, r.OrderNo, "pay")
			case r.Status == closed, i%3 == 1:
				w.market.end(w.ctx, w.shop.addr, r.OrderNo, "close")
			}
		}
	}
}

// newCase makes a world in which a point of a shop can come.
func newCase(t testing.TB, p *point, landing bool, stands stands, seed uint64) *world {
	t.Helper()
	s := setup{Landing: landing, Lock: p.stage != transfer, Segments: p.stage == transfer}
	return newWorld(t, s, stands, seed, item{theItem, p.stage.units()})
}
