package gormplugin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// maxLines is how many lines TakeAll takes.
const maxLines = 256

// Line is one line of [TakeAll]: units to take from the one stock column of the model, which has its primary key set.
type Line struct {
	Model any   // a struct or a pointer to one
	Units int64 // from 1 to 2^53-1
}

// Take takes units from the model's one stock column and returns what is left, in one round trip on every database. The
// row is found by its whole primary key; conditions and clauses that tx carries, such as [From], count too. No hooks run,
// update times are kept up, and the model in memory is not written, but for its version.
//
// Errors are those of an update with [Sub], and left is then 0; [ErrInvalid] also for a model without a whole primary key, with
// no stock column or several, with one that holds fractions, and on MySQL and MariaDB with a min below 0.
func Take(tx *gorm.DB, model any, units int64) (left int64, err error) {
	t, err := newTaking(tx, model, units)
	if err != nil {
		return 0, err
	}
	return t.run(tx, true)
}

// TakeAll takes every line or says which one failed, by [Error.Line]. tx is a transaction, else it returns [ErrInvalid]: a
// refusal leaves the lines before it taken, and the transaction's rollback gives them back; to go on after a refusal, nest
// tx.Transaction around the call.
//
// Equal rows are added up, and rows are taken in the order of table and primary key, so that carts in any order do not
// deadlock each other. At most 256 lines; none are no error. Each line is as [Take] does it.
func TakeAll(tx *gorm.DB, lines ...Line) error {
	switch {
	case tx.Error != nil:
		return tx.Error
	case !inTransaction(tx.Statement.ConnPool):
		return fail(ErrInvalid, "transaction", "TakeAll needs a transaction, which gives back what a refused line leaves taken")
	case len(lines) > maxLines:
		return fail(ErrInvalid, "lines", "at most 256 lines")
	}
	takings := make([]*taking, 0, len(lines))
	for i, l := range lines {
		t, err := newTaking(tx, l.Model, l.Units)
		if err != nil {
			return atLine(err, i)
		}
		t.line = i
		takings = append(takings, t)
	}
	slices.SortStableFunc(takings, (*taking).compare)
	for i := 0; i < len(takings); i++ {
		t := takings[i]
		for i+1 < len(takings) && t.compare(takings[i+1]) == 0 {
			i++
			t.units += takings[i].units
			if t.units > maxAmount {
				return atLine(fail(ErrInvalid, "amount", "the lines of one row add up to more than 2^53-1"), t.line)
			}
		}
		if _, err := t.run(tx, false); err != nil {
			return atLine(err, t.line)
		}
	}
	return nil
}

// atLine says which line an error is about.
func atLine(err error, line int) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	own := *e
	own.line = line + 1
	return &own
}

// taking is one Sub by primary key.
type taking struct {
	schema *schema.Schema
	table  *table
	column *column
	model  reflect.Value // as given, a struct
	keys   []any
	units  int64
	line   int
}

func newTaking(tx *gorm.DB, model any, units int64) (*taking, error) {
	p, err := pluginOf(tx)
	if err != nil {
		return nil, err
	}
	stmt := &gorm.Statement{DB: tx.Session(&gorm.Session{NewDB: true})}
	v := indirect(reflect.ValueOf(model))
	if v.Kind() != reflect.Struct {
		return nil, fail(ErrInvalid, "model", "Take wants a struct or a pointer to one")
	}
	if err := stmt.Parse(model); err != nil {
		return nil, &Error{sentinel: ErrInvalid, reason: "model", cause: err}
	}
	e := p.catalog.of(stmt)
	switch {
	case e != nil && e.err != nil:
		return nil, e.err
	case e == nil || e.table == nil || len(e.table.stock) != 1 || e.table.stock[0].decimal:
		return nil, &Error{sentinel: ErrInvalid, reason: "model", table: stmt.Table, hint: "the model needs one stock column of whole numbers"}
	case units < 1 || units > maxAmount:
		return nil, &Error{sentinel: ErrInvalid, typ: typeInvalid, reason: "amount", table: stmt.Table, hint: "units are from 1 to 2^53-1"}
	}
	t := &taking{schema: stmt.Schema, table: e.table, column: e.table.stock[0], model: v, units: units}
	for _, f := range t.schema.PrimaryFields {
		key, zero := f.ValueOf(tx.Statement.Context, v)
		if zero {
			t.keys = nil
			break
		}
		t.keys = append(t.keys, key)
	}
	if len(t.keys) == 0 {
		return nil, &Error{sentinel: ErrInvalid, reason: "model", table: stmt.Table, hint: "the model needs its whole primary key"}
	}
	return t, nil
}

