package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// errAlreadyBought is what the unique index of a user's order means to this shop.
var errAlreadyBought = errors.New("you already took part")

// storeConfig says which servers to use.
type storeConfig struct {
	redis, postgres string
}

func (c storeConfig) String() string {
	redisName, sqlName := "embedded Redis", "embedded SQLite"
	if c.redis != "" {
		redisName = "Redis"
	}
	if c.postgres != "" {
		sqlName = "PostgreSQL"
	}
	return redisName + ", " + sqlName
}

// stores are the two layers: Redis for speed, SQL for truth.
type stores struct {
	rdb   redis.UniversalClient
	db    *gorm.DB
	close []func() error
}

func openStores(ctx context.Context, c storeConfig, plugins ...gorm.Plugin) (_ *stores, err error) {
	s := new(stores)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openRedis(ctx, c.redis); err != nil {
		return nil, err
	}
	if err := s.openSQL(ctx, c.postgres); err != nil {
		return nil, err
	}
	for _, p := range append(plugins, gormplugin.New(
		gormplugin.WithModels(&ItemStock{}, &SeckillOrder{}),
		gormplugin.WithUnique("uk_user_item", errAlreadyBought),
		gormplugin.WithLogger(slog.New(slog.DiscardHandler)),
	)) {
		if err := s.db.Use(p); err != nil {
			return nil, err
		}
	}
	return s, migrate(s.db)
}

func (s *stores) openRedis(ctx context.Context, addr string) error {
	if addr == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return fmt.Errorf("start the embedded Redis: %w", err)
		}
		s.close = append(s.close, func() error { embedded.Close(); return nil })
		addr = embedded.Addr()
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	s.close = append(s.close, s.rdb.Close)
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("Redis at %s does not answer: %w", addr, err)
	}
	return nil
}

// embeddedDSN is a database in memory that several connections share.
const embeddedDSN = "file:/shop?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate"

func (s *stores) openSQL(ctx context.Context, dsn string) error {
	dialector, conns := postgres.Open(dsn), 20
	if dsn == "" {
		keep, err := sql.Open(sqlite.DriverName, embeddedDSN)
		if err != nil {
			return err
		}
		s.close = append(s.close, keep.Close)
		if err := keep.PingContext(ctx); err != nil { // the database lives as long as a connection to it is open: this one
			return err
		}
		// One connection for the shop: SQLite has one writer at a time anyway, and waiting in the pool is fairer.
		dialector, conns = sqlite.Open(embeddedDSN), 1
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	s.close = append(s.close, pool.Close)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	s.db = db.WithContext(ctx)
	return nil
}

// Close closes what was opened, last first.
func (s *stores) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	return errors.Join(errs...)
}
