package gormplugin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gorm.io/gorm"
)

type soundItem struct {
	ID       int64
	Stock    int64 `guard:"stock,max=capacity" gorm:"not null;check:chk_sound_stock,stock >= 0 AND stock <= capacity"`
	Capacity int64 `gorm:"not null"`
	Fence    int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
	Version  int64 `guard:"version" gorm:"not null;default:0"`
}

type soundOrder struct {
	ID        int64
	RequestID string `guard:"request,attempt=attempt" gorm:"size:43;not null;uniqueIndex:uk_sound_request"`
	Attempt   int
	UserID    int64  `gorm:"uniqueIndex:uk_sound_user_item"`
	ItemID    int64  `gorm:"uniqueIndex:uk_sound_user_item"`
	Code      string `gorm:"size:20;unique"`
}

// What AutoMigrate makes of sound models has no faults, under the names of gorm.
func TestSoundSchemaHasNoFaults(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&soundItem{}, &soundOrder{}}, WithUnique("uk_sound_user_item", errBought),
			WithUnique("sound_orders.uk_sound_request", errTaken), WithUnique("uni_sound_orders_code", errTaken), WithLogger(slog.New(slog.DiscardHandler)))
		p, err := pluginOf(db)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.VerifySchema(t.Context(), db); err != nil {
				t.Errorf("got %v, want no fault", err)
			}
		}
	})
}

