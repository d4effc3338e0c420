package crash

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// breakage is what happens when a point comes.
type breakage struct {
	name   string
	action func(p *point) faultproxy.Action
	then   func(w *world, p *point, r *faultproxy.Rule) // when the command has met the rule
	kills  bool
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
		w.shop.kill()
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

// lockLost takes all locks away from their holders.
var lockLost = breakage{name: "lock lost", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	if keys := w.keys("lock:"); len(keys) > 0 {
		w.must(w.rdb.Del(w.ctx, keys...).Err())
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

// sqlRestarted restarts PostgreSQL, which keeps what was committed.
var sqlRestarted = breakage{name: "PostgreSQL restarted", action: held, then: func(w *world, _ *point, r *faultproxy.Rule) {
	w.Helper()
	w.sqlSrv.Restart(w)
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

// run plays a case: up to the point, the breakage, recovery, judgement.
func (b *breakage) run(t testing.TB, p *point, landing bool, stands stands, seed uint64) {
	t.Helper()
	w := newCase(t, p, landing, stands, seed)
	if b.kills && p.dieAt != "" {
		w.setup.DieAt = p.dieAt
		w.open()
		p.stage.act(w)
		<-w.shop.gone
	} else {
		w.open()
		p.stage.prepare(w)
		n := 1
		if p.script == "stock/deduct" {
			n += w.dice.IntN(theUnits)
		}
		rule := p.rule(w, n, b.action(p))
		acted := make(chan struct{})
		go func() {
			defer close(acted)
			p.stage.act(w)
		}()
		rule.Wait(t)
		b.then(w, p, rule)
		<-acted
	}
	w.toRedis.Heal(t)
	w.toSQL.Heal(t)
	w.recovered(p, b.kills)
	w.clean()
}
