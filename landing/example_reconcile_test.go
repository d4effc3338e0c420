package landing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/stock"
)

// nightly is started by cron on every machine. One of them compares: while it is at it the others find the lock busy, and
// whoever comes later, for its clock is slow perhaps, finds the record of the night. What has failed is done by the next one.
func nightly(ctx context.Context, locker *lock.Locker, once *dedup.Dedup, r *landing.Reconciler, night, file string, onSale ...stock.ID) error {
	err := locker.Do(ctx, []string{"job:reconcile"}, func(ctx context.Context) error {
		req := dedup.Request{Scope: "jobs", Name: "reconcile", Key: night, TTL: 48 * time.Hour}
		_, _, err := once.Do(ctx, req, func(ctx context.Context) ([]byte, error) {
			return nil, compare(ctx, r, file, onSale...)
		})
		return err
	}, lock.Wait(0))
	if errors.Is(err, lock.ErrBusy) {
		return nil
	}
	return err
}

// compare writes one plan, of all that Redis knows. What Redis should know and does not is an error: there is no correction
// for that.
func compare(ctx context.Context, r *landing.Reconciler, file string, onSale ...stock.ID) error {
	rep, err := r.Compare(ctx)
	if err != nil {
		return err
	}
	if len(rep.Differences) > 0 {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := errors.Join(r.Plan(rep).Write(f), f.Close()); err != nil {
			return err
		}
	}
	asked, err := r.Compare(ctx, onSale...)
	if err != nil {
		return err
	}
	for _, d := range asked.Differences {
		if d.Class == landing.NotWarmed {
			err = errors.Join(err, fmt.Errorf("item %s is on sale, and Redis knows nothing of it", d.Item))
		}
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
	once, err := dedup.New(shop.Redis())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = once.Close(ctx) }()
	dir, err := os.MkdirTemp("", "reconcile")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	night := time.Now().UTC().Format(time.DateOnly)
	file := filepath.Join(dir, night+".json")
	fmt.Println("nightly:", nightly(ctx, locker, once, l.Reconciler(), night, file, 1001))

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
