package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/stock"
)

// nightly compares Redis with SQL, and leaves a plan in the file if they differ. Cron starts it on every machine; one of them
// does it.
func (s *shop) nightly(ctx context.Context, file string) (err error) {
	locker, err := lock.New(s.rdb, lock.Prefix(s.prefix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(context.WithoutCancel(ctx))) }()
	once, err := dedup.New(s.rdb, dedup.Prefix(s.prefix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, once.Close(context.WithoutCancel(ctx))) }()

	err = locker.Do(ctx, []string{"job:reconcile"}, func(ctx context.Context) error {
		night := dedup.Request{Scope: "jobs", Name: "reconcile", Key: time.Now().UTC().Format(time.DateOnly), TTL: 48 * time.Hour}
		_, _, err := once.Do(ctx, night, func(ctx context.Context) ([]byte, error) { return nil, s.compare(ctx, file) })
		return err
	}, lock.Wait(0))
	if errors.Is(err, lock.ErrBusy) {
		return nil // another machine is at it
	}
	return err
}

// compare makes a plan of all that Redis knows, and an error of what is on sale and Redis does not know.
func (s *shop) compare(ctx context.Context, file string) error {
	r := s.lander.Reconciler()
	rep, err := r.Compare(ctx)
	if err == nil && len(rep.Differences) > 0 {
		err = write(r.Plan(rep), file)
	}
	if err != nil {
		return err
	}
	asked, err := r.Compare(ctx, s.onSale(time.Now())...)
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

// onSale are the items whose sale is not over: a while after its end Redis rightly forgets an item.
func (s *shop) onSale(now time.Time) (items []stock.ID) {
	for _, sale := range s.sales {
		if now.Before(sale.Ends) {
			items = append(items, sale.Item)
		}
	}
	return items
}

func write(p *landing.Plan, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}
