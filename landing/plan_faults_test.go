package landing

import (
	"context"
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// failing lets every INSERT fail with an error that the caller can set.
func (b *books) failing(fault *error) {
	b.Helper()
	err := b.db.Callback().Create().Before("gorm:create").Register("failing", func(tx *gorm.DB) {
		if *fault != nil {
			_ = tx.AddError(*fault)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// A correction that cannot be made does not keep those behind it from being made, night after night: their units are as
// short as before. Its own item is not opened, and once the cause is gone the same plan finishes the rest.
func TestOneCorrectionThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	b := plain1001(t, onSQLite)
	b.manyDifferences()
	if err := b.db.Create(&itemStock{ItemID: 7, Stock: 5}).Error; err != nil {
		t.Fatal(err)
	}
	b.warm(7, 3, stock.Limit{})
	broken := errors.New("a trigger says no")
	fault := broken
	b.failing(&fault)
	rep := b.compare()
	b.finds(rep, HoldWithoutOrder, MarkerWithoutOrder, RedisAbove, RedisBelow, Withheld)
	p := b.reviewed(rep)
	got, err := b.r.Apply(t.Context(), p)
	if !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	want := map[Action]string{
		ActionUnmark: ResultApplied, ActionRelease: ResultFailed, ActionWithdraw: ResultApplied, ActionRestock: ResultApplied, ActionThaw: ResultFailed,
	}
	for _, r := range got.Results {
		if r.Outcome != want[r.Action] || (r.Error == "") != (r.Outcome != ResultFailed) {
			t.Errorf("%s: %s, %q; want %s", r.Action, r.Outcome, r.Error, want[r.Action])
		}
	}
	if len(got.Results) != len(want) || got.Count(ResultFailed) != 2 {
		t.Errorf("applied %+v", got)
	}
	b.wantOf(7, 5, 5, 0)
	b.finds(b.compare(), HoldWithoutOrder, Withheld)
	fault = nil
	b.apply(b.reviewed(b.compare()))
	b.finds(b.compare())
	b.want(8, 8, 0)
}

// When the database is away, or the caller's time is over, nothing more is tried.
func TestApplyStopsWhenSQLIsAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{"away": gormplugin.ErrUnavailable, "over": context.DeadlineExceeded} {
		b := plain1001(t, onSQLite)
		b.manyDifferences()
		p := b.reviewed(b.compare())
		b.failing(&fault)
		got, err := b.r.Apply(t.Context(), p)
		if !errors.Is(err, fault) || len(got.Results) != 1 || got.Results[0].Action != ActionUnmark {
			t.Errorf("%s: applied %+v, %v", name, got, err)
		}
		b.want(8, 10, 1) // nobody has withdrawn anything
	}
}

// The world moves on between a plan and its execution. That makes the plan stale, and is no fault of whoever applies it: an
// action that never corrects such a difference is one.
func TestAPlanThatTheWorldHasOvertakenIsStale(t *testing.T) {
	t.Parallel()
	t.Run("an order is paid for in Redis meanwhile", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, onSQLite, holdAndStream())
		no := b.buy(9)
		b.do("DEL", b.counter.Streams()[0])
		p := b.reviewed(b.compare())
		b.confirm(no)
		if got, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) || len(got.Results) > 0 {
			t.Errorf("applied %+v, %v", got, err)
		}
	})
	t.Run("the item sells on until less is left than is to be withdrawn", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t, onSQLite, holdAndStream())
		b.trade()
		b.do("INCRBY", b.prefix+"stock:item:1001", 3)
		p := b.reviewed(b.compare())
		for user := range int64(9) {
			b.buy(20 + user)
		}
		if got, err := b.r.Apply(t.Context(), p); !errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) || len(got.Results) > 0 {
			t.Errorf("applied %+v, %v", got, err)
		}
		b.apply(b.reviewed(b.compare()))
		b.want(8, 0, 0)
		b.finds(b.compare(), OrdersAbove)
		got := b.apply(p) // the rest is held by orders, and nobody can withdraw it
		if got.Count(ResultGone) != 1 {
			t.Errorf("applied %+v", got)
		}
	})
}

// Of each class there are the actions that correct it, and no others.
func TestActionsFitTheirClass(t *testing.T) {
	t.Parallel()
	fits := map[Class]int{}
	for _, c := range classes() {
		for _, a := range []Action{
			ActionWithdraw, ActionRestock, ActionRestore, ActionThaw, ActionRelease, ActionRemember, ActionUnmark, ActionClose,
			ActionRemove, ActionExpire, "",
		} {
			if a.fits(c) {
				fits[c]++
			}
		}
	}
	for _, c := range classes() {
		want := 1
		switch c {
		case OrderWithoutHold:
			want = 2
		case OrdersAbove, NotWarmed, NoStockRow, Unreadable:
			want = 0
		}
		if fits[c] != want {
			t.Errorf("%s has %d actions, want %d", c, fits[c], want)
		}
	}
}
