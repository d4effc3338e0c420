package gormplugin

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// batchRows is how many rows one statement of InsertBatch inserts, at most. A database's limit of parameters may make it
// fewer.
const batchRows = 1000

// InsertBatch inserts the rows of many requests, each of them once: rows is a slice of models, or of pointers to models, with
// a column marked guard:"request", or a pointer to such a slice. Each row brings its own request id. One statement inserts
// up to 1000 rows; a duplicate costs only its own row, and a surrounding transaction stays usable.
//
// each has an entry for each row: nil for one that was inserted; [ErrAlreadyApplied] for one whose request's row was there
// already, and the row is filled with the stored one then; [ErrDuplicate], with what [WithUnique] maps the index to, for one
// that another row stands in the way of. Error.Line says which row it was.
//
// No hooks run and no associations are saved. With an error each is nil; outside a transaction some rows may have been
// inserted before it, and the same call again finds out which. An empty slice is no error.
func InsertBatch(tx *gorm.DB, rows any) (each []error, err error) {
	p, err := pluginOf(tx)
	if err != nil {
		return nil, err
	}
	if tx.Error != nil {
		return nil, tx.Error
	}
	slice := reflect.Indirect(reflect.ValueOf(rows))
	if slice.Kind() != reflect.Slice {
		return nil, fail(ErrInvalid, "rows", "InsertBatch wants a slice of models")
	}
	if slice.Len() == 0 {
		return nil, nil
	}
	b := &batch{p: p, tx: tx.Session(&gorm.Session{SkipHooks: true}).Omit(clause.Associations).Session(&gorm.Session{})}
	if b.request, err = p.requestField(tx, slice.Interface()); err != nil {
		return nil, err
	}
	for i := range slice.Len() {
		row := reflect.Indirect(slice.Index(i))
		if row.Kind() != reflect.Struct {
			return nil, &Error{sentinel: ErrInvalid, reason: "rows", line: i + 1, hint: "a row is nil, or no struct"}
		}
		o := onceOf(p, b.tx, b.request, row)
		if requestKey(o.id) == "" {
			return nil, &Error{sentinel: ErrInvalid, reason: "request", line: i + 1, hint: "each row of a batch brings its own request id"}
		}
		b.rows = append(b.rows, o)
	}
	if err := b.run(); err != nil {
		for _, o := range b.rows {
			o.row.Set(o.before)
		}
		return nil, err
	}
	return b.each, nil
}

// batch is one InsertBatch.
type batch struct {
	p       *Plugin
	tx      *gorm.DB
	request *schema.Field
	rows    []*once
	each    []error
}

func (b *batch) run() error {
	b.each = make([]error, len(b.rows))
	params := 65535
	if b.tx.Name() == dialectSQLite {
		params = 32766
	}
	size := max(1, min(batchRows, params/len(b.request.Schema.DBNames)))
	insert := b.insertSkipping
	if b.tx.Name() == dialectMySQL {
		insert = b.insertPlain
	}
	inserted := false
	for from := 0; from < len(b.rows); from += size {
		to := min(from+size, len(b.rows))
		if err := insert(from, to); err != nil {
			return err
		}
	}
	pool := b.tx.Statement.ConnPool
	for i, o := range b.rows {
		inserted = inserted || b.each[i] == nil
		b.p.judge.txs.onRollback(pool, func() { o.row.Set(o.before) })
	}
	b.p.judge.txs.known(pool).once(inserted)
	return nil
}

// insertPlain is for MySQL and MariaDB: a duplicate undoes the whole statement, and nothing but it, so then the rows go one
// by one.
func (b *batch) insertPlain(from, to int) error {
	err := b.tx.Session(&gorm.Session{Logger: quiet(b.tx.Logger)}).Create(b.pointers(from, to)).Error
	if !errors.Is(err, gorm.ErrDuplicatedKey) {
		return err
	}
	for i := from; i < to; i++ {
		b.rows[i].row.Set(b.rows[i].before)
		if err := b.insertOne(i); err != nil {
			return err
		}
	}
	return nil
}

// insertSkipping is for PostgreSQL and SQLite: rows that something stands in the way of are passed over, and those that went
// in are known by their request ids, since gorm gives RETURNING's rows to the wrong ones when some are missing.
func (b *batch) insertSkipping(from, to int) error {
	returned, err := b.insertReturning(from, to)
	if err != nil {
		return err
	}
	asked := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		asked = append(asked, i)
	}
	in := b.match(asked, returned)
	var left []int
	for _, i := range asked {
		o := b.rows[i]
		row, ok := in[i]
		if !ok {
			left = append(left, i)
			continue
		}
		for _, f := range b.request.Schema.FieldsWithDefaultDBValue {
			if v, _ := f.ValueOf(o.ctx, row); f.Readable {
				if err := f.Set(o.ctx, o.row, v); err != nil {
					return err
				}
			}
		}
	}
	return b.explain(left)
}

