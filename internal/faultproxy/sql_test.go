package faultproxy_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// sqlFixture is a table of numbers behind a proxy.
type sqlFixture struct {
	proxy  *faultproxy.Proxy
	db     *sql.DB // through the proxy, one connection
	direct *sql.DB
	insert string // with one parameter
}

// sqlServers are the databases in front of which the proxy stands.
var sqlServers = []struct {
	name string
	open func(t *testing.T) sqlFixture
}{
	{"PostgreSQL", func(t *testing.T) sqlFixture {
		d := testserver.Postgres(t)
		p := faultproxy.Postgres(t, d.Addr)
		return newSQLFixture(t, p, "pgx", d, "INSERT INTO n (id) VALUES ($1)")
	}},
	{"MariaDB", func(t *testing.T) sqlFixture {
		d := testserver.MariaDB(t)
		p := faultproxy.MariaDB(t, d.Addr)
		return newSQLFixture(t, p, "mysql", d, "INSERT INTO n (id) VALUES (?)")
	}},
}

func newSQLFixture(t *testing.T, p *faultproxy.Proxy, driver string, d testserver.Database, insert string) sqlFixture {
	t.Helper()
	open := func(dsn string) *sql.DB {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	}
	f := sqlFixture{p, open(d.Via(p.Addr())), open(d.DSN), insert}
	f.db.SetMaxOpenConns(1)
	if _, err := f.db.ExecContext(t.Context(), "CREATE TABLE n (id int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f sqlFixture) wantRows(t *testing.T, want int) {
	t.Helper()
	var got int
	if err := f.direct.QueryRowContext(t.Context(), "SELECT count(*) FROM n").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the table has %d rows, want %d", got, want)
	}
}

// transaction inserts one row and commits.
func (f sqlFixture) transaction(ctx context.Context) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, f.insert, 1); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Every action on the commit of a transaction: what the client is told, and what is so.
func TestSQL_FaultsOfCommit(t *testing.T) {
	t.Parallel()
	for _, server := range sqlServers {
		for _, row := range []struct {
			name   string
			action faultproxy.Action
			hangs  bool // until the connection breaks: database/sql commits without the context
			fails  bool
			rows   int
		}{
			{"no fault", faultproxy.DelayRequest(0), false, false, 1},
			{"lost reply", faultproxy.LoseReply(), false, true, 1},
			{"cut reply", faultproxy.CutReply(3), false, true, 1},
			{"hanging reply", faultproxy.HangReply(), true, true, 1},
			{"lost request", faultproxy.LoseRequest(), false, true, 0},
			{"cut request", faultproxy.CutRequest(3), false, true, 0},
			{"hanging request", faultproxy.HangRequest(), true, true, 0},
			{"slow reply", faultproxy.DelayReply(20 * time.Millisecond), false, false, 1},
		} {
			t.Run(server.name+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				f := server.open(t)
				rule := f.proxy.On(faultproxy.Named("COMMIT"), row.action)
				result := make(chan error, 1)
				go func() { result <- f.transaction(t.Context()) }()
				rule.Wait(t)
				if row.hangs {
					f.wantRows(t, row.rows)
					select {
					case err := <-result:
						t.Fatalf("answered: %v", err)
					default:
					}
					f.proxy.CutAll()
				}
				if err := <-result; (err != nil) != row.fails {
					t.Errorf("transaction: got %v, want an error: %v", err, row.fails)
				}
				f.wantRows(t, row.rows)
			})
		}
	}
}

// With parameters the drivers prepare the statement first. The fault is meant for its
// execution, which carries no SQL, and not for its preparation.
func TestSQL_PreparedStatementsAreKnownByTheirSQL(t *testing.T) {
	t.Parallel()
	for _, server := range sqlServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			f := server.open(t)
			rule := f.proxy.On(faultproxy.Named("INSERT").Containing("INTO n"), faultproxy.LoseReply())
			_, err := f.db.ExecContext(t.Context(), f.insert, 1)
			if err == nil {
				t.Error("INSERT has no error")
			}
			rule.Wait(t)
			f.wantRows(t, 1)
			if got := f.proxy.Count(faultproxy.Named("PREPARE").Containing("INTO n")); got != 1 {
				t.Errorf("%d PREPARE seen, want 1: %v", got, f.proxy.Commands())
			}
			// The next one has a new connection.
			if _, err := f.db.ExecContext(t.Context(), f.insert, 2); err != nil {
				t.Error(err)
			}
			f.wantRows(t, 2)
		})
	}
}

