package stock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// faulty is a real Redis with a proxy in front: counters of the env go through it, its client looks directly.
type faulty struct {
	*env
	proxy   *faultproxy.Proxy
	through *redis.Client
}

func newFaulty(t *testing.T, parts int, changes ...func(*redis.Options)) *faulty {
	srv := testserver.Redis(t)
	p := faultproxy.Redis(t, srv.Addr())
	f := &faulty{env: &env{T: t, rdb: srv.Client(t), prefix: srv.Prefix(t), parts: parts}, proxy: p}
	f.through = srv.Client(t, append(changes, func(o *redis.Options) { o.Addr = p.Addr() })...)
	return f
}

func (f *faulty) counter(more ...Option) *Counter {
	f.Helper()
	c, err := New(f.through, f.options(more...)...)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

func patient(o *redis.Options)   { o.ReadTimeout = patience }
func impatient(o *redis.Options) { o.ReadTimeout = time.Second }

// D55, F057, X05, D69f: one slow reply, with go-redis's options as they come: stock falls by the units of the order, once.
func TestSlowReplyWithDefaultOptions(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0)
	c := f.counter()
	f.warm(c, Sale{Units: 10})
	rule := f.proxy.On(faultproxy.Named("EVALSHA"), faultproxy.DelayReply(4*time.Second))
	o := f.order(1)
	o.Units = 3
	res, err := c.Deduct(t.Context(), o)
	if err != nil || res.Left != 7 || rule.Fired() != 1 {
		t.Errorf("Deduct = %+v, %v (rule fired %d times); want 7 left", res, err, rule.Fired())
	}
	f.left(c, 7)
}

// operation is a step whose every command may lose its reply.
type operation struct {
	name  string
	parts int
	setup func(f *faulty, c *Counter)
	do    func(f *faulty, c *Counter) (any, error)
}

