package checker

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A key without a TTL is seen while it is there, and a lock of a dead holder once it is older than its TTL.
func TestSampler(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	set := func(key, value string, ttl time.Duration) {
		t.Helper()
		if err := rdb.Set(t.Context(), prefix+key, value, ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const ttl = 100 * time.Millisecond
	s := NewSampler(rdb, prefix, ttl, func(token string) bool { return token == "living" })
	set("lock:a", "living", time.Minute)
	set("lock:b", "dead", time.Minute)
	set("idem:x", "1", time.Minute)
	sample := func() {
		t.Helper()
		if err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sample()
	if found := s.Findings(); len(found) > 0 {
		t.Errorf("found %v at once", found)
	}
	set("idem:y", "1", 0)
	sample()
	rdb.Del(t.Context(), prefix+"idem:y")
	testserver.Eventually(t, 20*time.Second, func() bool { sample(); return len(s.Findings()) == 2 }, "a key without TTL and a lock that outlives its holder")
	found := s.Findings()
	if found[0].Key != prefix+"idem:y" || found[0].Invariant != "6" || found[1].Key != prefix+"lock:b" || s.Looks() < 3 {
		t.Errorf("found %v in %d looks", found, s.Looks())
	}
}

// Goroutines and connections that stay are found.
func TestLevel(t *testing.T) { // not parallel: it counts all goroutines
	db, err := sql.Open("pgx", testserver.Postgres(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start := Measure(db, nil)
	stop := make(chan struct{})
	for range 200 { // more than earlier tests may have left behind, which end meanwhile
		go func() { <-stop }()
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := func() Level { return Measure(db, nil) }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := start.Back(ctx, now)
	if len(found) != 2 || found[0].Kind != NotBack {
		t.Errorf("found %v, want goroutines and SQL connections", found)
	}
	close(stop)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil { // its goroutine too
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if found := start.Back(ctx, now); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// The ledger of SQL adds up to the stock, and each movement has an operation of its own.
func TestLedgerInSQL(t *testing.T) {
	t.Parallel()
	s := newShop(t, "record")
	s.exec(`CREATE TABLE ledger (item_id BIGINT, delta BIGINT, operation VARCHAR(64))`)
	tables := Tables{
		Stock:  StockTable{Name: "item_stock", Item: "item_id", Units: "stock"},
		Ledger: LedgerTable{Name: "ledger", Item: "item_id", Units: "delta", Operation: "operation"},
	}
	check := func(want ...Kind) {
		t.Helper()
		rows, err := ReadSQL(t.Context(), s.db, tables)
		if err != nil {
			t.Fatal(err)
		}
		s.finds(Check(Run{SQL: rows}), want...)
	}
	s.exec(`INSERT INTO ledger VALUES (1001, 25, 'in'), (1001, -5, 'out')`)
	check()
	s.exec(`INSERT INTO ledger VALUES (1001, -5, 'out')`)
	check(LedgerDiffers, LedgerTwice)
}