// The reply is held after the commit: others see the row, the client knows nothing.
func TestSQL_HoldReplyOfCommit(t *testing.T) {
	t.Parallel()
	for _, server := range sqlServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			f := server.open(t)
			rule := f.proxy.On(faultproxy.Named("COMMIT"), faultproxy.HoldReply())
			result := make(chan error, 1)
			go func() { result <- f.transaction(t.Context()) }()
			rule.Wait(t)
			f.wantRows(t, 1)
			select {
			case err := <-result:
				t.Fatalf("answered before the release: %v", err)
			default:
			}
			rule.Release()
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSQL_RepeatHitsThePrimaryKey(t *testing.T) {
	t.Parallel()
	for _, server := range sqlServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			f := server.open(t)
			f.proxy.On(faultproxy.Named("INSERT"), faultproxy.Repeat())
			if _, err := f.db.ExecContext(t.Context(), "INSERT INTO n (id) VALUES (1)"); err == nil {
				t.Error("the second INSERT has no error")
			}
			f.wantRows(t, 1)
		})
	}
}

func TestSQL_ManyStatementsPassUnchanged(t *testing.T) {
	t.Parallel()
	for _, server := range sqlServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			f := server.open(t)
			stmt, err := f.db.PrepareContext(t.Context(), f.insert)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				if _, err := stmt.ExecContext(t.Context(), i); err != nil {
					t.Fatal(err)
				}
			}
			if err := stmt.Close(); err != nil { //nolint:sqlclosecheck // closing is part of what has to pass
				t.Fatal(err)
			}
			if _, err := f.db.ExecContext(t.Context(), "INSERT INTO n (id) VALUES (7)"); err == nil {
				t.Error("a duplicate has no error")
			}
			rows, err := f.db.QueryContext(t.Context(), "SELECT id FROM n ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			n := 0
			for rows.Next() {
				var id int
				if err := rows.Scan(&id); err != nil || id != n {
					t.Fatalf("row %d: got %d, %v", n, id, err)
				}
				n++
			}
			if rows.Err() != nil || n != 200 {
				t.Errorf("got %d rows, %v; want 200", n, rows.Err())
			}
			if got := f.proxy.Count(faultproxy.Named("INSERT")); got != 201 {
				t.Errorf("%d INSERT seen, want 201", got)
			}
		})
	}
}

// pgx itself, without database/sql: batches, encryption asked for, COPY, listening.
func TestPostgres_WhatElsePgxSends(t *testing.T) {
	t.Parallel()
	d := testserver.Postgres(t)
	p := faultproxy.Postgres(t, d.Addr)
	ctx := t.Context()
	// Encryption is asked for, and refused by the server.
	dsn := strings.Replace(d.Via(p.Addr()), "sslmode=disable", "sslmode=prefer", 1)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE n (id int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	batch := &pgx.Batch{}
	for i := range 10 {
		batch.Queue("INSERT INTO n (id) VALUES ($1)", i)
	}
	rule := p.On(faultproxy.Named("INSERT"), faultproxy.DelayReply(time.Millisecond))
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		t.Fatal(err)
	}
	if got := rule.Fired(); got != 1 {
		t.Errorf("the batch was seen %d times, want once: %v", got, p.Commands())
	}
	n, err := conn.CopyFrom(ctx, pgx.Identifier{"n"}, []string{"id"}, pgx.CopyFromSlice(5, func(i int) ([]any, error) { return []any{100 + i}, nil }))
	if err != nil || n != 5 {
		t.Errorf("COPY: got %d, %v; want 5", n, err)
	}
	if _, err := conn.Exec(ctx, "LISTEN c; NOTIFY c, 'hello'"); err != nil {
		t.Fatal(err)
	}
	note, err := conn.WaitForNotification(ctx)
	if err != nil || note.Payload != "hello" {
		t.Errorf("notification: got %v, %v", note, err)
	}
	var count int
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM n").Scan(&count); err != nil || count != 15 {
		t.Errorf("got %d rows, %v; want 15", count, err)
	}
	// A query that is cancelled: pgx says so on a second connection.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(short, "SELECT pg_sleep(20)"); err == nil {
		t.Error("the cancelled query has no error")
	}
	testserver.Eventually(t, 10*time.Second, func() bool { return p.Count(faultproxy.Named("CANCEL")) == 1 }, "pgx cancels the query")
}
