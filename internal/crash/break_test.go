package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// breakage is what happens when a point comes.
type breakage struct {
	name   string
	action func(p *point) faultproxy.Action
	then   func(w *world, p *point, r *faultproxy.Rule) // when the command has met the rule
	// applies tells whether it breaks anything that the point needs, nil: it always does.
	applies func(p *point, landing bool) bool
	kills   bool
	loses   bool // what the stage writes to Redis before the breakage is lost
}

// kill ends the shop there and then.
var kill = breakage{
	name: "kill", kills: true,
	action: func(p *point) faultproxy.Action {
		switch {
		case p.late:
			return faultproxy.HoldRequest()
		case p.done:
			return faultproxy.HangReply()
		}
		return faultproxy.HangRequest()
	},
	then: func(w *world, _ *point, r *faultproxy.Rule) {
		w.Helper()
		w.shop.kill()
		w.lockLives()
		r.Release()
	},
}

// lost is a connection that breaks: without the command having arrived, or half of it, or its reply.
var lost = breakage{
	name: "lost",
	action: func(p *point) faultproxy.Action {
		switch {
		case p.late:
			return faultproxy.CutRequest(60)
		case p.dieAt != "":
			return faultproxy.CutReply(3)
		case p.done:
			return faultproxy.LoseReply()
		}
		return faultproxy.LoseRequest()
	},
	then: func(*world, *point, *faultproxy.Rule) {},
}

// held keeps the command, or its reply, while something happens.
func held(p *point) faultproxy.Action {
	if p.done {
		return faultproxy.HoldReply()
	}
	return faultproxy.HoldRequest()
}

// underLock tells whether whoever sends the point's command has a lock: the answer is stored after it was given up.
func underLock(p *point, _ bool) bool { return p.stage == order && p.script != "dedup/complete" }

// lockLost takes all locks away from their holders.
var lockLost = breakage{name: "lock lost", action: held, applies: underLock, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	keys := w.keys("lock:")
	if len(keys) == 0 {
		w.Error("nobody has a lock that could be lost")
	} else {
		w.must(w.rdb.Del(w.ctx, keys...).Err())
	}
	r.Release()
}}

// stopped stops the shop for longer than a lock lives; only then does the command arrive, or its reply.
var stopped = breakage{name: "shop stopped", action: held, applies: underLock, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.shop.stop(lockTTL+lockTTL/2, func() {
		if keys := w.keys("lock:"); len(keys) > 0 {
			w.Errorf("the locks of a shop that is stopped for longer than their TTL are still there: %v", keys)
		}
		r.Release()
	})
}}

// evicted takes the counters away, as a Redis does that is set to evict.
var evicted = breakage{name: "counter evicted", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.miscounted = true
	for _, key := range w.keys("stock:") {
		if strings.HasSuffix(key, ":item:"+text(theItem)) {
			w.must(w.rdb.Del(w.ctx, key).Err())
		}
	}
	r.Release()
}}

// redisFull lets Redis refuse every write for a while.
var redisFull = breakage{name: "Redis full", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.must(w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err())
	r.Release()
	pause(300 * time.Millisecond)
	w.must(w.rdb.ConfigSet(w.ctx, "maxmemory", "0").Err())
}}

// readOnly has Redis refuse every write for a while as a replica does: to a client, a failover whose news has not come yet.
var readOnly = breakage{name: "Redis read-only", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.must(w.rdb.Do(w.ctx, "REPLICAOF", "127.0.0.1", "1").Err()) // a primary that is not there
	r.Release()
	pause(300 * time.Millisecond)
	w.must(w.rdb.Do(w.ctx, "REPLICAOF", "NO", "ONE").Err())
}}

// serialization has somebody else write the items' rows behind the transaction's snapshot: SQLSTATE 40001.
var serialization = breakage{name: "serialization failure", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.must(w.db.Exec("UPDATE item_stock SET stock = stock").Error)
	r.Release()
}}

// sqlInUse tells whether SQL is used at the point, or soon after it: where a worker lands the orders, it has not begun then.
func sqlInUse(p *point, landing bool) bool {
	return p.stage != transfer && (p.stage != order || !landing)
}

// sqlRestarted restarts PostgreSQL, which keeps what was committed.
var sqlRestarted = breakage{name: "PostgreSQL restarted", action: held, applies: sqlInUse, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.restartSQL()
	r.Release()
}}

// redisRestarted restarts Redis, which keeps what it has answered.
var redisRestarted = breakage{name: "Redis restarted", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.redisSrv.Restart(w)
	r.Release()
}}

// redisEmptied restarts Redis without its data.
var redisEmptied = breakage{name: "Redis emptied", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.forgot = true
	w.redisSrv.RestartEmpty(w)
	r.Release()
}}

// failedOver makes the replica the primary, and what the stage has done in Redis until then is lost.
var failedOver = breakage{name: "Redis failed over", action: held, loses: true, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.forgot = true
	w.toRedis.Redirect(w.sentinel.Primary(w).Addr())
	w.toRedis.CutAll()
	r.Release()
}}

// breaks tells whether it breaks anything at a point.
func (b *breakage) breaks(p *point, landing bool) bool {
	return b.applies == nil || b.applies(p, landing)
}

// stands returns servers of the test's own where the breakage is of a server.
func (b *breakage) stands(t testing.TB) (s stands) {
	t.Helper()
	switch b.name {
	case redisFull.name, readOnly.name, redisEmptied.name:
		s.redis = testserver.NewRedis(t)
	case redisRestarted.name:
		s.redis = testserver.NewRedis(t, testserver.AppendOnly())
	case sqlRestarted.name:
		s.sql = testserver.NewPostgres(t)
	case serialization.name:
		s.sql = testserver.NewPostgres(t, testserver.PostgresConfig("default_transaction_isolation", "serializable"))
	case failedOver.name:
		s.sentinel = testserver.NewSentinel(t)
	}
	return s
}

// run plays a case: up to the point, the breakage, recovery, judgement.
func (b *breakage) run(t testing.TB, p *point, landing bool, seed uint64) {
	t.Helper()
	w := newCase(t, p, landing, b.stands(t), seed)
	if b.kills && p.dieAt != "" {
		w.setup.DieAt = p.dieAt
		w.open()
		over := time.Now().Add(patience)
		for p.stage.act(w); w.shop.alive(); p.stage.act(w) { // a slow machine may have refused them all
			if time.Now().After(over) {
				t.Fatalf("the shop does not die at %q within %v", p.dieAt, patience)
			}
			pause(100 * time.Millisecond)
		}
	} else {
		w.open()
		p.stage.prepare(w)
		b.meet(w, p)
	}
	w.toRedis.Heal(t)
	w.toSQL.Heal(t)
	w.recovered(p, b.kills)
	w.clean()
}

// meet has the stage acted until the point has come and the breakage has happened.
func (b *breakage) meet(w *world, p *point) {
	w.Helper()
	n := 1
	switch {
	case p.script == "stock/deduct":
		n += w.dice.IntN(theUnits)
	case p.second:
		n = 2
	}
	var rule *faultproxy.Rule
	acted := make(chan struct{})
	begin := func() {
		rule = p.rule(w, n, b.action(p))
		go func() {
			defer close(acted)
			for p.stage.act(w); rule.Fired() == 0 && w.ctx.Err() == nil; p.stage.act(w) { // a slow machine may have refused them all
				pause(100 * time.Millisecond)
			}
		}()
		rule.Wait(w)
	}
	if b.loses {
		w.sentinel.FailoverLosing(w, begin)
	} else {
		begin()
	}
	b.then(w, p, rule)
	<-acted
}
