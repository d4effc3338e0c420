package landing

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

func plain1001(t *testing.T, dialect string, opts ...Option) *books {
	t.Helper()
	b := newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()}, opts...)
	b.trade()
	return b
}

// D65: with a threshold of 2 a difference of 3 is left to a person and one of 1 is not. The default is that a person
// decides always.
func TestAboveTheThresholdAPersonDecides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		threshold int64
		differ    int
		approved  bool
	}{{2, 1, true}, {2, 2, true}, {2, 3, false}, {0, 1, false}} {
		b := plain1001(t, onPostgres, WithThreshold(c.threshold))
		b.do("INCRBY", b.prefix+"stock:item:1001", c.differ)
		p := b.reviewed(b.compare())
		if len(p.Corrections) != 1 || p.Corrections[0].Approved != c.approved || (p.Corrections[0].Why == "") != c.approved {
			t.Errorf("threshold %d, difference %d: %+v, want approved %t", c.threshold, c.differ, p.Corrections, c.approved)
		}
		if c.approved {
			continue
		}
		if got := b.apply(p); got.Count(ResultLeft) != 1 {
			t.Errorf("applied %+v", got)
		}
		b.finds(b.compare(), RedisAbove)
		p.Corrections[0].Approved = true // the person has decided
		b.apply(p)
		b.finds(b.compare())
	}
}

// All units of an item count together, so that a swarm of small differences is left to a person too.
func TestTheThresholdIsForAllOfAnItem(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres, WithThreshold(2))
	for user := range int64(3) {
		b.buy(20 + user)
	}
	b.do("DEL", b.counter.Streams()[0])
	for _, c := range b.r.Plan(b.compare()).Corrections {
		if c.Approved {
			t.Errorf("approved: %+v", c)
		}
	}
}

