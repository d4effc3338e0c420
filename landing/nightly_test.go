package landing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/stock"
)

// Four machines start the nightly comparison at once, and a fifth one whose clock is slow: one of them writes a plan. An item
// that is on sale and not in Redis is an error, of whoever asks.
func TestNightlyIsDoneOnce(t *testing.T) {
	shop, db, stop := store()
	defer stop()
	ctx := context.Background()
	shop.Redis().IncrBy(ctx, "stock:item:1001", 3)
	l, err := landing.New[Order, Item](shop, db, orderOf, landing.WithLogger(quiet()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	machine := func(name, night string, onSale ...stock.ID) error {
		locker, err := lock.New(shop.Redis(), lock.WithLogger(quiet()))
		if err != nil {
			return err
		}
		once, err := dedup.New(shop.Redis(), dedup.WithLogger(quiet()))
		if err != nil {
			return errors.Join(err, locker.Close(ctx))
		}
		file := filepath.Join(dir, night+"-"+name+".json")
		return errors.Join(nightly(ctx, locker, once, l.Reconciler(), night, file, onSale...), locker.Close(ctx), once.Close(ctx))
	}
	var machines sync.WaitGroup
	for n := range 4 {
		machines.Go(func() {
			if err := machine(fmt.Sprint(n), "2030-05-01", 1001); err != nil {
				t.Error(err)
			}
		})
	}
	machines.Wait()
	if err := machine("late", "2030-05-01", 1001); err != nil {
		t.Error(err)
	}
	plans, err := os.ReadDir(dir)
	if len(plans) != 1 || err != nil {
		t.Errorf("%d plans, want one: %v %v", len(plans), plans, err)
	}
	if err := machine("0", "2030-05-02", 1001, 7); err == nil || !strings.Contains(err.Error(), "item 7 is on sale") {
		t.Errorf("an item that Redis does not know: %v", err)
	}
}
