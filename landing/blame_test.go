package landing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// start runs a worker until stop is called or the test ends.
func (s *shop) start(l *Lander[seckillOrder, itemStock]) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Worker().Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
		ended <- nil
	}
	s.Cleanup(stop)
	return stop
}

// newLanderOf is newLander with a function of the test's that makes rows.
func (s *shop) newLanderOf(row func(e stock.Entry) seckillOrder) *Lander[seckillOrder, itemStock] {
	s.Helper()
	l, err := New[seckillOrder, itemStock](s.counter, s.db, row, WithLogger(s.lander.cfg.logger))
	if err != nil {
		s.Fatal(err)
	}
	fast(l.engine)
	return l
}

// failInserts has the database refuse the rows of some users, in words that do not tell whose fault it is.
func (s *shop) failInserts(users string) {
	s.Helper()
	var statements []string
	switch s.dialect {
	case onSQLite:
		statements = []string{"CREATE TRIGGER odd BEFORE INSERT ON seckill_order WHEN NEW.user_id " + users + " BEGIN SELECT json('no json'); END"}
	case onPostgres:
		statements = []string{
			"CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.user_id " + users + " THEN RAISE EXCEPTION 'odd' USING ERRCODE = 'XX000'; END IF; RETURN NEW; END $$",
			"CREATE TRIGGER odd BEFORE INSERT ON seckill_order FOR EACH ROW EXECUTE FUNCTION odd()",
		}
	case onMariaDB:
		statements = []string{"CREATE TRIGGER odd BEFORE INSERT ON seckill_order FOR EACH ROW BEGIN IF NEW.user_id " + users + " THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105; END IF; END"}
	}
	for _, sql := range statements {
		if err := s.db.Exec(sql).Error; err != nil {
			s.Fatal(err)
		}
	}
}

func (s *shop) healInserts() {
	s.Helper()
	sql := "DROP TRIGGER odd"
	if s.dialect == onPostgres {
		sql += " ON seckill_order"
	}
	if err := s.db.Exec(sql).Error; err != nil {
		s.Fatal(err)
	}
}

// Orders whose rows a check refuses go to the dead letters after some tries, also when they are all that a batch has; those behind
// them land.
func TestBatchOfRefusedRowsStopsNobody(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream())
		l := s.newLanderOf(func(e stock.Entry) seckillOrder {
			row := rowOf(e)
			if row.UserID <= 2 {
				row.Units = -1
			}
			return row
		})
		s.buy(1)
		s.buy(2)
		s.start(l)
		testserver.Eventually(t, 20*time.Second, func() bool { return len(s.deadLetters()) == 2 }, "they are tried for ever: "+s.log.String())
		good := s.buy(3)
		testserver.Eventually(t, 20*time.Second, func() bool { return s.backlog() == 0 }, "the order behind them does not land: "+s.log.String())
		s.wantRow(good, 0, "")
		for _, letter := range s.deadLetters() {
			if letter.Tries != mostTries {
				t.Errorf("buried after %d tries, want %d", letter.Tries, mostTries)
			}
		}
	})
}

// A refusal that does not say whose fault it is blames no order while no other one lands, neither a single one nor a batch, however
// often they are tried; and not in a hot loop. When it is over they land.
func TestOddFaultOfTheDatabaseBlamesNoOrder(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		for _, orders := range []int64{1, 3} {
			t.Run(fmt.Sprint(orders, " orders"), func(t *testing.T) {
				s := newShop(t, dialect, withStream())
				s.failInserts("> 0")
				var made atomic.Int64
				l := s.newLanderOf(func(e stock.Entry) seckillOrder {
					made.Add(1)
					return rowOf(e)
				})
				for user := range orders {
					s.buy(user + 1)
				}
				began := time.Now()
				s.start(l)
				testserver.Eventually(t, time.Minute, func() bool { return made.Load() > 3*mostTries*orders || len(s.deadLetters()) > 0 }, "not tried")
				if took := time.Since(began); took < l.pace.claimAfter {
					t.Errorf("%d tries in %v", made.Load(), took)
				}
				if n := len(s.deadLetters()); n != 0 {
					t.Fatalf("%d dead letters: an order is blamed for the database", n)
				}
				s.healInserts()
				testserver.Eventually(t, 20*time.Second, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
				s.want(10-orders, 10-orders, 0)
			})
		}
	})
}

// The same refusal is the order's own fault when others land between its tries: it goes to the dead letters, and stops none of them.
func TestOrderThatFailsWhileOthersLandIsBlamed(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream())
		s.sell(5, 10_000, stock.Limit{})
		s.failInserts("= 1")
		bad := s.buy(1)
		s.start(s.lander)
		user := int64(1)
		testserver.Eventually(t, time.Minute, func() bool {
			user++
			s.order(stock.Order{Item: 5, User: user, Units: 1})
			return len(s.deadLetters()) > 0
		}, "it is tried for ever: "+s.log.String())
		if letters := s.deadLetters(); len(letters) != 1 || letters[0].Entry.Order != bad || letters[0].Tries != mostTries {
			t.Errorf("dead letters: %+v", letters)
		}
		testserver.Eventually(t, 20*time.Second, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
		s.wantOf(5, 10_000-(user-1), 10_000-(user-1), 0)
	})
}

// What a database refuses for the row is told from what it refuses for itself; what says neither is neither.
func TestWhoseFaultARefusalIs(t *testing.T) {
	t.Parallel()
	type MySQLError struct {
		error
		Number uint16
	}
	number := func(n uint16) error { return &MySQLError{errors.New("mysql"), n} }
	for _, c := range []struct {
		err           error
		rows, unready bool
	}{
		{sqlState("22001"), true, false},
		{sqlState("23502"), true, false},
		{sqlState("23503"), true, false},
		{sqlState("23514"), true, false},
		{sqlState("P0001"), true, false},
		{sqlState("58030"), false, true},
		{sqlState("42P01"), false, true},
		{sqlState("XX000"), false, false},
		{number(1048), true, false},
		{number(1406), true, false},
		{number(1452), true, false},
		{number(4025), true, false},
		{number(1114), false, true},
		{number(1021), false, true},
		{number(1146), false, true},
		{number(1105), false, false},
		{sqliteCode(787), true, false},
		{sqliteCode(1299), true, false},
		{sqliteCode(275), true, false},
		{sqliteCode(1), false, false},
		{errors.New("FOREIGN KEY constraint failed"), true, false},
		{errors.New("no such table: x"), false, true},
		{gorm.ErrInvalidData, false, false},
	} {
		err := fmt.Errorf("wrapped: %w", errors.Join(errors.New("other"), c.err))
		if got := refusesRow(err); got != c.rows {
			t.Errorf("%v refuses the row: %v", c.err, got)
		}
		if got := unready(err); got != c.unready {
			t.Errorf("%v refuses everything: %v", c.err, got)
		}
	}
}

// sqliteCode is an error of SQLite as its driver shows it.
type sqliteCode int

func (c sqliteCode) Error() string { return fmt.Sprint("sqlite ", int(c)) }
func (c sqliteCode) Code() int     { return int(c) }
