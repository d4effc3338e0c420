package gormplugin

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// A resolver opens more databases with copies of one Config: they share the builders, and have callbacks of their own.
func TestInitializeTwiceGuardsOnce(t *testing.T) {
	d := newDatabase(t, dialectSQLite)
	db := d.bare(t, gorm.Config{})
	plugin := New()
	if err := errors.Join(db.AutoMigrate(&stocked{}), db.Use(plugin)); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Initialize(db); err != nil {
		t.Fatalf("again: %v", err)
	}
	second, err := gorm.Open(d.dialector(), &gorm.Config{Logger: logger.Discard, ClauseBuilders: db.ClauseBuilders})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := second.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if err := plugin.Initialize(second); err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*gorm.DB{"first": db, "second": second} {
		sql := db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Model(&stocked{ID: 1}).Update("stock", Sub(2)) })
		if want := "UPDATE `items` SET `stock`=`stock` - 2 WHERE `id` = 1 AND `stock` >= 2"; sql != want {
			t.Errorf("%s: %s, want %s", name, sql, want)
		}
	}
	if err := db.Use(New()); !errors.Is(err, gorm.ErrRegistered) {
		t.Errorf("a second plugin: %v", err)
	}
}

func TestOtherDatabasesAreRefused(t *testing.T) {
	db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
	db.Dialector = otherDialector{db.Dialector}
	if err := db.Use(New()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "sqlserver") {
		t.Errorf("got %v, want ErrInvalid that names the dialector", err)
	}
}

type otherDialector struct{ gorm.Dialector }

func (otherDialector) Name() string { return "sqlserver" }

// Without the plugin, or outside an update, a Delta is an error and not a number.
func TestDeltaIsNoValue(t *testing.T) {
	db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
	if err := db.AutoMigrate(&stocked{}); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"update": db.Model(&stocked{ID: 1}).Update("stock", Sub(1)).Error,
		"insert": db.Model(&stocked{}).Create(map[string]any{"stock": Sub(1)}).Error,
		"where":  db.Where("stock > ?", Sub(1)).Find(&[]stocked{}).Error,
		"take":   func() error { _, err := Take(db, &stocked{ID: 1}, 1); return err }(),
	} {
		if !errors.Is(err, ErrUnguardedWrite) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	db = newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&stocked{}})
	if err := gorm.G[stocked](db).Set(Sub(1).On("stock")).Create(context.Background()); !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("generic create: %v", err)
	}
}

// A dry run writes the guarded statement, judges nothing and changes nothing.
func TestDryRun(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&softly{}, &embedding{}})
		dry := db.Session(&gorm.Session{DryRun: true})
		row := softly{ID: 7, Version: 3}
		res := dry.Model(&row).Update("stock", Sub(1))
		if res.Error != nil || !strings.Contains(res.Statement.SQL.String(), ">=") || row.Version != 3 {
			t.Errorf("%v: %s, version %d", res.Error, res.Statement.SQL.String(), row.Version)
		}
		rows := []softly{{ID: 1, Version: 1}, {ID: 2, Version: 1}}
		if err := dry.Model(&rows).Update("deleted_at", nil).Error; err != nil {
			t.Errorf("slice: %v", err)
		}
		if err := dry.Delete(&row).Error; err != nil {
			t.Errorf("delete: %v", err)
		}
		if err := dry.Model(&row).Update("stock", 1).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("a refusal is one in a dry run too: %v", err)
		}
	})
}

// hooked sets the guarded column in a hook.
type hooked struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null"`
	Title string
}

func (h *hooked) BeforeUpdate(tx *gorm.DB) error {
	if tx.Statement.Changed("Title") {
		tx.Statement.SetColumn("Stock", 99)
	}
	return nil
}

func TestHookCannotSetTheColumn(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&hooked{}})
	row := hooked{Stock: 1}
	if err := db.Create(&row).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Model(&row).Updates(map[string]any{"title": "x"}).Error; !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("got %v, want ErrUnguardedWrite", err)
	}
	if err := db.Model(&row).Update("stock", Sub(1)).Error; err != nil {
		t.Error(err)
	}
}

// optimistic stands in for gorm's optimisticlock: a condition and a mark on each update, from a field type.
type optimistic int64

type optimisticClause struct{ field *schema.Field }

func (optimistic) UpdateClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{optimisticClause{f}}
}
func (optimisticClause) Name() string               { return "" }
func (optimisticClause) Build(clause.Builder)       {}
func (optimisticClause) MergeClause(*clause.Clause) {}
func (c optimisticClause) ModifyStatement(stmt *gorm.Statement) {
	if _, done := stmt.Clauses["version_enabled"]; done {
		return
	}
	if v, zero := c.field.ValueOf(stmt.Context, stmt.ReflectValue); !zero {
		stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: c.field.DBName}, Value: v}}})
	}
	stmt.Clauses["version_enabled"] = clause.Clause{}
}

// A stale Save beside optimisticlock hits no row, and would then insert one or overwrite it.
func TestStaleSaveBesideOptimisticlock(t *testing.T) {
	type guest struct {
		ID      int64
		Name    string
		Stock   int64 `guard:"stock" gorm:"not null;default:0"`
		Version optimistic
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&guest{}})
		row := guest{Name: "a", Version: 2}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		row.Version = 1
		if err := db.Omit("Stock").Save(&row).Error; !errors.Is(err, ErrVersionConflict) {
			t.Errorf("got %v, want ErrVersionConflict", err)
		}
		if err := db.Model(&row).Update("stock", Sub(1)).Error; !errors.Is(err, ErrVersionConflict) {
			t.Errorf("Sub: got %v, want ErrVersionConflict", err)
		}
		var rows []guest
		if db.Find(&rows); len(rows) != 1 || rows[0].Version != 2 {
			t.Errorf("rows %+v", rows)
		}
	})
}

// Settings of one statement do not reach the statements that save its children.
func TestClausesAreForOneStatement(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&warehouse{}, &bin{}})
	w := warehouse{Name: "w", Bins: []bin{{Label: "a", Stock: 1}}}
	if err := db.Create(&w).Error; err != nil {
		t.Fatal(err)
	}
	full := db.Session(&gorm.Session{FullSaveAssociations: true}).Clauses(AllowAbsolute("stock"))
	err := full.Updates(&warehouse{ID: w.ID, Name: "x", Bins: []bin{{ID: w.Bins[0].ID, Label: "a", Stock: 99, Version: 1}}}).Error
	if !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("got %v, want ErrUnguardedWrite", err)
	}
	merged := map[string]clause.Clause{}
	stmt := &gorm.Statement{Clauses: merged}
	for _, c := range []clause.Interface{AllowAbsolute("a"), AllowAbsolute("b"), From("c", 1), From("d", 2), AtVersion(1), AtVersion(2), Expect(1), Expect(2), AnyVersion()} {
		stmt.AddClause(c)
	}
	before := maps.Clone(merged)
	stmt.AddClause(From("e", 3))
	first, _ := before[settingsKey].Expression.(statementClause)
	s, _ := settingsOf(stmt)
	if len(s.absolute) != 2 || len(s.from) != 3 || s.atVersion != 2 || s.expect != 2 || !s.anyVersion || len(first.s.from) != 2 {
		t.Errorf("merged to %+v, before %+v", s, first.s)
	}
}
