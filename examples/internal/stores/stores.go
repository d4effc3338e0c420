// Package stores opens what an example runs on: an embedded Redis and SQLite, so that nothing need be installed, or real
// servers.
package stores

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"

	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Config says which servers to use; empty means embedded.
type Config struct {
	Redis    string // host:port
	Postgres string // DSN
}

// Flags registers -redis and -postgres.
func Flags(fs *flag.FlagSet) *Config {
	c := new(Config)
	fs.StringVar(&c.Redis, "redis", "", "address of a Redis server, `host:port`; empty: embedded")
	fs.StringVar(&c.Postgres, "postgres", "", "`DSN` of a PostgreSQL database, in which the example makes its tables anew; empty: embedded SQLite")
	return c
}

// String names the servers.
func (c Config) String() string {
	redisName, sqlName := "embedded Redis", "embedded SQLite"
	if c.Redis != "" {
		redisName = "Redis"
	}
	if c.Postgres != "" {
		sqlName = "PostgreSQL"
	}
	return redisName + ", " + sqlName
}

// Stores are the two layers: Redis for speed, SQL for truth.
type Stores struct {
	Redis *redis.Client
	DB    *gorm.DB
	// Prefix is for every key of this run: the tables are made anew, and so must the keys be that an earlier run has
	// left in Redis.
	Prefix string

	close []func() error
}

// Open opens both, with the plugins in use and the tables of the models made anew. The caller closes them.
func Open(ctx context.Context, c Config, app string, plugins []gorm.Plugin, tables ...any) (_ *Stores, err error) {
	s := &Stores{Prefix: app + ":" + rand.Text()[:8] + ":"}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openRedis(ctx, c.Redis); err != nil {
		return nil, err
	}
	if err := s.openSQL(ctx, c.Postgres); err != nil {
		return nil, err
	}
	for _, p := range plugins {
		if err := s.DB.Use(p); err != nil {
			return nil, err
		}
	}
	return s, migrate(s.DB, tables)
}

func (s *Stores) openRedis(ctx context.Context, addr string) (err error) {
	rdb, stop, err := OpenRedis(ctx, addr)
	if err != nil {
		return err
	}
	s.Redis = rdb
	s.close = append(s.close, stop)
	return nil
}

func (s *Stores) openSQL(ctx context.Context, dsn string) error {
	dialector, conns := postgres.Open(dsn), 20
	if dsn == "" {
		// A database in memory that several connections share; it lives as long as one of them is open: this one.
		dsn = "file:/" + rand.Text() + "?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate"
		keep, err := sql.Open(sqlite.DriverName, dsn)
		if err != nil {
			return err
		}
		s.close = append(s.close, keep.Close)
		if err := keep.PingContext(ctx); err != nil {
			return err
		}
		// One connection for the example: SQLite has one writer at a time anyway, and waiting in the pool is fairer.
		dialector, conns = sqlite.Open(dsn), 1
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
	s.DB = db.WithContext(ctx)
	return nil
}

func migrate(db *gorm.DB, tables []any) error {
	m := db.Migrator()
	for _, t := range tables {
		if err := m.DropTable(t); err != nil {
			return fmt.Errorf("drop a table of an earlier run: %w", err)
		}
	}
	if err := m.AutoMigrate(tables...); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

// Close closes what was opened, last first.
func (s *Stores) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	return errors.Join(errs...)
}
