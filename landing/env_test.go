package landing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// itemStock and seckillOrder are models as a service has them.
type itemStock struct {
	ItemID     int64     `gorm:"primaryKey;autoIncrement:false"`
	Stock      int64     `guard:"stock,min=0" gorm:"not null;check:ck_stock,stock >= 0"`
	Version    int64     `guard:"version" gorm:"not null;default:0"`
	UpdateTime time.Time `gorm:"autoUpdateTime"`
}

func (itemStock) TableName() string { return "item_stock" }

type seckillOrder struct {
	ID          int64
	OrderNo     string  `gorm:"size:64;not null;uniqueIndex:uk_order_no"`
	RequestID   string  `guard:"request" gorm:"size:64;not null;uniqueIndex:uk_request_id"`
	UserID      int64   `gorm:"not null;uniqueIndex:uk_user_item,where:status <> 2"`
	ItemID      int64   `gorm:"not null;uniqueIndex:uk_user_item;index:idx_item"`
	ActivityID  int64   `gorm:"not null;uniqueIndex:uk_user_item"`
	Nth         int16   `gorm:"not null;default:1;uniqueIndex:uk_user_item"`
	Seat        *string `gorm:"size:20;uniqueIndex:uk_seat"` // an index that nobody has named
	Units       int64   `gorm:"not null;check:ck_units,units > 0"`
	Status      int16   `gorm:"not null;default:0"`
	CloseReason *string `gorm:"size:32"`
	CreateTime  time.Time
}

func (seckillOrder) TableName() string { return "seckill_order" }

// orderEvent is a row of an outbox.
type orderEvent struct {
	ID      int64
	OrderNo string `gorm:"size:64"`
}

var (
	errBoughtBefore = errors.New("the user has a live order")
	errNumberTaken  = errors.New("the order number is taken")
)

func rowOf(e stock.Entry) seckillOrder {
	number := func(id string) int64 { n, _ := strconv.ParseInt(id, 10, 64); return n }
	return seckillOrder{
		UserID: number(e.User), ItemID: number(e.Item), ActivityID: number(e.Activity), Nth: int16(e.Nth), Units: e.Units, CreateTime: e.At,
	}
}

// shop is a Counter and a database with a Lander between them.
type shop struct {
	*testing.T
	rdb     redis.UniversalClient
	prefix  string
	counter *stock.Counter
	dialect string
	dsn     string
	db      *gorm.DB
	lander  *Lander[seckillOrder, itemStock]
	log     *buffer
	srv     *testserver.RedisServer
	opts    []stock.Option
}

