package landing

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// BenchmarkWorkerAgainstOneTransactionAnOrder lands orders of one hot item in PostgreSQL: by one worker, and as a consumer does
// that lands each order in a transaction of its own, which locks the hot row once an order. Both read the same stream and
// acknowledge; "transactions" is the second one with sixteen goroutines, "transaction" with one. PostgreSQL writes each COMMIT
// to the disk, as a shop's does.
func BenchmarkWorkerAgainstOneTransactionAnOrder(b *testing.B) {
	b.Run("worker", func(b *testing.B) {
		s := newBench(b)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		b.ResetTimer()
		go func() { ended <- s.lander.Worker().Run(ctx) }()
		s.wait(b)
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	})
	for name, workers := range map[string]int{"transaction": 1, "transactions": 16} {
		b.Run(name, func(b *testing.B) {
			s := newBench(b)
			stream := s.counter.Streams()[0]
			if err := s.rdb.XGroupCreate(b.Context(), stream, group, "0").Err(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			ended := make(chan error, workers)
			for n := range workers {
				go func() { ended <- s.oneByOne(b.Context(), stream, fmt.Sprint(n)) }()
			}
			for range workers {
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
		})
	}
}

// BenchmarkSweeperAgainstOneTransactionAHold closes unpaid orders of one hot item past their deadline: by the sweeper, and as one
// does that ends each hold in a transaction of its own.
func BenchmarkSweeperAgainstOneTransactionAHold(b *testing.B) {
	ways := map[string]func(b *testing.B, s *Sweeper) (ended int, err error){
		"sweeper": func(b *testing.B, s *Sweeper) (int, error) { return s.Sweep(b.Context()) },
		"transaction": func(b *testing.B, s *Sweeper) (int, error) {
			holds, err := s.e.counter.Expired(b.Context(), mostSwept)
			for i := range holds {
				f, err := s.alone(b.Context(), &holds[i])
				if err == nil {
					err = s.e.end(b.Context(), &holds[i].Entry, f)
				}
				if err != nil {
					return i, err
				}
			}
			return len(holds), err
		},
	}
	for name, sweep := range ways {
		b.Run(name, func(b *testing.B) {
			s := newBench(b, stock.WithHold(time.Hour))
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.lander.Worker().Run(ctx) }()
			s.wait(b)
			cancel()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			deadlines := strings.TrimSuffix(s.counter.Streams()[0], "orders") + "deadlines"
			if err := s.rdb.ZUnionStore(b.Context(), deadlines, &redis.ZStore{Keys: []string{deadlines}, Weights: []float64{0.001}}).Err(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for n := 0; n < b.N; {
				got, err := sweep(b, s.lander.Sweeper())
				if n += got; err != nil || got == 0 {
					b.Fatalf("%d of %d swept: %v", n, b.N, err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "holds/s")
		})
	}
}

type bench struct {
	rdb     *redis.Client
	counter *stock.Counter
	db      *gorm.DB
	lander  *Lander[seckillOrder, itemStock]
}

// newBench fills a stream with b.N orders of one item.
func newBench(b *testing.B, more ...stock.Option) *bench {
	b.Helper()
	srv := testserver.Redis(b)
	quiet := slog.New(slog.DiscardHandler)
	s := &bench{rdb: srv.Client(b, func(o *redis.Options) { o.PoolSize = 32 })}
	durable := testserver.NewPostgres(b, testserver.PostgresConfig("fsync", "on"), testserver.PostgresConfig("synchronous_commit", "on"))
	s.db = open(b, onPostgres, durable.Database(b).DSN)
	migrate(b, s.db)
	pool, err := s.db.DB()
	if err != nil {
		b.Fatal(err)
	}
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(16)
	more = append(more, stock.Prefix(srv.Prefix(b)), stock.WithStream(), stock.WithMaxBacklog(10_000_000), stock.WithLogger(quiet))
	if s.counter, err = stock.New(s.rdb, more...); err != nil {
		b.Fatal(err)
	}
	if s.lander, err = New[seckillOrder, itemStock](s.counter, s.db, rowOf, WithLogger(quiet)); err != nil {
		b.Fatal(err)
	}
	units := int64(b.N)
	if err := s.db.Create(&itemStock{ItemID: 1001, Stock: units}).Error; err != nil {
		b.Fatal(err)
	}
	if _, err := s.counter.Warm(b.Context(), stock.Sale{Item: 1001, Activity: 1, Units: units, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(time.Hour)}); err != nil {
		b.Fatal(err)
	}
	for user := range units {
		_, err := s.counter.Deduct(b.Context(), stock.Order{Item: 1001, Activity: 1, User: user + 1, Units: 1, RequestID: fmt.Sprintf("%043d", user)})
		if err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func (s *bench) wait(b *testing.B) {
	b.Helper()
	for {
		n, err := s.rdb.XLen(b.Context(), s.counter.Streams()[0]).Result()
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 {
			return
		}
		sleep(b.Context(), 2*time.Millisecond)
	}
}

// oneByOne is a consumer that lands each order in a transaction of its own.
func (s *bench) oneByOne(ctx context.Context, stream, name string) error {
	for {
		got, err := s.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: name, Streams: []string{stream, ">"}, Count: 16, Block: -1}).Result()
		if err == redis.Nil { //nolint:errorlint // go-redis returns it bare
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range got[0].Messages {
			entry, err := stock.ParseEntry(m.Values)
			if err != nil {
				return err
			}
			err = gormplugin.Retry(ctx, s.db, func(tx *gorm.DB) error {
				row := rowOf(entry)
				row.RequestID, row.OrderNo = entry.RequestID, entry.Order
				if first, err := gormplugin.InsertOnce(tx, &row); err != nil || !first {
					return err
				}
				return tx.Model(&itemStock{ItemID: row.ItemID}).Update("stock", gormplugin.Sub(row.Units)).Error
			})
			if err != nil {
				return err
			}
			if err := s.rdb.XAck(ctx, stream, group, m.ID).Err(); err != nil {
				return err
			}
			if err := s.rdb.XDel(ctx, stream, m.ID).Err(); err != nil {
				return err
			}
		}
	}
}
