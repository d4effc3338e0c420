package landing

import (
	"errors"
	"slices"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// An operator's own step that comes between a plan's comparison and its correction is not done a second time by the plan: the
// correction was worked out without it, and is stale.
func TestAStepMeanwhileIsNotDoubled(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := plain1001(t, dialect)
		b.buy(9)
		b.do("DEL", b.counter.Streams()[0])                                   // an order that never landed: its release comes first
		b.sql("UPDATE item_stock SET stock = stock + 5 WHERE item_id = 1001") // a restock, in Redis to follow
		rep := b.compare()
		b.finds(rep, HoldWithoutOrder, RedisBelow)
		stepped := false
		err := b.db.Callback().Create().Before("gorm:create").Register("test:step", func(*gorm.DB) {
			if stepped {
				return
			}
			stepped = true
			if _, err := b.counter.Adjust(t.Context(), 1001, 5, "restock-monday", "alice"); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.r.Apply(t.Context(), b.reviewed(rep)); !errors.Is(err, ErrStale) || !stepped {
			t.Errorf("Apply = %v, want it stale", err)
		}
		b.want(13, 13, 0)
		b.finds(b.compare())
	})
}

// A step since the plan was made makes it stale, also if the item differs by as many units as before.
func TestAPlanFromBeforeAStepIsStale(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onPostgres)
	b.do("INCRBY", b.prefix+"stock:item:1001", 2)
	p := b.reviewed(b.compare())
	b.sql("UPDATE item_stock SET stock = stock + 5 WHERE item_id = 1001")
	if _, err := b.counter.Adjust(t.Context(), 1001, 5, "restock-monday", "alice"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrStale) || len(got.Results) > 0 {
		t.Errorf("Apply = %+v, %v, want it stale", got, err)
	}
	b.want(13, 15, 0)
	b.apply(b.reviewed(b.compare()))
	b.want(13, 13, 0)
}

// What was added up before an operator's step says nothing about the item after it, so a look that cannot add up the item
// because of that step does not confirm it: the item is unsettled.
func TestAStepEndsWhatWasSeenBefore(t *testing.T) {
	t.Parallel()
	looked := func(steps int, unsettled bool, found ...Difference) *judging {
		it := &stock.SurveyedItem{Item: "1001", Steps: steps, Unsettled: unsettled}
		return &judging{look: &look{Survey: &stock.Survey{}, items: map[string]*stock.SurveyedItem{"1001": it}}, found: found}
	}
	below := func(steps int) Difference { return Difference{Class: RedisBelow, Item: "1001", Units: 5, Steps: steps} }
	for name, c := range map[string]struct {
		looks     []*judging
		found     int
		unsettled bool
	}{
		"seen twice":                      {[]*judging{looked(0, false, below(0)), looked(0, false, below(0))}, 1, false},
		"seen twice, then a return":       {[]*judging{looked(0, false, below(0)), looked(0, false, below(0)), looked(0, true)}, 1, false},
		"seen twice, then a step":         {[]*judging{looked(0, false, below(0)), looked(0, false, below(0)), looked(1, true)}, 0, true},
		"a step between the two":          {[]*judging{looked(0, false, below(0)), looked(1, false, below(1))}, 0, true},
		"a step, and seen twice after it": {[]*judging{looked(0, false, below(0)), looked(1, true), looked(1, false, below(1)), looked(1, false, below(1))}, 1, false},
	} {
		seen := sightings{last: map[subject]Difference{}, sure: map[subject]Difference{}, settled: map[string]int{}}
		open := false
		for _, j := range c.looks {
			open = seen.add(j)
		}
		rep := seen.report(c.looks[len(c.looks)-1])
		if open != c.unsettled || len(rep.Differences) != c.found || slices.Contains(rep.Unsettled, "1001") != c.unsettled {
			t.Errorf("%s: another look is needed %t, %+v", name, open, rep)
		}
	}
}

// O05: an operator's pause lasts until he resumes the sale. That SQL has refused a unit meanwhile, and a plan has thawed the
// item, does not put it on sale again.
func TestAThawLeavesAPause(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		b := newBooks(t, dialect, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()})
		b.sql("UPDATE item_stock SET stock = 0 WHERE item_id = 1001")
		b.buy(1)
		if err := b.counter.Pause(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		b.work()
		rep := b.compare()
		b.finds(rep, RedisAbove, Withheld)
		b.apply(b.reviewed(rep))
		b.finds(b.compare())
		b.want(0, 0, 0)
		if s, err := b.counter.Status(t.Context(), 1001); err != nil || s.State != "paused" {
			t.Errorf("after the thaw %+v, %v; want it paused", s, err)
		}
		if err := b.counter.Resume(t.Context(), 1001); err != nil {
			t.Error(err)
		}
		_, err := b.counter.Deduct(t.Context(), stock.Order{Item: 1001, Activity: 1, User: 2, Units: 1, RequestID: "late"})
		if !errors.Is(err, stock.ErrInsufficient) {
			t.Errorf("a buyer after Resume hears %v", err)
		}
	})
}
