package lock

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Tests with several processes start the test's own binary again, with this variable set to what it is to do.
const workerEnv = "HOLDFAST_LOCK_WORKER"

// workerMain is the whole of such a process. It reports whether this is one.
func workerMain() bool {
	args := strings.Fields(os.Getenv(workerEnv))
	if len(args) == 0 {
		return false
	}
	if err := work(args[0], args[1], args[2], args[3]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	return true
}

func work(job, addr, prefix, dsn string) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	l, err := New(rdb, Prefix(prefix), TTL(2*time.Second), Wait(time.Minute), WithLogger(quietLogger()))
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	switch job {
	case "hold": // until it is killed
		lease, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			return err
		}
		fmt.Println("held", lease.Fence())
		select {}
	case "write": // when told to, under its fence
		lease, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			return err
		}
		inside := lease.Context(ctx)
		fmt.Println("held", lease.Fence())
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		<-inside.Done()
		rows, err := writeFenced(ctx, db, lease.Fence())
		if err != nil {
			return err
		}
		fmt.Println("wrote", rows, context.Cause(inside))
		return nil
	case "count", "early":
		for range 50 {
			if err := countUnder(ctx, l, db, job == "early"); err != nil {
				return err
			}
		}
		fmt.Println("done")
		return l.Close(ctx)
	}
	return fmt.Errorf("no job %q", job)
}

// writeFenced writes a row as a holder with that number may.
func writeFenced(ctx context.Context, db *sql.DB, fence int64) (int64, error) {
	res, err := db.ExecContext(ctx, "UPDATE item SET fence = $1, n = n + 1 WHERE id = 1 AND fence <= $1", fence)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// countUnder adds one to a counter the way that only a lock makes right: read, then write what was read plus one. With
// early the lock is released before the commit.
func countUnder(ctx context.Context, l *Locker, db *sql.DB, early bool) error {
	lease, err := l.Acquire(ctx, keys("counter"))
	if err != nil {
		return err
	}
	release := func() error { return lease.Release(ctx) }
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return errors.Join(err, release())
	}
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM item WHERE id = 1").Scan(&n); err != nil {
		return errors.Join(err, tx.Rollback(), release())
	}
	if early {
		if err := release(); err != nil {
			return err
		}
		release = func() error { return nil }
	}
	if _, err := tx.ExecContext(ctx, "UPDATE item SET n = $1 WHERE id = 1", n+1); err != nil {
		return errors.Join(err, tx.Rollback(), release())
	}
	return errors.Join(tx.Commit(), release())
}

// process is another process of the test.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startProcess(t *testing.T, job, addr, prefix, dsn string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), workerEnv+"="+strings.Join([]string{job, addr, prefix, dsn}, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	p := &process{cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// line returns the words of the next line of the process.
func (p *process) line(t *testing.T, first string) []string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the other process ended, want a line %q: %v", first, p.lines.Err())
	}
	words := strings.Fields(p.lines.Text())
	if len(words) == 0 || words[0] != first {
		t.Fatalf("the other process says %q, want %q", p.lines.Text(), first)
	}
	return words[1:]
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	check(t, p.cmd.Process.Signal(s))
}

// A04, C05, D37: the holder is killed. A waiter enters within one TTL of the last renewal and never earlier; the key has
// a TTL all the while; the new process of the service renews nothing.
func TestKilledHolder(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	l := over(t, rdb, Prefix(prefix), Wait(time.Minute))
	p := startProcess(t, "hold", srv.Addr(), prefix, "-")
	fence, err := strconv.ParseInt(p.line(t, "held")[0], 10, 64)
	check(t, err)
	done := make(chan *Lease)
	go func() { done <- must(t, l, keys("a")) }()
	p.signal(t, syscall.SIGKILL)
	killed := time.Now()
	left := rdb.PTTL(t.Context(), prefix+"lock:a").Val()
	for ttl := left; ttl > 0; ttl = rdb.PTTL(t.Context(), prefix+"lock:a").Val() {
		if ttl > left {
			t.Fatalf("the TTL rose from %v to %v though the holder is dead", left, ttl)
		}
		left = ttl
		select {
		case lease := <-done:
			if time.Since(killed) > 2*time.Second+soon || lease.Fence() <= fence {
				t.Errorf("in after %v with fence %d after %d", time.Since(killed), lease.Fence(), fence)
			}
			free(t, lease)
			return
		default:
		}
	}
	free(t, <-done)
}

// C01: a lock works between processes. (20): a counter that is read and then written is exact under it. A build that
// releases before the commit loses counts, or this test would show nothing.
func TestCounterOfSeveralProcesses(t *testing.T) {
	srv := testserver.Redis(t)
	for job, exact := range map[string]bool{"count": true, "early": false} {
		t.Run(job, func(t *testing.T) {
			db, dsn := itemTable(t)
			prefix := srv.Prefix(t)
			var all []*process
			for range 4 {
				all = append(all, startProcess(t, job, srv.Addr(), prefix, dsn))
			}
			for _, p := range all {
				p.line(t, "done")
			}
			var n int
			check(t, db.QueryRowContext(t.Context(), "SELECT n FROM item WHERE id = 1").Scan(&n))
			if exact && n != 200 {
				t.Errorf("200 increments came to %d", n)
			}
			if !exact && n == 200 {
				t.Error("released before the commit, and nothing was lost: this test shows nothing")
			}
		})
	}
}

func itemTable(t *testing.T) (*sql.DB, string) {
	t.Helper()
	dsn := testserver.Postgres(t).DSN
	db, err := sql.Open("pgx", dsn)
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for _, q := range []string{"CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL, fence bigint NOT NULL)", "INSERT INTO item VALUES (1, 0, 0)"} {
		_, err := db.ExecContext(t.Context(), q)
		check(t, err)
	}
	return db, dsn
}

// (9), C12: the holder is stopped for longer than its TTL, somebody else takes over and writes, and it goes on: it is
// told, and what it writes nevertheless is refused by its older number.
func TestStoppedHolderIsRefusedBySQL(t *testing.T) {
	srv := testserver.Redis(t)
	prefix := srv.Prefix(t)
	db, dsn := itemTable(t)
	l := over(t, srv.Client(t), Prefix(prefix), Wait(time.Minute))
	p := startProcess(t, "write", srv.Addr(), prefix, dsn)
	p.line(t, "held")
	p.signal(t, syscall.SIGSTOP)
	lease := must(t, l, keys("a"))
	if rows, err := writeFenced(t.Context(), db, lease.Fence()); rows != 1 || err != nil {
		t.Fatalf("the new holder wrote %d rows, %v", rows, err)
	}
	p.signal(t, syscall.SIGCONT)
	_, err := io.WriteString(p.in, "go\n")
	check(t, err)
	if got := strings.Join(p.line(t, "wrote"), " "); !strings.HasPrefix(got, "0 lock: lost") {
		t.Errorf("the old holder: %q, want 0 rows and a lost lease", got)
	}
	if rows, err := writeFenced(t.Context(), db, lease.Fence()); rows != 1 || err != nil {
		t.Errorf("the new holder writes again: %d rows, %v; want one, since an equal number is accepted", rows, err)
	}
	free(t, lease)
}
