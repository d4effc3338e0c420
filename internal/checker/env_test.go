package checker

import (
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	testItem     = "1001"
	testActivity = "9"
	testUnits    = 20
)

// shop is a sale with both stores, which records what it answers.
type shop struct {
	*testing.T
	rdb     redis.UniversalClient
	prefix  string
	db      *sql.DB
	counter *stock.Counter
	rec     *Recorder
	hold    bool
	now     time.Time // of the history: each step takes a second of it
	n       int
}

// kindsOfCounter are what the invariants must hold for.
func kindsOfCounter() map[string][]stock.Option {
	return map[string][]stock.Option{
		"record":         nil,
		"hold":           {stock.WithHold(time.Hour)},
		"stream":         {stock.WithStream()},
		"hold, stream":   {stock.WithHold(time.Hour), stock.WithStream()},
		"segments":       {stock.WithPartitions(16)},
		"segments, hold": {stock.WithPartitions(16), stock.WithHold(time.Hour)},
	}
}

func newShop(t *testing.T, kind string) *shop {
	t.Helper()
	srv := testserver.Redis(t)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db")+"?_pragma=synchronous(0)&_pragma=journal_mode(memory)")
	if err != nil {
		t.Fatal(err)
	}
	return openShop(t, kind, srv.Client(t), srv.Prefix(t), db)
}

