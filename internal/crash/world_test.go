package crash

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"database/sql"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/checker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	patience = 60 * time.Second
	ownConns = 4 // of the test itself to SQL
)

// world is a shop with what it stands on, and the proxies between. The parent's own connections go around them.
type world struct {
	testing.TB
	ctx      context.Context
	setup    setup
	shop     *child
	market   *market
	toRedis  *faultproxy.Proxy
	toSQL    *faultproxy.Proxy
	rdb      redis.UniversalClient
	db       *gorm.DB
	pool     *sql.DB
	counter  *stock.Counter
	lander   *landing.Lander[seckillOrder, itemStock]
	scripts  map[string]string // SHA-1 by "package/name"
	files    map[string]string // their text
	sales    []checker.Sale
	dice     *rand.Rand
	redisSrv *testserver.RedisServer    // a private one, nil otherwise
	sentinel *testserver.RedisSentinel  // nil otherwise
	sqlSrv   *testserver.PostgresServer // a private one, nil otherwise
	children []*child
	forgot   bool // Redis has lost what it had acknowledged
	// A counter was lost or changed by somebody; what Redis knows of requests and orders is whole.
	miscounted bool
}

// newWorld makes a shop that is not running yet. Items are on sale, and scripts are loaded.
func newWorld(t testing.TB, s setup, stands stands, seed uint64, items ...item) *world {
	t.Helper()
	w := &world{
		TB: t, ctx: t.Context(), setup: s, market: newMarket(64, 5*time.Second), scripts: map[string]string{}, files: map[string]string{},
		dice: rand.New(rand.NewPCG(seed, 1)), redisSrv: stands.redis, sentinel: stands.sentinel, sqlSrv: stands.sql,
	}
	w.toRedis = faultproxy.Redis(t, stands.redisAddr(t))
	database := stands.database(t)
	w.toSQL = faultproxy.Postgres(t, database.Addr)
	w.setup.Redis, w.setup.DSN, w.setup.Prefix = w.toRedis.Addr(), database.Via(w.toSQL.Addr()), "crash:"+database.Name+":"
	if w.setup.Hold == 0 {
		w.setup.Hold = hold
	}
	if w.setup.Conns == 0 {
		w.setup.Conns = 8
	}
	w.rdb = stands.client(t)
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if w.db, err = openSQL(database.DSN, ownConns); err != nil {
		t.Fatal(err)
	}
	if w.pool, err = w.db.DB(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range w.children {
			what := c.fault() // before it is killed
			c.kill()
			if what == "" {
				what = c.fault() // what it has printed last
			}
			if what != "" {
				t.Errorf("%s:\n%s", what, c.last())
			}
		}
		_ = w.pool.Close()
		w.market.http.CloseIdleConnections()
	})
	if err := w.db.AutoMigrate(&itemStock{}, &seckillOrder{}); err != nil {
		t.Fatal(err)
	}
	if w.counter, err = openCounter(w.rdb, w.setup, quiet); err != nil {
		t.Fatal(err)
	}
	if w.lander, err = openLander(w.counter, w.db, quiet); err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		w.sell(it)
	}
	w.loadLanding()
	return w
}

// restartSQL restarts PostgreSQL. The test's own connections do not outlive it either.
func (w *world) restartSQL() {
	w.Helper()
	w.sqlSrv.Restart(w)
	w.pool.SetMaxIdleConns(0)
	w.pool.SetMaxIdleConns(ownConns)
}

// item is put on sale.
type item struct{ id, units int64 }

func (w *world) sell(it item) {
	w.Helper()
	if err := w.db.Create(&itemStock{ItemID: it.id, Stock: it.units}).Error; err != nil {
		w.Fatal(err)
	}
	w.warm(it.id, it.units)
	w.sales = append(w.sales, checker.Sale{Item: text(it.id), Activity: text(activity), Units: it.units, Limit: 1})
}

func (w *world) warm(item, units int64) {
	w.Helper()
	sale := stock.Sale{Item: item, Activity: activity, Units: units, Limit: stock.Limit{Units: 1}, Ends: time.Now().Add(2 * time.Hour)}
	if w.setup.Segments {
		sale.Segments = segments
	}
	_, err := w.counter.Warm(w.ctx, sale)
	w.must(err)
}

// open starts the shop, once more if it is gone.
func (w *world) open() {
	w.Helper()
	w.living()
	if w.shop != nil && w.shop.alive() {
		return
	}
	var err error
	w.shop, err = start(w.setup)
	w.must(err)
	w.children = append(w.children, w.shop)
	w.learnScripts()
}

// living ends the test if a shop has done what none may do: whoever waits for it would wait in vain.
func (w *world) living() {
	w.Helper()
	for _, c := range w.children {
		if what := c.fault(); what != "" {
			w.Fatal(what) // the end of the test shows what it has printed
		}
	}
}

// learnScripts notes the SHA-1 of the scripts that the shop has loaded: a script's source ends with its file.
func (w *world) learnScripts() {
	w.Helper()
	if len(w.files) == 0 {
		for _, pkg := range []string{"stock", "lock", "dedup"} {
			for name, text := range luaFiles(w, pkg) {
				w.files[pkg+"/"+name] = text
			}
		}
	}
	for _, c := range w.toRedis.Commands(faultproxy.Named("SCRIPT")) {
		if len(c.Args) != 2 {
			continue
		}
		for name, text := range w.files {
			if strings.HasSuffix(c.Args[1], text) {
				w.scripts[name] = sha(c.Args[1])
			}
		}
	}
}

// loadLanding loads the scripts of package landing, which a Lander sends when it first needs them.
func (w *world) loadLanding() {
	w.Helper()
	files := luaFiles(w, "landing")
	for name, text := range files {
		source := files["common"] + text
		if err := w.rdb.ScriptLoad(w.ctx, source).Err(); err != nil {
			w.Fatal(err)
		}
		w.scripts["landing/"+name] = sha(source)
	}
}

func luaFiles(t testing.TB, pkg string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../" + pkg + "/lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts of %s: %v", pkg, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".lua")] = string(text)
	}
	return files
}

func sha(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// stands is what a world stands on: servers of its own where it breaks them, else those that all tests share.
type stands struct {
	redis    *testserver.RedisServer
	sentinel *testserver.RedisSentinel
	sql      *testserver.PostgresServer
}

func (s stands) redisAddr(t testing.TB) string {
	switch {
	case s.sentinel != nil:
		return s.sentinel.Primary(t).Addr()
	case s.redis != nil:
		return s.redis.Addr()
	}
	return testserver.Redis(t).Addr()
}

func (s stands) client(t testing.TB) redis.UniversalClient {
	switch {
	case s.sentinel != nil:
		return s.sentinel.Client(t)
	case s.redis != nil:
		return s.redis.Client(t)
	}
	return testserver.Redis(t).Client(t)
}

func (s stands) database(t testing.TB) testserver.Database {
	if s.sql != nil {
		return s.sql.Database(t)
	}
	return testserver.Postgres(t)
}