// Each fault is named, with table and column and what to write. The tables are what an older migration has left.
func TestSchemaFaults(t *testing.T) {
	type item struct {
		ID    int64
		Stock int64 `guard:"stock"`
		Held  int64 `guard:"stock"`
		Fence int64 `guard:"fence,lock=stock"`
	}
	type order struct {
		ID        int64
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_request"`
		UserID    int64  `gorm:"uniqueIndex:uk_user_item"`
		ItemID    int64  `gorm:"uniqueIndex:uk_user_item"`
	}
	sound := map[string]string{
		"items":  "CREATE TABLE items (id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, held BIGINT NOT NULL, fence BIGINT NOT NULL)",
		"orders": "CREATE TABLE orders (id BIGINT PRIMARY KEY, request_id VARCHAR(43) NOT NULL, user_id BIGINT, item_id BIGINT)",
	}
	indexes := []string{"CREATE UNIQUE INDEX uk_request ON orders (request_id)", "CREATE UNIQUE INDEX uk_user_item ON orders (user_id, item_id)"}
	tests := map[string]struct {
		only          string // dialect, "" for all
		without       string // dialect
		replace       map[string]string
		indexes       []string
		opts          []Option
		table, column string
		says          string
	}{
		"no table":      {replace: map[string]string{"items": ""}, table: "items", says: "run its migration"},
		"no column":     {replace: map[string]string{"held BIGINT NOT NULL, ": ""}, table: "items", column: "held", says: "run its migration"},
		"may be NULL":   {replace: map[string]string{"stock BIGINT NOT NULL": "stock BIGINT"}, table: "items", column: "stock", says: "NOT NULL"},
		"a text":        {replace: map[string]string{"stock BIGINT": "stock VARCHAR(20)"}, table: "items", column: "stock", says: "BIGINT"},
		"a float":       {replace: map[string]string{"stock BIGINT": "stock DOUBLE PRECISION"}, table: "items", column: "stock", says: "BIGINT"},
		"a small fence": {without: dialectSQLite, replace: map[string]string{"fence BIGINT": "fence INTEGER"}, table: "items", column: "fence", says: "64"},
		"a fraction":    {only: dialectSQLite, replace: map[string]string{"stock BIGINT": "stock DECIMAL(10,2)"}, table: "items", column: "stock", says: "minor units"},
		"a short id":    {replace: map[string]string{"VARCHAR(43)": "VARCHAR(36)"}, table: "orders", column: "request_id", says: "VARCHAR(43)"},
		"no index of the request": {
			indexes: []string{"CREATE UNIQUE INDEX uk_request ON orders (request_id, user_id)", indexes[1]},
			table:   "orders", column: "request_id", says: "unique index of its own",
		},
		"index is missing": {indexes: indexes[:1], table: "orders", says: "uk_user_item is not on this table"},
		"other columns":    {indexes: []string{indexes[0], "CREATE UNIQUE INDEX uk_user_item ON orders (user_id)"}, table: "orders", says: "uk_user_item is over (user_id)"},
		"not unique":       {indexes: []string{indexes[0], "CREATE INDEX uk_user_item ON orders (user_id, item_id)"}, table: "orders", says: "uk_user_item is not on this table"},
		"partial": {
			without: dialectMySQL, indexes: []string{indexes[0], indexes[1] + " WHERE user_id > 5"}, table: "orders",
			says: "declared is WHERE (all rows)",
		},
		"a prefix": {
			only: dialectMySQL, indexes: []string{"CREATE UNIQUE INDEX uk_request ON orders (request_id(10))", indexes[1]}, table: "orders",
			column: "request_id", says: "unique index of its own",
		},
		"on another table": {
			without: dialectMySQL, indexes: []string{indexes[0], "CREATE UNIQUE INDEX uk_user_item ON items (stock)"}, table: "orders",
			says: "uk_user_item is not on this table",
		},
		"mapped, nobody has it": {opts: []Option{WithUnique("uk_nobody", errTaken)}, says: "uk_nobody"},
		"mapped, other columns": {opts: []Option{WithUnique("uk_user_item", errTaken, "orders.user_id")}, table: "orders", says: "uk_user_item is over"},
		"engine": {
			only: dialectMySQL, replace: map[string]string{"fence BIGINT NOT NULL)": "fence BIGINT NOT NULL) ENGINE=MyISAM"}, table: "items",
			says: "ENGINE=InnoDB",
		},
		"nothing": {},
	}
	onEach(t, func(t *testing.T, d database) {
		for name, tt := range tests {
			if tt.only != "" && tt.only != d.name || tt.without == d.name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, d.name)
				db := d.bare(t, gorm.Config{})
				for _, table := range []string{"items", "orders"} {
					ddl := sound[table]
					for from, to := range tt.replace {
						if ddl = strings.Replace(ddl, from, to, 1); from == table {
							ddl = ""
						}
					}
					if ddl == "" {
						continue
					}
					if err := db.Exec(ddl).Error; err != nil {
						t.Fatal(err)
					}
				}
				if tt.indexes == nil {
					tt.indexes = indexes
				}
				for _, ddl := range tt.indexes {
					if err := db.Exec(ddl).Error; err != nil {
						t.Fatal(err)
					}
				}
				p := New(append(tt.opts, WithModels(&item{}, &order{}), WithLogger(slog.New(slog.DiscardHandler)))...)
				if err := db.Use(p); err != nil {
					t.Fatal(err)
				}
				err := p.VerifySchema(t.Context(), db)
				if name == "nothing" {
					if err != nil {
						t.Errorf("a sound schema: %v", err)
					}
					return
				}
				if !errors.Is(err, ErrInvalid) {
					t.Fatalf("got %v, want a fault", err)
				}
				for _, fault := range err.(interface{ Unwrap() []error }).Unwrap() {
					var e *Error
					if errors.As(fault, &e) && e.Reason() == "schema" && e.Table() == tt.table && e.Column() == tt.column && strings.Contains(e.Error(), tt.says) {
						return
					}
				}
				t.Errorf("got %v; want %s.%s: %q", err, tt.table, tt.column, tt.says)
			})
		}
	})
}

// All faults come at once.
func TestSchemaFaultsComeTogether(t *testing.T) {
	db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
	p := New(WithModels(&shopItem{}, &shopOrder{}), WithUnique("uk_nobody", errTaken), WithLogger(slog.New(slog.DiscardHandler)))
	if err := db.Use(p); err != nil {
		t.Fatal(err)
	}
	err := p.VerifySchema(t.Context(), db)
	if err == nil || strings.Count(err.Error(), "gormplugin: ") != 3 {
		t.Errorf("got %v, want three faults", err)
	}
}

// A column that only WithColumn knows is looked at as well.
func TestSchemaOfAColumnWithoutAModel(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.bare(t, gorm.Config{})
		if err := db.Exec("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance VARCHAR(20) NOT NULL)").Error; err != nil {
			t.Fatal(err)
		}
		p := New(WithColumn("accounts", "balance", "stock"), WithLogger(slog.New(slog.DiscardHandler)))
		if err := db.Use(p); err != nil {
			t.Fatal(err)
		}
		var e *Error
		if err := p.VerifySchema(t.Context(), db); !errors.As(err, &e) || e.Table() != "accounts" || e.Column() != "balance" {
			t.Errorf("got %v, want a fault of accounts.balance", err)
		}
	})
}

