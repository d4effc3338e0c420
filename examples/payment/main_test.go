package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// The whole way: accepted, landed, paid, cancelled, closed unpaid, bought again; limited over the activity; nothing differs.
func TestRun(t *testing.T) {
	for name, servers := range map[string]func(t *testing.T) []string{
		"embedded": func(*testing.T) []string { return nil },
		"real servers": func(t *testing.T) []string {
			return []string{"-redis", testserver.NewRedis(t).Addr(), "-postgres", testserver.Postgres(t).DSN}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := run(t.Context(), servers(t), &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range []string{"accepted, again", "limit_reached", "withdrawn", "refunded", "no difference"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
		})
	}
}

func connected(t *testing.T) *shop {
	t.Helper()
	st, err := stores.Open(t.Context(), stores.Config{}, "payment", nil, &Item{}, &Order{}, &Payment{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &shop{db: st.DB, rdb: st.Redis, prefix: st.Prefix, payFor: time.Hour}
	if err := s.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.guard.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := st.DB.Create(&Item{ID: 1001, Stock: 10}).Error; err != nil {
		t.Fatal(err)
	}
	s.sales = []stock.Sale{{Item: int64(1001), Activity: activity, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1, Over: stock.Activity}}}
	return s
}

// A process that starts in mid-sale adds nothing, after a restock neither; an empty Redis gets what SQL has left, once.
func TestOpenMayBeCalledAtAnyTime(t *testing.T) {
	s := connected(t)
	ctx := t.Context()
	want := func(step string, want int64) {
		t.Helper()
		if err := s.open(ctx, s.sales[0]); err != nil {
			t.Fatal(step, err)
		}
		if got, err := s.stock.Remaining(ctx, 1001); got != want || err != nil {
			t.Errorf("%s: %d left, %v, want %d", step, got, err, want)
		}
	}
	want("the sale opens", 10)
	want("another process", 10)
	for n := range 6 {
		if _, err := s.stock.Deduct(ctx, stock.Order{RequestID: string(rune('a' + n)), Item: 1001, Activity: activity, User: n, Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	want("a restart in mid-sale", 4)
	if _, err := s.stock.Adjust(ctx, 1001, 5, "restock-1", "ops"); err != nil {
		t.Fatal(err)
	}
	want("a restart after a restock", 9)
	s.rdb.FlushAll(ctx)
	s.db.Exec("UPDATE items SET stock = 7")
	want("Redis has come back empty", 7)
	want("another process", 7)
	s.rdb.Del(ctx, s.prefix+"stock:item:1001")
	if err := s.open(ctx, s.sales[0]); !errors.Is(err, stock.ErrNotWarmed) {
		t.Errorf("the counter alone has gone: %v; nobody knows what is in flight, so a comparison decides", err)
	}
	s.rdb.FlushAll(ctx)
	s.db.Exec("UPDATE items SET stock = 0")
	want("nothing left", 0)

	s.rdb.FlushAll(ctx)
	s.sales[0].Ends = time.Now().Add(-time.Second)
	if err := s.open(ctx, s.sales[0]); err != nil {
		t.Error("a sale that is over keeps a process from starting:", err)
	}
}

// The comparison tells of an item that is on sale and not in Redis; of one whose sale is over it does not.
func TestNightlyAsksForWhatIsOnSale(t *testing.T) {
	s := connected(t)
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := s.nightly(t.Context(), plan); err == nil || !strings.Contains(err.Error(), "1001") {
		t.Errorf("an item is not in Redis: %v", err)
	}
	s.sales[0].Ends = time.Now().Add(-time.Second)
	if err := s.nightly(t.Context(), plan); err != nil {
		t.Errorf("its sale is over: %v", err)
	}
	if _, err := os.Stat(plan); !os.IsNotExist(err) {
		t.Errorf("a plan without a difference: %v", err)
	}
}
