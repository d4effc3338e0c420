package main

import (
	"context"
	"errors"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Baselines of the database.
const (
	byHand    = "WHERE by hand"
	forUpdate = "SELECT FOR UPDATE"
	versioned = "version column and retry"
	unsorted  = "the same lines unsorted"
	aborted   = "INSERT, abort, read the first row"
	unplugged = "without the plugin"
)

const (
	hotClients = 50
	plenty     = int64(1) << 40
)

// gormSuite measures what SQL does in the end: a hot row, a row that is sold out, orders of several rows, repeats.
func gormSuite() Suite {
	return Suite{
		Name:  "gorm",
		About: "guarded updates against what is written by hand",
		Cases: []Case{
			{
				Name: "hot-row-50", Start: hotRow(plenty),
				Claims: []Claim{
					{Baseline: byHand, Unit: "updates/s", Target: .9},
					{Baseline: forUpdate, Unit: "updates/s", Target: 1.8},
					{Figure: "holdfast in gorm's transaction", Baseline: forUpdate, Unit: "updates/s", Target: 1.2, Suffix: "-default-transaction"},
					{Baseline: versioned, Unit: "updates/s", Target: 4},
				},
			},
			{
				Name: "sold-out-50", Start: hotRow(0),
				Claims: []Claim{
					{Baseline: forUpdate, Unit: "refusals/s", Target: 6},
					{Baseline: byHand, Unit: "refusals/s"}, // says no, but not why: shown only
				},
			},
			{
				Name: "orders-3-of-10-mariadb", Start: orders(openMariaDB),
				Claims: []Claim{{Baseline: unsorted, Unit: "orders/s", Target: 2}},
			},
			{
				Name: "orders-3-of-10-postgres", Start: orders(openPostgres),
				Claims: []Claim{{Baseline: unsorted, Unit: "orders/s", Target: 2}},
			},
			{
				Name: "repeat", Start: repeats,
				Claims: []Claim{{Baseline: aborted, Unit: "repeats/s", Target: 1.2}},
			},
			{
				Name: "unguarded", Start: unguarded,
				Claims: []Claim{{Baseline: unplugged, Unit: "ns", Target: 1.05, LowerIsBetter: true}},
			},
		},
	}
}

type hotItem struct {
	ID    int64
	Stock int64 `guard:"stock"`
}

// plainItem is the same table without the plugin's knowledge, for what is written by hand.
type plainItem struct {
	ID      int64
	Stock   int64
	Version int64 `gorm:"not null;default:0"`
}

func (plainItem) TableName() string { return "hot_items" }

func openPostgres(e *Env, c *gorm.Config) *gorm.DB {
	return open(e, postgres.Open(testserver.Postgres(e.TB).DSN), c)
}

func openMariaDB(e *Env, c *gorm.Config) *gorm.DB {
	return open(e, mysql.Open(testserver.MariaDB(e.TB).DSN), c)
}

func open(e *Env, d gorm.Dialector, c *gorm.Config) *gorm.DB {
	e.Helper()
	c.Logger = logger.Discard
	db := must(e, func() (*gorm.DB, error) { return gorm.Open(d, c) })
	pool := must(e, db.DB)
	pool.SetMaxOpenConns(hotClients)
	pool.SetMaxIdleConns(hotClients)
	e.Cleanup(func() { _ = pool.Close() })
	return db
}

func migrated(e *Env, db *gorm.DB, items int, stock int64) *gorm.DB {
	e.Helper()
	if err := db.AutoMigrate(&plainItem{}); err != nil {
		e.Fatal(err)
	}
	for id := range items {
		if err := db.Create(&plainItem{ID: int64(id + 1), Stock: stock}).Error; err != nil {
			e.Fatal(err)
		}
	}
	return db
}

func guarded(e *Env, db *gorm.DB, models ...any) *gorm.DB {
	e.Helper()
	if err := db.Use(gormplugin.New(gormplugin.WithModels(models...), gormplugin.WithLogger(quiet))); err != nil {
		e.Fatal(err)
	}
	return db
}

// hotRow is one row that everybody wants, with gorm's default transaction off for all but one subject. All of them share
// one pool of connections and the prepared statements that its driver keeps.
func hotRow(stock int64) func(e *Env) Round {
	return func(e *Env) Round {
		first := open(e, postgres.Open(testserver.Postgres(e.TB).DSN), &gorm.Config{})
		pool := must(e, first.DB)
		dial := func(c *gorm.Config) *gorm.DB {
			c.Logger = logger.Discard
			return must(e, func() (*gorm.DB, error) { return gorm.Open(postgres.New(postgres.Config{Conn: pool}), c) })
		}
		plain := migrated(e, dial(&gorm.Config{SkipDefaultTransaction: true}), 1, stock)
		lean := guarded(e, dial(&gorm.Config{SkipDefaultTransaction: true}), &hotItem{})
		full := guarded(e, dial(&gorm.Config{}), &hotItem{})
		subject := func(name string, take func() error) Subject {
			workers := newCrew(e, hotClients)
			return Subject{name, func(d time.Duration) (float64, error) {
				return workers.rate(d, func() error {
					if err := take(); err != nil && (stock > 0 || !errors.Is(err, errNone)) {
						return err
					}
					return nil
				})
			}}
		}
		take := func(db *gorm.DB) func() error {
			return func() error {
				err := db.Model(&hotItem{ID: 1}).Update("stock", gormplugin.Sub(1)).Error
				if errors.Is(err, gormplugin.ErrInsufficient) {
					return errNone
				}
				return err
			}
		}
		return interleave(
			subject(holdfast, take(lean)),
			subject("holdfast in gorm's transaction", take(full)),
			subject(byHand, func() error { return takeByHand(plain) }),
			subject(forUpdate, func() error { return takeForUpdate(plain) }),
			subject(versioned, func() error { return takeVersioned(plain) }),
		)
	}
}

var errNone = errors.New("none left")

func takeByHand(db *gorm.DB) error {
	res := db.Model(&plainItem{}).Where("id = ? AND stock >= ?", 1, 1).Update("stock", gorm.Expr("stock - ?", 1))
	if res.Error == nil && res.RowsAffected == 0 {
		return errNone
	}
	return res.Error
}

func takeForUpdate(db *gorm.DB) error {
	return db.Transaction(func(tx *gorm.DB) error {
		var item plainItem
		if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Take(&item, 1).Error; err != nil {
			return err
		}
		if item.Stock < 1 {
			return errNone
		}
		return tx.Model(&item).Update("stock", item.Stock-1).Error
	})
}

func takeVersioned(db *gorm.DB) error {
	for {
		var item plainItem
		if err := db.Take(&item, 1).Error; err != nil {
			return err
		}
		if item.Stock < 1 {
			return errNone
		}
		res := db.Model(&plainItem{}).Where("id = ? AND version = ?", 1, item.Version).
			Updates(map[string]any{"stock": item.Stock - 1, "version": item.Version + 1})
		if res.Error != nil || res.RowsAffected == 1 {
			return res.Error
		}
	}
}

// orders are 20 workers with carts of 3 of 10 items. Both subjects repeat a cart that met a deadlock; the sorted one
// meets none.
func orders(open func(*Env, *gorm.Config) *gorm.DB) func(e *Env) Round {
	return func(e *Env) Round {
		const workers, items = 20, 10
		db := guarded(e, migrated(e, open(e, &gorm.Config{SkipDefaultTransaction: true}), items, plenty), &hotItem{})
		next := make([]int, workers)
		cart := func(worker int) []int64 {
			next[worker]++
			n := next[worker]*7 + worker*3
			return []int64{int64(n%items) + 1, int64((n+4)%items) + 1, int64((n+7)%items) + 1}
		}
		subject := func(name string, buy func(tx *gorm.DB, cart []int64) error) Subject {
			return Subject{name, func(d time.Duration) (float64, error) {
				return rate(workers, d, func(worker int) error {
					c := cart(worker)
					for {
						err := gormplugin.Retry(context.Background(), db, func(tx *gorm.DB) error { return buy(tx, c) })
						if !errors.Is(err, gormplugin.ErrConflict) {
							return err
						}
					}
				})
			}}
		}
		return inTurn( // a deadlock takes PostgreSQL a second to find: longer than a slice
			subject(holdfast, func(tx *gorm.DB, cart []int64) error {
				lines := make([]gormplugin.Line, 0, len(cart))
				for _, id := range cart {
					lines = append(lines, gormplugin.Line{Model: &hotItem{ID: id}, Units: 1})
				}
				return gormplugin.TakeAll(tx, lines...)
			}),
			subject(unsorted, func(tx *gorm.DB, cart []int64) error {
				for _, id := range cart {
					if err := tx.Model(&hotItem{ID: id}).Update("stock", gormplugin.Sub(1)).Error; err != nil {
						return err
					}
				}
				return nil
			}),
		)
	}
}

type repeatOrder struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_request_id"`
	UserID    int64
}