func openShop(t *testing.T, kind string, rdb redis.UniversalClient, prefix string, db *sql.DB) *shop {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	opts := slices.Concat(kindsOfCounter()[kind], []stock.Option{stock.Prefix(prefix), stock.WithLogger(slog.New(slog.DiscardHandler))})
	counter, err := stock.New(rdb, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{
		T: t, rdb: rdb, prefix: prefix, db: db, counter: counter, rec: NewRecorder(nil),
		hold: strings.Contains(kind, "hold"), now: time.Now().Add(-time.Hour),
	}
	s.exec(`CREATE TABLE item_stock (item_id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
	s.exec(`CREATE TABLE seckill_order (order_no VARCHAR(64), request_id VARCHAR(64), user_id BIGINT, item_id BIGINT,
		activity_id BIGINT, units BIGINT, status INT)`)
	s.exec(fmt.Sprintf(`INSERT INTO item_stock (item_id, stock) VALUES (1001, %d)`, testUnits))
	sale := stock.Sale{Item: testItem, Activity: testActivity, Units: testUnits, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 2}}
	if strings.Contains(kind, "segments") {
		sale.Segments = 5
	}
	if _, err := counter.Warm(t.Context(), sale); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) exec(statement string) {
	s.Helper()
	if _, err := s.db.ExecContext(s.Context(), statement); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

// tick lets a second of the history pass, and returns when it began and ended.
func (s *shop) tick() (start, end time.Time) {
	start = s.now
	s.now = s.now.Add(time.Second)
	return start, s.now.Add(-time.Millisecond)
}

func (s *shop) order(user int, units int64) stock.Order {
	s.n++
	return stock.Order{Item: testItem, Activity: testActivity, User: user, Units: units, RequestID: fmt.Sprint("r", s.n)}
}

// deduct asks for units, and records the answer.
func (s *shop) deduct(o stock.Order) stock.Result {
	s.Helper()
	res, err := s.counter.Deduct(s.Context(), o)
	done := Deducted
	if res.Replayed {
		done = Replayed
	}
	start, end := s.tick()
	s.rec.Add(Record{
		Op: Deduct, Request: o.RequestID, Order: res.Order, User: fmt.Sprint(o.User), Item: testItem, Activity: testActivity, Units: o.Units,
		Outcome: Outcome(err, done), Instance: "a", Start: start, End: end,
	})
	return res
}

// buy is a purchase from the deduct to the paid order.
func (s *shop) buy(user int, units int64) (stock.Order, string) {
	s.Helper()
	o := s.order(user, units)
	res := s.deduct(o)
	s.land(o, res.Order, 1)
	if s.hold {
		s.confirm(o, res.Order)
	}
	return o, res.Order
}

func (s *shop) land(o stock.Order, order string, status int) {
	s.Helper()
	s.exec(fmt.Sprintf(`INSERT INTO seckill_order VALUES ('%s', '%s', %v, 1001, 9, %d, %d)`, order, o.RequestID, o.User, o.Units, status))
	if status != 2 {
		s.exec(fmt.Sprintf(`UPDATE item_stock SET stock = stock - %d`, o.Units))
	}
	for _, key := range s.counter.Streams() {
		s.rdb.Del(s.Context(), key)
	}
}

func (s *shop) confirm(o stock.Order, order string) {
	s.Helper()
	got, err := s.counter.Confirm(s.Context(), order, stock.Of(o))
	s.ended(Confirm, o, order, got, err)
}

// cancel closes a live order and gives its units back.
func (s *shop) cancel(o stock.Order, order string) {
	s.Helper()
	s.exec(fmt.Sprintf(`UPDATE seckill_order SET status = 2 WHERE request_id = '%s'`, o.RequestID))
	s.exec(fmt.Sprintf(`UPDATE item_stock SET stock = stock + %d`, o.Units))
	got, err := s.counter.Release(s.Context(), order, stock.Operator, stock.Of(o))
	s.ended(Release, o, order, got, err)
}

func (s *shop) ended(op string, o stock.Order, order string, got stock.Ended, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	start, end := s.tick()
	s.rec.Add(Record{
		Op: op, Request: o.RequestID, Order: order, User: fmt.Sprint(o.User), Item: testItem, Activity: testActivity, Units: got.Units,
		Outcome: got.Outcome, Instance: "a", Start: start, End: end,
	})
}

// run makes a history in which nothing is wrong: purchases of one and two units, a repeat, a cancelled order and the
// user's next one, a user who reaches the limit.
func (s *shop) run() {
	s.Helper()
	for user := 1; user <= 5; user++ {
		s.buy(user, 1+int64(user%2))
	}
	o := s.order(6, 1)
	res := s.deduct(o)
	s.deduct(o)
	s.land(o, res.Order, 0)
	s.cancel(o, res.Order)
	s.deduct(o) // given back since: refused
	s.buy(6, 2)
	s.deduct(s.order(6, 1)) // limit reached
}

func (s *shop) check(change ...func(*Run)) []Finding {
	s.Helper()
	kept, err := ReadRedis(s.Context(), s.rdb, s.prefix)
	if err != nil {
		s.Fatal(err)
	}
	rows, err := ReadSQL(s.Context(), s.db, Seckill())
	if err != nil {
		s.Fatal(err)
	}
	run := Run{
		Sales:   []Sale{{Item: testItem, Activity: testActivity, Units: testUnits, Limit: 2}},
		History: s.rec.Records(), Redis: kept, SQL: rows, Settled: true,
	}
	for _, fn := range change {
		fn(&run)
	}
	return Check(run)
}

// finds checks that exactly these kinds are found.
func (s *shop) finds(found []Finding, want ...Kind) {
	s.Helper()
	var got []Kind
	for _, f := range found {
		got = append(got, f.Kind)
		if f.Invariant == invariantUnknown || f.Invariant == "" {
			s.Errorf("%v has no invariant", f)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("findings (-want +got):\n%s\n%v", diff, found)
	}
}

// key returns the first key that has the text in it.
func (s *shop) key(text string) string {
	s.Helper()
	it := s.rdb.Scan(s.Context(), 0, s.prefix+"*"+text+"*", 1000).Iterator()
	if !it.Next(s.Context()) {
		s.Fatalf("no key with %q: %v", text, it.Err())
	}
	return it.Val()
}

// counterKey returns the counter with most units.
func (s *shop) counterKey() string {
	s.Helper()
	most, key := 0, ""
	it := s.rdb.ScanType(s.Context(), 0, s.prefix+"stock:*item:*", 1000, "string").Iterator()
	for it.Next(s.Context()) {
		if n, err := s.rdb.Get(s.Context(), it.Val()).Int(); err == nil && n > most {
			most, key = n, it.Val()
		}
	}
	if key == "" {
		s.Fatal("no counter with units")
	}
	return key
}

func (s *shop) do(args ...any) {
	s.Helper()
	if err := s.rdb.Do(s.Context(), args...).Err(); err != nil {
		s.Fatal(err)
	}
}