// run takes the units. With left it reads what is left from the same statement.
func (t *taking) run(tx *gorm.DB, wantLeft bool) (left int64, err error) {
	db := tx.Session(&gorm.Session{})
	ctx := tx.Statement.Context
	row := reflect.New(t.schema.ModelType)
	for i, f := range t.schema.PrimaryFields {
		if err := f.Set(ctx, row, t.keys[i]); err != nil {
			return 0, &Error{sentinel: ErrInvalid, reason: "model", table: t.table.name, cause: err}
		}
	}
	values := map[string]any{t.column.name: Sub(t.units)}
	for _, f := range t.schema.FieldsByDBName {
		if f.AutoUpdateTime > 0 {
			values[f.DBName] = autoTime(db, f)
		}
	}
	result := gorm.WithResult()
	db = db.Model(row.Interface()).Clauses(result)
	mysql := db.Name() == dialectMySQL
	if wantLeft {
		if mysql {
			if m := t.column.min; m.isNumber() && m.number.sign() < 0 {
				return 0, fail(ErrInvalid, "min", "MySQL returns what is left as an unsigned number: Take needs a min of at least 0").at(t.table, t.column.name)
			}
			db = db.Clauses(statementClause{settings{takeLeft: true}})
		} else {
			db = db.Clauses(clause.Returning{Columns: []clause.Column{{Name: t.column.name}}})
		}
	}
	if err := db.UpdateColumns(values).Error; err != nil {
		return 0, err
	}
	if err := t.raiseVersion(tx); err != nil || !wantLeft {
		return 0, err
	}
	if mysql && !db.DryRun {
		return result.Result.LastInsertId()
	}
	f := t.schema.LookUpField(t.column.name)
	return integerIn(f, ctx, row), nil
}

// raiseVersion lets the caller's model follow its row, as an update through the model would.
func (t *taking) raiseVersion(tx *gorm.DB) error {
	if t.table.version == nil || !t.model.CanSet() || inTransaction(tx.Statement.ConnPool) {
		return nil
	}
	f := t.schema.LookUpField(t.table.version.name)
	if n := integerIn(f, tx.Statement.Context, t.model); n > 0 {
		return f.Set(tx.Statement.Context, t.model, n+1)
	}
	return nil
}

// autoTime is the value that gorm would give a column that it keeps the time of the update in.
func autoTime(db *gorm.DB, f *schema.Field) any {
	switch now := db.NowFunc(); f.AutoUpdateTime {
	case schema.UnixNanosecond:
		return now.UnixNano()
	case schema.UnixMillisecond:
		return now.UnixMilli()
	case schema.UnixSecond:
		return now.Unix()
	default:
		return now
	}
}

// compare orders rows by table and primary key, the same way in every process.
func (t *taking) compare(o *taking) int {
	if c := strings.Compare(t.table.name, o.table.name); c != 0 {
		return c
	}
	for i := range min(len(t.keys), len(o.keys)) {
		if c := compareKeys(t.keys[i], o.keys[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(t.keys), len(o.keys))
}

// compareKeys orders numbers as numbers and all else by its bytes.
func compareKeys(a, b any) int {
	x, okX := numberOf(a)
	y, okY := numberOf(b)
	if okX && okY && reflect.ValueOf(a).Kind() != reflect.String && reflect.ValueOf(b).Kind() != reflect.String {
		switch {
		case x.less(y):
			return -1
		case y.less(x):
			return 1
		}
		return 0
	}
	return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
}