// repeats are requests that come again, and want the first row.
func repeats(e *Env) Round {
	const clients = 8
	dsn := testserver.Postgres(e.TB).DSN
	plain := open(e, postgres.Open(dsn), &gorm.Config{SkipDefaultTransaction: true})
	if err := plain.AutoMigrate(&repeatOrder{}); err != nil {
		e.Fatal(err)
	}
	const id = "0123456789012345678901234567890123456789012"
	if err := plain.Create(&repeatOrder{RequestID: id, UserID: 42}).Error; err != nil {
		e.Fatal(err)
	}
	db := guarded(e, open(e, postgres.Open(dsn), &gorm.Config{SkipDefaultTransaction: true}), &repeatOrder{})
	return interleave(
		Subject{holdfast, func(d time.Duration) (float64, error) {
			return rate(clients, d, func(int) error {
				return db.Transaction(func(tx *gorm.DB) error {
					row := repeatOrder{RequestID: id, UserID: 42}
					first, err := gormplugin.InsertOnce(tx, &row)
					if err == nil && (first || row.ID == 0) {
						return errors.New("a repeat was taken for the first")
					}
					return err
				})
			})
		}},
		Subject{aborted, func(d time.Duration) (float64, error) {
			return rate(clients, d, func(int) error {
				err := plain.Transaction(func(tx *gorm.DB) error {
					return tx.Create(&repeatOrder{RequestID: id, UserID: 42}).Error
				})
				if err == nil {
					return errors.New("a repeat was inserted")
				}
				var row repeatOrder
				return plain.Take(&row, "request_id = ?", id).Error
			})
		}},
	)
}

// unguarded is an update of a model that has no guarded column, rendered but not sent.
func unguarded(e *Env) Round {
	type note struct {
		ID   int64
		Text string
	}
	dial := func() *gorm.DB {
		return open(e, postgres.Open("host=127.0.0.1 port=1"), &gorm.Config{SkipDefaultTransaction: true, DryRun: true, DisableAutomaticPing: true})
	}
	plain, plugged := dial(), guarded(e, dial(), &hotItem{})
	update := func(db *gorm.DB) func() {
		return func() { db.Model(&note{ID: 1}).Update("text", "x") }
	}
	return perCall([]string{holdfast, unplugged}, update(plugged), update(plain))
}