func operations() []operation {
	ends := time.UnixMilli(4e12)
	sale := func(s Sale) func(f *faulty, c *Counter) {
		s.Ends = ends
		return func(f *faulty, c *Counter) { f.warm(c, s) }
	}
	order := Order{ID: "o", RequestID: "q", Item: 1001, User: 1, Units: 2}
	cart := Order{ID: "o", RequestID: "q", User: 1, Lines: []Line{{"a", nil, 1}, {"b", nil, 2}, {"c", nil, 3}}}
	items := func(f *faulty, c *Counter) {
		for _, item := range []ID{"a", "b", "c"} {
			f.warm(c, Sale{Item: item, Units: 9, Ends: ends})
		}
	}
	then := func(setup func(f *faulty, c *Counter), more func(f *faulty, c *Counter) (any, error)) func(f *faulty, c *Counter) {
		return func(f *faulty, c *Counter) {
			setup(f, c)
			if _, err := more(f, c); err != nil {
				f.Fatal(err)
			}
		}
	}
	deduct := func(o Order) func(f *faulty, c *Counter) (any, error) {
		return func(f *faulty, c *Counter) (any, error) {
			res, err := c.Deduct(f.Context(), o)
			res.Replayed = false // which of the two copies answered is the same to the caller
			return res, err
		}
	}
	units := func(got Ended, err error) (any, error) { return got.Units, err }
	return []operation{
		{"warm", 0, func(*faulty, *Counter) {}, func(f *faulty, c *Counter) (any, error) {
			_, err := c.Warm(f.Context(), Sale{Item: 1001, Units: 9, Ends: ends})
			return nil, err
		}},
		{"warm segments", 4, func(*faulty, *Counter) {}, func(f *faulty, c *Counter) (any, error) {
			_, err := c.Warm(f.Context(), Sale{Item: 1001, Units: 9, Segments: 3, Ends: ends})
			return nil, err
		}},
		{"warm over an activity", 16, func(*faulty, *Counter) {}, func(f *faulty, c *Counter) (any, error) {
			_, err := c.Warm(f.Context(), Sale{Item: 1001, Activity: 7, Units: 9, Ends: ends, Limit: Limit{Units: 1, Over: Activity}})
			return nil, err
		}},
		{"deduct", 0, sale(Sale{Units: 9, Limit: Limit{Units: 4}}), deduct(order)},
		{"cart", 0, items, deduct(cart)},
		{"cart in partitions", 16, items, deduct(cart)},
		{"deduct from another segment", 4, sale(Sale{Units: 2, Segments: 2, Limit: Limit{Units: 4}}), deduct(order)},
		{"confirm", 0, then(sale(Sale{Units: 9}), deduct(order)), func(f *faulty, c *Counter) (any, error) { return units(c.Confirm(f.Context(), "o")) }},
		{"release", 0, then(sale(Sale{Units: 9}), deduct(order)), func(f *faulty, c *Counter) (any, error) { return units(c.Release(f.Context(), "o", Unpaid)) }},
		{"release a part", 0, then(sale(Sale{Units: 9}), deduct(order)), func(f *faulty, c *Counter) (any, error) {
			return units(c.Release(f.Context(), "o", Operator, Units(1), Operation("op")))
		}},
		{"release a cart", 16, then(items, deduct(cart)), func(f *faulty, c *Counter) (any, error) {
			return units(c.Release(f.Context(), "o", Operator, Of(cart)))
		}},
		{"release what SQL refused", 0, then(sale(Sale{Units: 9}), deduct(order)), func(f *faulty, c *Counter) (any, error) {
			return units(c.Release(f.Context(), "o", Insufficient))
		}},
		{"release what SQL refused of segments", 4, then(sale(Sale{Units: 9, Segments: 3}), deduct(order)), func(f *faulty, c *Counter) (any, error) {
			return units(c.Release(f.Context(), "o", Insufficient, Of(order)))
		}},
		{"restock", 0, sale(Sale{Units: 9}), func(f *faulty, c *Counter) (any, error) { return c.Adjust(f.Context(), 1001, 5, "op", "me") }},
		{"withdraw", 4, sale(Sale{Units: 9, Segments: 3}), func(f *faulty, c *Counter) (any, error) { return c.Adjust(f.Context(), 1001, -8, "op", "me") }},
		{"pause", 4, sale(Sale{Units: 9, Segments: 3}), func(f *faulty, c *Counter) (any, error) { return nil, c.Pause(f.Context(), 1001) }},
		{"thaw", 0, then(then(sale(Sale{Units: 9}), deduct(order)), func(f *faulty, c *Counter) (any, error) {
			return units(c.Release(f.Context(), "o", Insufficient))
		}), func(f *faulty, c *Counter) (any, error) { return c.Thaw(f.Context(), 1001, "op", "me") }},
		{"expired", 4, then(sale(Sale{Units: 9, Segments: 3}), deduct(order)), func(f *faulty, c *Counter) (any, error) {
			holds, err := c.Expired(f.Context(), 10)
			return len(holds), err
		}},
	}
}

// A01 and rule 1: whichever command of an operation loses its reply, or is carried out twice, the answer and what is
// stored are those of an undisturbed run.
func TestLostReplyAtEachCommand(t *testing.T) {
	t.Parallel()
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, nth int, fault faultproxy.Action, client func(*redis.Options)) (answer any, stored map[string]string, fired int) {
				f := newFaulty(t, op.parts, client)
				op.setup(f, f.env.counter(WithHold(time.Hour), WithStream()))
				c := f.counter(WithHold(time.Hour), WithStream())
				rule := f.proxy.On(faultproxy.Named("EVALSHA").Nth(nth), fault)
				answer, err := op.do(f, c)
				if err != nil {
					t.Errorf("command %d: %v", nth, err)
				}
				return answer, withoutRandom(withoutTimes(f.dump())), rule.Fired()
			}
			want, stored, _ := run(t, 1000, faultproxy.LoseReply(), patient)
			for _, fault := range []struct {
				kind   string
				action faultproxy.Action
				client func(*redis.Options)
				most   int
			}{
				{"lost reply", faultproxy.LoseReply(), patient, 1000},
				{"done twice", faultproxy.Repeat(), patient, 1000},
				{"hanging reply", faultproxy.HangReply(), impatient, 1},
			} {
				kind := fault.kind
				for nth := 1; nth <= fault.most; nth++ {
					got, after, fired := run(t, nth, fault.action, fault.client)
					if fired == 0 {
						if nth == 1 {
							t.Error("no command was sent")
						}
						break
					}
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%s at command %d: answer %v, want %v", kind, nth, got, want)
					}
					if !maps.Equal(after, stored) {
						t.Errorf("%s at command %d: stored\n%v\nwant\n%v", kind, nth, after, stored)
					}
				}
			}
		})
	}
}

