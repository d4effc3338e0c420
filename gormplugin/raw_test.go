package gormplugin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gorm.io/gorm"
)

func TestRawSQLThatWritesATable(t *testing.T) {
	for sql, want := range map[string]bool{
		"UPDATE items SET stock = 1":                                         true,
		"update `items` set stock = 1":                                       true,
		`UPDATE "shop"."items" SET stock = 1`:                                true,
		"/* x */ UPDATE items SET stock = 1":                                 true,
		"-- x\nUPDATE items SET stock = 1":                                   true,
		"DELETE FROM items":                                                  true,
		"MERGE INTO items USING x ON true WHEN MATCHED THEN DO NOTHING":      true,
		"REPLACE INTO items VALUES (1)":                                      true,
		"INSERT INTO items VALUES (1) ON CONFLICT DO UPDATE SET stock = 2":   true,
		"INSERT INTO items VALUES (1) ON DUPLICATE KEY UPDATE stock = 2":     true,
		"WITH x AS (UPDATE items SET stock = 1 RETURNING *) SELECT * FROM x": true,
		"EXPLAIN ANALYZE UPDATE items SET stock = 1":                         true,
		"SELECT 1; UPDATE items SET stock = 1":                               true,
		"UPDATE carts SET n = 1 FROM items WHERE items.id = carts.item":      true, // rather once too often
		"/*! UPDATE items SET stock = 1 */":                                  true,
		"COPY items FROM stdin":                                              true,
		"/*M!100000 UPDATE items SET stock = 1 */":                           true,
		"INSERT OR REPLACE INTO items VALUES (1)":                            true,
		"ANALYZE FORMAT=JSON UPDATE items SET stock = 1":                     true,
		"DESC ANALYZE DELETE FROM items":                                     true,
		"SELECT 5 # 3; UPDATE items SET stock = 1":                           true,
		`SELECT '{"a' || '"' || $1; UPDATE items SET stock = 1`:              true,
		"INSERT INTO items (title) VALUES (replace('a', 'b', 'c'))":          false,
		"ANALYZE items":  false,
		"DESCRIBE items": false,
		"UPDATE x SET a = '\\' WHERE b = ''; UPDATE items SET c = 'd'": true,
		"UPDATE x SET a = E'\\''; UPDATE items SET c = 'd'":            true,
		"SELECT * FROM items":            false,
		"SELECT * FROM items FOR UPDATE": false,
		"WITH x AS (SELECT * FROM items FOR NO KEY UPDATE) SELECT * FROM x": false,
		"INSERT INTO items VALUES (1)":                                      false,
		"CREATE INDEX i ON items (stock)":                                   false,
		"ALTER TABLE items ADD COLUMN x int":                                false,
		"UPDATE orders SET note = 'from items'":                             false,
		"UPDATE orders SET note = 'it''s items'":                            false,
		"UPDATE orders SET note = 1 -- items":                               false,
		"UPDATE orders SET note = 1 /* items */":                            false,
		"UPDATE orders SET note = $$items$$":                                false,
		"UPDATE orders SET note = $1":                                       false,
		"UPDATE items_old SET stock = 1":                                    false,
		"UPDATE orders SET x = 1; SELECT * FROM items":                      false,
	} {
		if got := writes(sql, "items", false); got != want {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
	for sql, want := range map[string]bool{
		`UPDATE x SET a = 'it\'s'; UPDATE items SET c = 1`: true, // a backslash hides a quote
		`UPDATE x SET a = 'it\'s items'`:                   false,
		`SELECT "6\" pipe"; UPDATE items SET c = 1`:        true,
		"SELECT 5--1; UPDATE items SET c = 1":              true, // a comment begins with a blank behind its dashes
		"UPDATE x SET a = 1 -- items":                      false,
		"UPDATE x SET a = 1 # items":                       false,
	} {
		if got := writes(sql, "items", true); got != want {
			t.Errorf("MySQL: %s: %v, want %v", sql, got, want)
		}
	}
}

func TestRawSQLPolicy(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		for policy, wantErr := range map[RawSQL]bool{Refuse: true, Warn: false, Ignore: false} {
			out.Reset()
			db := d.open(t, gorm.Config{}, []any{&stocked{}}, WithRawSQL(policy), WithLogger(log))
			item := newItem(t, db, 5, 10)
			var n int64
			var rows []stocked
			for name, write := range map[string]func() error{
				"exec": func() error { return db.Exec("UPDATE items SET stock = stock - 1 WHERE id = ?", item.ID).Error },
				"named": func() error {
					return db.Exec("UPDATE items SET stock = stock - 1 WHERE id = @id", map[string]any{"id": item.ID}).Error
				},
			} {
				for range 2 {
					if err := write(); errors.Is(err, ErrUnguardedWrite) != wantErr || (err != nil) != wantErr {
						t.Errorf("policy %d, %s: %v", policy, name, err)
					}
				}
			}
			if d.name != dialectMySQL {
				if err := db.Raw("UPDATE items SET stock = stock - 1 WHERE id = ? RETURNING stock", item.ID).Scan(&n).Error; errors.Is(err, ErrUnguardedWrite) != wantErr {
					t.Errorf("policy %d, raw scan: %v", policy, err)
				}
				if err := db.Raw("UPDATE items SET stock = stock - 1 WHERE id = ? RETURNING *", item.ID).Find(&rows).Error; errors.Is(err, ErrUnguardedWrite) != wantErr {
					t.Errorf("policy %d, raw find: %v", policy, err)
				}
			}
			var got int64
			err := db.Raw("UPDATE items SET stock = stock WHERE id = ?", item.ID).Row().Scan(&got) // nothing comes back
			if errors.Is(err, ErrUnguardedWrite) != wantErr || err == nil {
				t.Errorf("policy %d, row: %v", policy, err)
			}
			for name, err := range map[string]error{ // gorm sends the raw text, whatever the call is named
				"create": db.Raw("UPDATE items SET stock = stock WHERE id = ?", item.ID).Create(&stocked{}).Error,
				"update": db.Session(&gorm.Session{AllowGlobalUpdate: true}).Raw("UPDATE items SET stock = stock WHERE id = ?", item.ID).Model(&item).Update("title", "x").Error,
				"delete": db.Session(&gorm.Session{AllowGlobalUpdate: true}).Raw("UPDATE items SET stock = stock WHERE id = ?", item.ID).Delete(&item).Error,
			} {
				if errors.Is(err, ErrUnguardedWrite) != wantErr {
					t.Errorf("policy %d, raw %s: %v", policy, name, err)
				}
			}
			if err := db.Raw("SELECT COUNT(*) FROM items").Scan(&n).Error; err != nil {
				t.Error(err)
			}
			if got := strings.Count(out.String(), "raw SQL writes"); (got > 0) != (policy == Warn) || got > 8 {
				t.Errorf("policy %d: %d warnings, want one for each place:\n%s", policy, got, out.String())
			}
		}
	})
}