// Apply executes only what somebody has reviewed, in the form that Write gives it.
func TestApplyRefusesWhatIsNotAReviewedPlan(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	b.do("INCR", b.prefix+"stock:item:1001")
	rep := b.compare()
	for name, p := range map[string]*Plan{
		"nil": nil, "none": {}, "not reviewed": b.r.Plan(rep), "a name that is too long": {Version: 1, ReviewedBy: strings.Repeat("x", 129)},
		"approved without an action": {Version: 1, ReviewedBy: "ops", Corrections: []Correction{{Difference: Difference{Class: NotWarmed}, Approved: true}}},
	} {
		if _, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	p := b.reviewed(rep)
	p.Corrections[0].Action = ActionThaw
	if _, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrInvalid) {
		t.Errorf("another action: err = %v", err)
	}
	for name, text := range map[string]string{
		"misspelt":          `{"version":1,"id":"a","made":"2026-01-01T00:00:00Z","reviewed_by":"x","corrections":[{"class":"ghost_key","aproved":true}]}`,
		"of a later form":   `{"version":2,"corrections":[]}`,
		"unknown action":    `{"version":1,"corrections":[{"class":"ghost_key","action":"delete_all","approved":true}]}`,
		"not JSON":          `version: 1`,
		"cut off half-way":  `{"version":1,"corrections":[`,
		"nothing in it yet": ``,
	} {
		if _, err := ReadPlan(strings.NewReader(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	b.finds(b.compare(), RedisAbove)
}

// A plan that is not about what is there any more is refused whole, before anything is done.
func TestStalePlan(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	counter := b.prefix + "stock:item:1001"
	b.do("INCR", counter)
	b.do("SET", b.prefix+"stock:item:77", 5)
	p := b.reviewed(b.compare())
	for name, change := range map[string]int{"more": 2, "the other way round": -4} {
		b.do("INCRBY", counter, change)
		got, err := b.r.Apply(t.Context(), p)
		if !errors.Is(err, ErrStale) || len(got.Results) != 0 {
			t.Errorf("%s: applied %+v, %v", name, got, err)
		}
		b.do("INCRBY", counter, -change)
	}
	b.finds(b.compare(), GhostKey, RedisAbove)
	b.do("DECR", counter) // somebody else has corrected it
	got := b.apply(p)
	if got.Count(ResultApplied) != 1 || got.Count(ResultGone) != 1 {
		t.Errorf("applied %+v", got)
	}
	b.finds(b.compare())
	b.want(8, 8, 0)
}

// manyDifferences plants differences that need each kind of step: on a counter, on a switch, on an order, on a marker.
func (b *books) manyDifferences() {
	b.Helper()
	counter := b.prefix + "stock:item:1001"
	b.buy(9)
	b.do("DEL", b.counter.Streams()[0])
	b.do("HSET", b.key("user:9:"), "nobodys", "1")
	b.do("HSET", counter+":ctl", "state", "frozen", "withheld", 1)
	b.do("INCRBY", counter, 3)
}

// F087, failure point 15: a crash between the plan and its end. Applying it again finishes it, and once more changes nothing.
func TestApplyAgainAfterACrash(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		for cut := range 5 {
			b := plain1001(t, dialect)
			b.manyDifferences()
			rep := b.compare()
			b.finds(rep, HoldWithoutOrder, MarkerWithoutOrder, RedisAbove, Withheld)
			p := b.reviewed(rep)
			half := *p
			half.Corrections = p.Corrections[:cut:cut]
			b.apply(&half)
			for range 3 {
				b.apply(p)
				b.finds(b.compare())
				b.want(8, 8, 0)
			}
		}
	})
}

// Two who apply at once, the same plan or two plans for one state, do what one of them would.
func TestTwoApplyAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := plain1001(t, dialect)
		b.manyDifferences()
		var start, done sync.WaitGroup
		start.Add(1)
		rep := b.compare()
		for i := range 4 {
			p := b.reviewed(rep)
			if i%2 == 1 {
				p = b.reviewed(b.compare()) // a plan of its own
			}
			done.Go(func() {
				start.Wait()
				if _, err := b.r.Apply(t.Context(), p); err != nil && !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			})
		}
		start.Done()
		done.Wait()
		b.finds(b.compare())
		b.want(8, 8, 0)
	})
}

// A plan is for the state that it was made for: an old one does not correct a later difference of the same size once more.
func TestAnOldPlanDoesNotCorrectANewDifference(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	counter := b.prefix + "stock:item:1001"
	b.do("INCR", counter)
	p := b.reviewed(b.compare())
	b.apply(p)
	b.do("INCR", counter)
	if _, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrStale) {
		t.Errorf("Apply = %v, want it stale", err)
	}
	b.want(8, 9, 0)
	b.apply(b.reviewed(b.compare()))
	b.want(8, 8, 0)
}

// The plan is for people: its JSON has names and numbers, and nothing that only a program could read.
func TestPlanAsJSON(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres, WithThreshold(2))
	b.do("INCRBY", b.prefix+"stock:item:1001", 3)
	p := b.r.Plan(b.compare())
	p.ID, p.Made = "EXAMPLE", time.Date(2026, 5, 1, 4, 0, 0, 0, time.UTC)
	var got bytes.Buffer
	if err := p.Write(&got); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": 1,
  "id": "EXAMPLE",
  "made": "2026-05-01T04:00:00Z",
  "reviewed_by": "",
  "corrections": [
    {
      "class": "redis_above_sql",
      "item": "1001",
      "units": 3,
      "redis": 11,
      "sql": 8,
      "action": "withdraw",
      "approved": false,
      "why": "left to a person: 3 units of this item, the threshold is 2"
    }
  ]
}
`
	if got.String() != want {
		t.Errorf("plan:\n%s\nwant:\n%s", got.String(), want)
	}
	if text, err := json.Marshal(b.compare(1001)); err != nil || !strings.Contains(string(text), `"differences":[{"class":"redis_above_sql"`) {
		t.Errorf("report: %s, %v", text, err)
	}
}