// match says which rows of the table, each of them for one, some rows of the batch are, by request id: one that says the same
// before one that says the same but for blanks at its end, with which a column of fixed length fills it up.
func (b *batch) match(some []int, stored []reflect.Value) map[int]reflect.Value {
	found := map[int]reflect.Value{}
	for _, key := range []func(any) string{requestText, requestKey} {
		at := make(map[string]int, len(stored))
		for n, row := range stored {
			if row.IsValid() {
				id, _ := b.request.ValueOf(b.tx.Statement.Context, row)
				at[key(id)] = n
			}
		}
		for _, i := range some {
			if _, ok := found[i]; ok {
				continue
			}
			text := key(b.rows[i].id)
			if n, ok := at[text]; ok {
				found[i] = stored[n]
				stored[n] = reflect.Value{}
				delete(at, text)
			}
		}
	}
	return found
}

// insertReturning sends one INSERT and returns what came back.
func (b *batch) insertReturning(from, to int) ([]reflect.Value, error) {
	columns := []clause.Column{{Name: b.request.DBName}}
	for _, f := range b.request.Schema.FieldsWithDefaultDBValue {
		if f.Readable && f != b.request {
			columns = append(columns, clause.Column{Name: f.DBName})
		}
	}
	built := b.tx.Session(&gorm.Session{DryRun: true, SkipDefaultTransaction: true}).
		Clauses(clause.OnConflict{DoNothing: true}, clause.Returning{Columns: columns}).Create(b.pointers(from, to))
	if built.Error != nil {
		return nil, built.Error
	}
	model := b.rows[from].row.Type()
	out := reflect.New(reflect.SliceOf(model))
	send := b.tx.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Set(resolverWrite, struct{}{}).Model(out.Interface())
	send.Statement.SQL.WriteString(built.Statement.SQL.String())
	send.Statement.Vars = built.Statement.Vars
	if err := send.Find(out.Interface()).Error; err != nil {
		return nil, err
	}
	return elementsOf(out), nil
}

// explain finds out why rows were passed over: their requests' rows are there, or others are in the way.
func (b *batch) explain(left []int) error {
	if len(left) == 0 {
		return nil
	}
	ids := make([]any, len(left))
	for n, i := range left {
		ids[n] = b.rows[i].id
	}
	stored := reflect.New(reflect.SliceOf(b.rows[0].row.Type()))
	own := clause.IN{Column: clause.Column{Table: clause.CurrentTable, Name: b.request.DBName}, Values: ids}
	if err := b.rows[0].reader().Where(own).Find(stored.Interface()).Error; err != nil {
		return err
	}
	there := b.match(left, elementsOf(stored))
	for _, i := range left {
		if row, ok := there[i]; ok {
			b.rows[i].row.Set(row)
			b.each[i] = b.alreadyApplied(i)
			continue
		}
		if err := b.insertOne(i); err != nil {
			return err
		}
	}
	return nil
}

// elementsOf returns the elements of the slice that p points to.
func elementsOf(p reflect.Value) []reflect.Value {
	all := make([]reflect.Value, p.Elem().Len())
	for i := range all {
		all[i] = p.Elem().Index(i)
	}
	return all
}

// insertOne inserts a row by itself, which names the index that is in the way.
func (b *batch) insertOne(i int) error {
	inserted, err := b.rows[i].run()
	var refused *Error
	switch {
	case err == nil && !inserted:
		b.each[i] = b.alreadyApplied(i)
	case errors.As(err, &refused) && errors.Is(err, ErrDuplicate):
		line := *refused
		line.line = i + 1
		b.each[i] = &line
		b.rows[i].row.Set(b.rows[i].before)
	case err != nil:
		return err
	}
	return nil
}

func (b *batch) alreadyApplied(i int) error {
	return &Error{sentinel: ErrAlreadyApplied, table: bareName(b.request.Schema.Table), column: b.request.DBName, line: i + 1}
}

// pointers returns rows as gorm fills them: a slice of pointers to the caller's own.
func (b *batch) pointers(from, to int) any {
	model := b.rows[from].row.Type()
	rows := reflect.MakeSlice(reflect.SliceOf(reflect.PointerTo(model)), 0, to-from)
	for _, o := range b.rows[from:to] {
		rows = reflect.Append(rows, o.row.Addr())
	}
	return rows.Interface()
}

// requestText makes a request id comparable.
func requestText(id any) string {
	v := reflect.ValueOf(id)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return ""
	case v.Kind() == reflect.String:
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}

// requestKey is requestText without the blanks at its end, with which a column of fixed length fills it up.
func requestKey(id any) string { return strings.TrimRight(requestText(id), " ") }