const (
	onPostgres = "postgres"
	onMariaDB  = "mysql"
	onSQLite   = "sqlite"
)

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, dialect string)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{onSQLite, onPostgres, onMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

// newShop opens a shop that sells 10 units of item 1001, warmed up.
func newShop(t *testing.T, dialect string, counter []stock.Option, opts ...Option) *shop {
	t.Helper()
	return newShopAt(t, dialect, "", counter, opts...)
}

// newShopAt is newShop with a database that is there already, where dsn is not empty.
func newShopAt(t *testing.T, dialect, dsn string, counter []stock.Option, opts ...Option) *shop {
	t.Helper()
	srv := testserver.Redis(t)
	s := &shop{T: t, srv: srv, dialect: dialect, dsn: dsn, log: &buffer{}, prefix: srv.Prefix(t)}
	s.rdb = srv.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	s.open(counter, opts)
	return s
}

func (s *shop) open(counter []stock.Option, opts []Option) {
	t := s.T
	t.Helper()
	if s.dsn == "" {
		s.dsn = newDatabase(t, s.dialect)
	}
	s.db = open(t, s.dialect, s.dsn)
	migrate(t, s.db)
	quiet := slog.New(slog.DiscardHandler)
	s.opts = append([]stock.Option{stock.Prefix(s.prefix), stock.WithLogger(quiet)}, counter...)
	var err error
	if s.counter, err = stock.New(s.rdb, s.opts...); err != nil {
		t.Fatal(err)
	}
	s.lander = s.newLander(opts...)
	s.sell(1001, 10, stock.Limit{Units: 1})
}

func (s *shop) newLander(opts ...Option) *Lander[seckillOrder, itemStock] {
	s.Helper()
	l, err := New[seckillOrder, itemStock](s.counter, s.db, rowOf, append([]Option{WithLogger(slog.New(slog.NewTextHandler(s.log, nil)))}, opts...)...)
	if err != nil {
		s.Fatal(err)
	}
	fast(l.engine)
	return l
}

// fast makes the waits of a Lander short.
func fast(e *engine) {
	e.pace = pace{
		gather: 5 * time.Millisecond, claimAfter: 300 * time.Millisecond, idleMost: 10 * time.Millisecond,
		retryFirst: 5 * time.Millisecond, awayMost: 100 * time.Millisecond, sweep: 20 * time.Millisecond, transact: time.Minute,
	}
}

func newDatabase(t testing.TB, dialect string) string {
	t.Helper()
	switch dialect {
	case onPostgres:
		return testserver.Postgres(t).DSN
	case onMariaDB:
		return testserver.MariaDB(t).DSN
	}
	return t.TempDir() + "/shop.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
}

// open opens the database with the plugin.
func open(t testing.TB, dialect, dsn string) *gorm.DB {
	t.Helper()
	dialector := sqlite.Open(dsn)
	switch dialect {
	case onPostgres:
		dialector = postgres.Open(dsn)
	case onMariaDB:
		dialector = mysql.Open(dsn)
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	quiet := gormplugin.WithLogger(slog.New(slog.DiscardHandler))
	if err := db.Use(gormplugin.New(quiet, gormplugin.WithModels(&itemStock{}, &seckillOrder{}),
		gormplugin.WithUnique("uk_user_item", errBoughtBefore), gormplugin.WithUnique("uk_order_no", errNumberTaken))); err != nil {
		t.Fatal(err)
	}
	return db
}

func migrate(t testing.TB, db *gorm.DB) {
	t.Helper()
	if db.Migrator().HasTable(&seckillOrder{}) {
		return
	}
	if err := db.AutoMigrate(&itemStock{}, &seckillOrder{}, &orderEvent{}); err != nil {
		t.Fatal(err)
	}
	if db.Name() != onMariaDB {
		return
	}
	// No partial indexes there: a generated column that is NULL for closed orders does the same.
	for _, sql := range []string{
		"ALTER TABLE seckill_order DROP INDEX uk_user_item",
		"ALTER TABLE seckill_order ADD COLUMN live_user BIGINT GENERATED ALWAYS AS (CASE WHEN status <> 2 THEN user_id END) VIRTUAL",
		"ALTER TABLE seckill_order ADD UNIQUE INDEX uk_user_item (live_user, item_id, activity_id, nth)",
	} {
		if err := db.Exec(sql).Error; err != nil {
			t.Fatal(err)
		}
	}
}

// sell puts an item on sale, in SQL and in Redis.
func (s *shop) sell(item, units int64, limit stock.Limit) {
	s.Helper()
	if err := s.db.Create(&itemStock{ItemID: item, Stock: units}).Error; err != nil {
		s.Fatal(err)
	}
	s.warm(item, units, limit)
}

func (s *shop) warm(item, units int64, limit stock.Limit) {
	s.Helper()
	_, err := s.counter.Warm(s.Context(), stock.Sale{Item: item, Activity: 1, Units: units, Limit: limit, Ends: time.Now().Add(time.Hour)})
	if err != nil {
		s.Fatal(err)
	}
}

// buy deducts one unit of item 1001.
func (s *shop) buy(user int64) string {
	s.Helper()
	return s.order(stock.Order{Item: 1001, User: user, Units: 1})
}

func (s *shop) order(o stock.Order) string {
	s.Helper()
	o.Activity = 1
	if o.RequestID == "" {
		o.RequestID = fmt.Sprintf("request-%v-%v", o.User, o.Item)
	}
	res, err := s.counter.Deduct(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	return res.Order
}

// work runs a worker until the streams are empty, and lets it end.
func (s *shop) work() { s.Helper(); s.workWith(s.lander) }

func (s *shop) workWith(l *Lander[seckillOrder, itemStock]) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Worker().Run(ctx) }()
	testserver.Eventually(s.T, 30*time.Second, func() bool { return s.backlog() == 0 }, "the stream was not landed: "+s.log.String())
	cancel()
	if err := <-ended; err != nil {
		s.Fatal(err)
	}
}

// sweep makes rounds until one ends nothing.
func (s *shop) sweep() {
	s.Helper()
	for range 20 {
		n, err := s.lander.Sweeper().Sweep(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	s.Fatal("the sweeper does not come to an end")
}

// due lets the deadlines of all holds pass, without waiting for them.
func (s *shop) due() {
	s.Helper()
	for _, stream := range s.counter.Streams() {
		key := strings.TrimSuffix(stream, "orders") + "deadlines"
		orders, err := s.rdb.ZRange(s.Context(), key, 0, -1).Result()
		if err != nil {
			s.Fatal(err)
		}
		for _, order := range orders {
			if err := s.rdb.ZAdd(s.Context(), key, redis.Z{Score: 1, Member: order}).Err(); err != nil {
				s.Fatal(err)
			}
		}
	}
}

func (s *shop) backlog() (n int64) {
	s.Helper()
	for _, stream := range s.counter.Streams() {
		length, err := s.rdb.XLen(s.Context(), stream).Result()
		if err != nil {
			s.Fatal(err)
		}
		n += length
	}
	return n
}

// entries are the fields of what is in the stream.
func (s *shop) entries() []map[string]any {
	s.Helper()
	var all []map[string]any
	for _, stream := range s.counter.Streams() {
		found, err := s.rdb.XRange(s.Context(), stream, "-", "+").Result()
		if err != nil {
			s.Fatal(err)
		}
		for _, e := range found {
			all = append(all, e.Values)
		}
	}
	return all
}

// deliver puts an entry into the stream once more.
func (s *shop) deliver(fields map[string]any) {
	s.Helper()
	if err := s.rdb.XAdd(s.Context(), &redis.XAddArgs{Stream: s.counter.Streams()[0], Values: fields}).Err(); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) rows() []seckillOrder {
	s.Helper()
	var rows []seckillOrder
	if err := s.db.Order("user_id, order_no").Find(&rows).Error; err != nil {
		s.Fatal(err)
	}
	return rows
}

// row returns the row of an order; its ID is 0 where there is none.
func (s *shop) row(orderNo string) seckillOrder {
	s.Helper()
	var row seckillOrder
	if err := s.db.Where("order_no = ?", orderNo).Limit(1).Find(&row).Error; err != nil {
		s.Fatal(err)
	}
	return row
}

func (s *shop) wantRow(orderNo string, status int16, reason string) {
	s.Helper()
	row := s.row(orderNo)
	got := ""
	if row.CloseReason != nil {
		got = *row.CloseReason
	}
	if row.ID == 0 || row.Status != status || got != reason {
		s.Errorf("row of the order: id %d, status %d, reason %q; want status %d, reason %q", row.ID, row.Status, got, status, reason)
	}
}

// want checks item 1001: units in SQL, in the Redis counter, withheld.
func (s *shop) want(inSQL, inRedis, withheld int64) {
	s.Helper()
	s.wantOf(1001, inSQL, inRedis, withheld)
}

func (s *shop) wantOf(item, inSQL, inRedis, withheld int64) {
	s.Helper()
	var row itemStock
	if err := s.db.First(&row, "item_id = ?", item).Error; err != nil {
		s.Fatal(err)
	}
	status, err := s.counter.Status(s.Context(), item)
	if err != nil {
		s.Fatal(err)
	}
	if row.Stock != inSQL || status.Left != inRedis || status.Withheld != withheld {
		s.Errorf("item %d has %d units in SQL, %d in Redis, %d withheld; want %d, %d, %d", item, row.Stock, status.Left, status.Withheld, inSQL, inRedis, withheld)
	}
}

// deadLetters returns what could not be landed.
func (s *shop) deadLetters() []DeadLetter {
	s.Helper()
	letters, err := s.lander.DeadLetters().List(s.Context(), 100)
	if err != nil {
		s.Fatal(err)
	}
	return letters
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// deadArgs puts an entry straight among the dead letters.
func deadArgs(s *shop, fields map[string]any) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: deadKey(s.counter.Streams()[0]), Values: fields}
}
