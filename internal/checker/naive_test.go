package checker

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// buyNaively is the bug: read, judge, write. all waits until everybody has read.
func buyNaively(ctx context.Context, db *sql.DB, all *sync.WaitGroup, user, n int) (string, error) {
	var left, mine int
	err := db.QueryRowContext(ctx, `SELECT stock FROM item_stock WHERE item_id = 1001`).Scan(&left)
	if err == nil {
		err = db.QueryRowContext(ctx, fmt.Sprintf(`SELECT COUNT(*) FROM seckill_order WHERE user_id = %d`, user)).Scan(&mine)
	}
	all.Done()
	all.Wait()
	switch {
	case err != nil:
		return "", err
	case left <= 0:
		return "insufficient", nil
	case mine > 0:
		return "limit_reached", nil
	}
	if _, err := db.ExecContext(ctx, `UPDATE item_stock SET stock = stock - 1 WHERE item_id = 1001`); err != nil {
		return "", err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO seckill_order VALUES ('o%d', 'r%d', %d, 1001, 9, 1, 0)`, n, n, user))
	return Deducted, err
}

// The mode "no control" sells more than there is and to the same user twice, and the checker says so. A checker that
// passes it proves nothing.
func TestNoControlIsFoundGuilty(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", testserver.Postgres(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		`CREATE TABLE item_stock (item_id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`,
		`CREATE TABLE seckill_order (order_no VARCHAR(64), request_id VARCHAR(64), user_id BIGINT, item_id BIGINT,
			activity_id BIGINT, units BIGINT, status INT)`,
		`INSERT INTO item_stock (item_id, stock) VALUES (1001, 3)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const buyers = 8
	rec := NewRecorder(nil)
	var all, done sync.WaitGroup
	all.Add(buyers)
	for n := range buyers {
		done.Go(func() {
			user := max(n, 1) // two requests are the same user's
			r := Record{Request: fmt.Sprint("r", n), User: fmt.Sprint(user), Item: "1001", Activity: "9", Units: 1, Start: time.Now()}
			outcome, err := buyNaively(t.Context(), db, &all, user, n)
			if err != nil {
				t.Error(err)
			}
			r.Outcome, r.End, r.Order = outcome, time.Now(), fmt.Sprint("o", n)
			rec.Add(r)
		})
	}
	done.Wait()
	rows, err := ReadSQL(t.Context(), db, Seckill())
	if err != nil {
		t.Fatal(err)
	}
	found := Check(Run{Sales: []Sale{{Item: "1001", Activity: "9", Units: 3, Limit: 1}}, History: rec.Records(), SQL: rows})
	var got []string
	for _, f := range found {
		got = append(got, f.String())
	}
	want := `invariant 1: below_zero item=1001 key=item_stock: want 0, got -5
invariant 3: over_limit item=1001 activity=9 user=1: want 1, got 2
invariant 1: oversold item=1001: want 3, got 8`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("found:\n%s\nwant:\n%s", text, want)
	}
}