// withoutRandom leaves out names that are made anew in each run: those of transfers and of runners.
func withoutRandom(dump map[string]string) map[string]string {
	clean := map[string]string{}
	for _, key := range slices.SortedFunc(maps.Keys(dump), func(a, b string) int { return strings.Compare(dump[a], dump[b]) }) {
		clean[randomID.ReplaceAllString(key, "ID")] += randomID.ReplaceAllString(dump[key], "ID")
	}
	return clean
}

// Failure points 2 and 3, for an order in several partitions: the process dies at any command. Whoever repeats the request
// finds nothing or everything: the units fall once, or not at all.
func TestCartWhoseRunnerDies(t *testing.T) {
	t.Parallel()
	for _, short := range []bool{false, true} { // whether the last line can be served
		for nth := 1; ; nth++ {
			f := newFaulty(t, 16, patient, func(o *redis.Options) { o.MaxRetries = -1 })
			through, direct := f.counter(WithHold(time.Hour), WithStream()), f.env.counter(WithHold(time.Hour), WithStream())
			left := f.items(direct, Limit{Units: 3}, map[ID]int64{"a": 9, "b": 9, "c": 2})
			o := f.cart(1, Line{"a", nil, 1}, Line{"b", nil, 2}, Line{"c", nil, 2})
			if short {
				o.Lines[2].Units = 3
			}
			rule := f.proxy.On(faultproxy.Named("EVALSHA").Nth(nth).Always(), faultproxy.LoseRequest())
			_, err := through.Deduct(t.Context(), o)
			if rule.Fired() == 0 {
				break
			}
			if err == nil || errors.Is(err, ErrInsufficient) {
				t.Errorf("command %d was lost and the answer is %v", nth, err)
			}
			if _, err := direct.Deduct(t.Context(), o); err != nil && !errors.Is(err, ErrInFlight) && (!short || !errors.Is(err, ErrInsufficient)) {
				t.Errorf("command %d, repeated at once: %v", nth, err)
			}
			direct.takeOver = 0
			res, err := direct.Deduct(t.Context(), o)
			if short {
				f.wants(err, ErrInsufficient, "command %d, repeated later", nth)
				left("a", 9)
				left("b", 9)
				left("c", 2)
				if n := len(f.entries(direct)); n != 0 {
					t.Errorf("command %d: %d entries for an order that was refused", nth, n)
				}
				// The user's chance is not used up.
				f.deduct(direct, Order{Item: "c", User: 1, Units: 2, RequestID: f.id()})
				continue
			}
			if err != nil {
				t.Errorf("command %d, repeated later: %v", nth, err)
			}
			left("a", 8)
			left("b", 7)
			left("c", 0)
			if n := len(f.entries(direct)); n != 3 {
				t.Errorf("command %d: %d entries, want 3", nth, n)
			}
			f.ended(direct.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 5})
			left("c", 2)
		}
	}
}