// What is unwise goes to the logger, and is no error.
func TestSchemaAdvice(t *testing.T) {
	type counter struct {
		ID       int64
		Stock    int64 `guard:"stock,max=capacity" gorm:"not null"`
		Capacity int64 `gorm:"not null"`
	}
	want := map[string][]string{
		dialectPostgres: {"no CHECK keeps", "stock >= 0", "stock <= capacity"},
		dialectMySQL:    {"no CHECK keeps", "UPDATE counts changed rows", "above READ COMMITTED"},
		dialectSQLite:   {"no CHECK keeps", "_txlock=immediate"},
	}
	onEach(t, func(t *testing.T, d database) {
		var log bytes.Buffer
		db := d.open(t, gorm.Config{}, []any{&counter{}}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		p, err := pluginOf(db)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.VerifySchema(t.Context(), db); err != nil {
			t.Errorf("advice became an error: %v", err)
		}
		for _, text := range want[d.name] {
			if !strings.Contains(log.String(), text) {
				t.Errorf("no advice %q in %s", text, log.String())
			}
		}
	})
}

// A connection that asks for found rows, strict or not, is told from one that does not by trying.
func TestSchemaOfMySQLSettings(t *testing.T) {
	d := newDatabase(t, dialectMySQL)
	for setting, want := range map[string]string{
		"&sql_mode=''": "STRICT_TRANS_TABLES", "&sql_mode='STRICT_TRANS_TABLES,NO_UNSIGNED_SUBTRACTION'": "NO_UNSIGNED_SUBTRACTION",
	} {
		db := database{d.name, d.dsn + strings.ReplaceAll(setting, "'", "%27")}.bare(t, gorm.Config{})
		p := New(WithLogger(slog.New(slog.DiscardHandler)))
		if err := db.Use(p); err != nil {
			t.Fatal(err)
		}
		if err := p.VerifySchema(t.Context(), db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", setting, err, want)
		}
	}
	var log bytes.Buffer
	db := database{d.name, d.dsn + "&clientFoundRows=true"}.bare(t, gorm.Config{})
	p := New(WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err := db.Use(p); err != nil {
		t.Fatal(err)
	}
	if err := p.VerifySchema(t.Context(), db); err != nil || strings.Contains(log.String(), "changed rows") {
		t.Errorf("with clientFoundRows: %v, %s", err, log.String())
	}
}

func TestVerifySchemaWithoutADatabase(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		p := New(WithModels(&shopItem{}))
		if err := db.Use(p); err != nil {
			t.Fatal(err)
		}
		d.proxy.Refuse()
		if err := p.VerifySchema(t.Context(), db); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

func TestSamePredicate(t *testing.T) {
	same := [][2]string{
		{"status <> 2", "(status <> 2)"},
		{"status != 2", "(status <> 2)"},
		{"", ""},
		{"status IN (0, 1)", "(status = ANY (ARRAY[0, 1]))"},
		{"kind = 'live'", "((kind)::text = 'live'::text)"},
		{"kind = 'live'", "(kind)::character varying = 'live'::character varying"},
		{"deleted_at IS NULL AND status <> 2", "((deleted_at IS NULL) AND (status <> 2))"},
		{"`status` <> 2", `("orders"."status" <> 2)`},
		{"name = 'it''s'", "(name = 'it''s'::text)"},
	}
	for _, p := range same {
		if !samePredicate(p[0], p[1]) {
			t.Errorf("%q and %q are told apart: %q, %q", p[0], p[1], predicateParts(p[0]), predicateParts(p[1]))
		}
	}
	for _, p := range [][2]string{
		{"status <> 2", "status <> 3"}, {"status <> 2", "status = 2"}, {"status <> 2", "state <> 2"}, {"kind = 'a'", "kind = 'b'"}, {"a IS NULL", "a IS NOT NULL"}, {"x", ""},
	} {
		if samePredicate(p[0], p[1]) {
			t.Errorf("%q and %q are taken for the same", p[0], p[1])
		}
	}
}
