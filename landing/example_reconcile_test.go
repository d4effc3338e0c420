package landing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/stock"
)

// nightly compares the two sides and writes a plan for whoever is on duty. Of several instances one does it: the others find
// the lock busy.
func nightly(ctx context.Context, locker *lock.Locker, r *landing.Reconciler, file string, onSale ...stock.ID) error {
	err := locker.Do(ctx, []string{"job:reconcile"}, func(ctx context.Context) error {
		rep, err := r.Compare(ctx, onSale...)
		if err != nil || len(rep.Differences) == 0 {
			return err
		}
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		return errors.Join(r.Plan(rep).Write(f), f.Close())
	})
	if errors.Is(err, lock.ErrBusy) {
		return nil
	}
	return err
}

// reviewed applies the plan that somebody has read, and signed in reviewed_by.
func reviewed(ctx context.Context, r *landing.Reconciler, file string) (*landing.Applied, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plan, err := landing.ReadPlan(f)
	if err != nil {
		return nil, err
	}
	return r.Apply(ctx, plan)
}

// A script of somebody's has put three units into the counter. The nightly comparison finds them and writes a plan; as the
// threshold is two, a person has to decide.
func ExampleReconciler() {
	shop, db, stop := store()
	defer stop()
	ctx := context.Background()
	shop.Redis().IncrBy(ctx, "stock:item:1001", 3)

	l, err := landing.New[Order, Item](shop, db, orderOf, landing.WithThreshold(2), landing.WithLogger(quiet()))
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := lock.New(shop.Redis())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close(ctx) }()
	dir, err := os.MkdirTemp("", "reconcile")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, time.Now().Format(time.DateOnly)+".json")
	fmt.Println("nightly:", nightly(ctx, locker, l.Reconciler(), file, 1001))

	_, err = reviewed(ctx, l.Reconciler(), file)
	fmt.Println("not reviewed:", errors.Is(err, landing.ErrInvalid))

	sign(file, "ops@example.com") // with an editor: reviewed_by, and approved where the answer is yes
	done, err := reviewed(ctx, l.Reconciler(), file)
	for _, r := range done.Results {
		fmt.Println(r.Class, r.Item, r.Action, r.Units, r.Outcome, err)
	}
	left, err := shop.Remaining(ctx, 1001)
	fmt.Println(left, "left", err)
	// Output:
	// nightly: <nil>
	// not reviewed: true
	// redis_above_sql 1001 withdraw 3 applied <nil>
	// 10 left <nil>
}

// sign stands in for the person and the editor.
func sign(file, by string) {
	f, err := os.Open(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := landing.ReadPlan(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		fmt.Println(err)
		return
	}
	plan.ReviewedBy = by
	for i := range plan.Corrections {
		plan.Corrections[i].Approved = true
	}
	out, err := os.Create(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := errors.Join(plan.Write(out), out.Close()); err != nil {
		fmt.Println(err)
	}
}