func mustCheck(t *testing.T, c *Counter, o *Order) *request {
	t.Helper()
	r, err := c.check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An overtaken runner whose commands arrive late changes nothing any more: not after the order was refused and taken back,
// and not after it was taken.
func TestCommandsOfAnOvertakenRunner(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		left := e.items(c, Limit{Units: 5}, map[ID]int64{"a": 9, "b": 9, "c": 9})
		o := e.cart(1, Line{"a", nil, 1}, Line{"b", nil, 1}, Line{"c", nil, 1})
		open := func(c *Counter) *apart {
			r := mustCheck(t, c, &o)
			if _, err := c.locate(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			run := &apart{c: c, r: r, key: c.keys.request(spread(r.id, c.keys.parts), r.id), name: newOrderID()}
			r.order = "o"
			a, err := c.run(t.Context(), c.scripts.wholeOpen, []string{run.key}, r.what, r.order, run.name, 600000, 0)
			if err != nil || a.code() != 0 {
				t.Fatalf("open = %v, %v", a, err)
			}
			run.try = a.int(2)
			return run
		}
		slow := open(c)
		if _, err := slow.takeLine(t.Context(), slow.r.lines[:1]); err != nil {
			t.Fatal(err)
		}
		// Another runner takes over, finds that c is paused, and takes everything back.
		if err := c.Pause(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		c.takeOver = 0
		e.refused(c, o, ErrPaused)
		left("a", 9)
		if err := c.Resume(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		e.unchanged("what the overtaken runner still sends", func() {
			for i := range slow.r.lines {
				_, err := slow.takeLine(t.Context(), slow.r.lines[i:i+1])
				e.wants(err, ErrInFlight, "line %d of the overtaken runner", i+1)
			}
			_, err := slow.finish(t.Context(), Result{})
			e.wants(err, ErrInFlight, "finish of the overtaken runner")
		})
		// Now the order is taken; the slow one's undo must not touch it.
		e.deduct(c, o)
		e.unchanged("the undo of the overtaken runner", func() {
			for i := range slow.r.lines {
				if err := slow.undo(t.Context(), &slow.r.lines[i]); err != nil {
					t.Error(err)
				}
			}
		})
		left("a", 8)
		e.everyKeyExpires()
	})
}

// F059: at the memory limit everything is refused as unavailable and nothing is stored by half.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t, testserver.MaxMemory("3mb", "noeviction"))
	e := &env{T: t, rdb: srv.Client(t), prefix: "t:"}
	c := e.counter(WithHold(time.Minute), WithStream())
	e.warm(c, Sale{Units: 100_000, Limit: Limit{Units: 1}})
	var sold atomic.Int64
	full := false
	for i := 0; i < 20_000 && !full; i++ {
		o := e.order(i)
		_, err := c.Deduct(t.Context(), o)
		if err == nil {
			sold.Add(1)
		} else {
			e.wants(err, ErrUnavailable, "at the memory limit")
			full = true
			for _, key := range []string{"req:" + o.RequestID, fmt.Sprintf("limit:user:%d:item:1001:act:", i)} {
				if e.exists(key) {
					t.Errorf("%s was stored by a deduct that was refused", key)
				}
			}
		}
	}
	if !full {
		t.Fatal("the memory was never full")
	}
	e.left(c, 100_000-sold.Load())
	if n := e.rdb.XLen(t.Context(), e.key("stock:orders")).Val(); n != sold.Load() {
		t.Errorf("%d entries for %d orders", n, sold.Load())
	}
}

// Redis away is "unavailable", a reply that never came is "unknown"; both may be repeated with the same id.
func TestAwayAndUnknownAreTwoAnswers(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0, patient)
	c := f.counter(WithHold(time.Hour))
	f.warm(c, Sale{Units: 10})
	o := f.order(1)
	rule := f.proxy.On(faultproxy.Named("EVALSHA").Always(), faultproxy.LoseReply())
	err := f.refused(c, o, ErrUnknownOutcome)
	if !err.Retryable() || errors.Is(err, ErrUnavailable) {
		t.Errorf("lost replies: %v", err)
	}
	if rule.Fired() < 2 {
		t.Errorf("sent %d times, want several", rule.Fired())
	}
	_, looked := c.Remaining(t.Context(), 1001)
	f.wants(looked, ErrUnavailable, "a look whose reply is lost")
	f.proxy.Heal(t)
	if res := f.deduct(c, o); !res.Replayed || res.Left != 9 {
		t.Errorf("the repeat gave %+v, want the first outcome", res)
	}
	f.proxy.Refuse()
	f.proxy.CutAll()
	err = f.refused(c, f.order(2), ErrUnavailable)
	if !err.Retryable() || err.RetryAfter() <= 0 {
		t.Errorf("Redis away: retryable %v after %v", err.Retryable(), err.RetryAfter())
	}
	_, ended := c.Release(t.Context(), "x", Failed, Of(o))
	f.wants(ended, ErrUnavailable, "Release with Redis away")
	f.proxy.Heal(t)
	f.left(c, 9)
}

// A restart that lost everything is "not warmed up" and never an oversell.
func TestRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t)
	e := &env{T: t, rdb: srv.Client(t), prefix: "t:"}
	c := e.counter(WithHold(time.Minute))
	e.warm(c, Sale{Units: 10})
	res := e.deduct(c, e.order(1))
	srv.RestartEmpty(t)
	e.refused(c, e.order(2), ErrNotWarmed)
	_, err := c.Release(t.Context(), res.Order, Failed)
	e.wants(err, ErrNotHeld, "Release after everything was lost")
	if names := e.names(); len(names) != 0 {
		t.Errorf("keys appeared: %v", names)
	}
}
