package gormplugin

import (
	"context"
	"errors"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// onceAttempts is how often InsertOnce tries while the row that stood in its way keeps vanishing before it can be read.
const onceAttempts = 3

// InsertOnce inserts the row of a request, once: row is a pointer to a model with a column marked guard:"request". It returns
// true when it inserted the row. When the request's row is there already, from an earlier attempt, it returns false and
// fills row with the stored one, so that the caller can answer with the first result or compare it with what was asked.
// Both leave a surrounding transaction usable, and so does a duplicate of another index, on PostgreSQL too.
//
// The request id is the one in row, else the one in tx's context. One's own request comes first: an attempt that repeats
// may violate several unique indexes at once, and which of them a database reports is its own affair.
//
// Hooks run and associations are saved as with Create, except that on false no After hook runs and no association that
// refers to the row is saved. In a transaction, what a Before hook or an association that the row refers to has written stays then.
//
// Errors, after which row is as it was:
//
//   - [ErrDuplicate], with what [WithUnique] maps the index to: another row, not this request's, has the same key.
//   - [ErrConflict]: the row in the way came and went; or a deadlock or the like.
//   - [ErrInvalid]: row is no such model, there is no request id, or tx carries an ON CONFLICT.
//   - others as any insert has them.
func InsertOnce(tx *gorm.DB, row any) (inserted bool, err error) {
	o, err := newOnce(tx, row)
	if err != nil {
		return false, err
	}
	inserted, err = o.run()
	if err != nil {
		o.row.Set(o.before)
		return false, err
	}
	state := o.p.judge.txs.known(tx.Statement.ConnPool)
	state.once(inserted)
	o.p.judge.txs.onRollback(tx.Statement.ConnPool, func() { o.row.Set(o.before) })
	return inserted, nil
}

// once is one InsertOnce.
type once struct {
	p       *Plugin
	tx      *gorm.DB // as the caller gave it, safe to use more than once
	ctx     context.Context
	row     reflect.Value // the struct
	before  reflect.Value // a copy of it
	request *schema.Field
	id      any // as the field holds it
}

func newOnce(tx *gorm.DB, row any) (*once, error) {
	p, err := pluginOf(tx)
	if err != nil {
		return nil, err
	}
	if tx.Error != nil {
		return nil, tx.Error
	}
	v := reflect.ValueOf(row)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil, fail(ErrInvalid, "row", "InsertOnce wants a pointer to a struct")
	}
	request, err := p.requestField(tx, row)
	if err != nil {
		return nil, err
	}
	o := onceOf(p, tx, request, v.Elem())
	if _, zero := o.request.ValueOf(o.ctx, o.row); zero {
		r, _ := reqctx.RequestOf(o.ctx)
		if r.ID == "" {
			return nil, fail(ErrInvalid, "request", "no request id, neither in the row nor in the context")
		}
		if err := o.request.Set(o.ctx, o.row, r.ID); err != nil {
			return nil, &Error{sentinel: ErrInvalid, reason: "request", column: o.request.DBName, cause: err}
		}
	}
	o.id, _ = o.request.ValueOf(o.ctx, o.row)
	return o, nil
}

// onceOf prepares the insert of a row that has its request id.
func onceOf(p *Plugin, tx *gorm.DB, request *schema.Field, row reflect.Value) *once {
	o := &once{p: p, tx: tx.Session(&gorm.Session{}), ctx: tx.Statement.Context, row: row, request: request}
	o.before = reflect.New(row.Type()).Elem()
	o.before.Set(row)
	o.id, _ = request.ValueOf(o.ctx, row)
	return o
}

// requestField returns the field of a model that holds the request id, one row for each.
func (p *Plugin) requestField(tx *gorm.DB, model any) (*schema.Field, error) {
	if _, given := tx.Statement.Clauses["ON CONFLICT"]; given {
		return nil, fail(ErrInvalid, "clause", "an ON CONFLICT of your own could write over another request's row")
	}
	stmt := &gorm.Statement{DB: tx.Session(&gorm.Session{NewDB: true})}
	if err := stmt.Parse(model); err != nil {
		return nil, &Error{sentinel: ErrInvalid, reason: "model", cause: err}
	}
	e := p.catalog.of(stmt)
	switch {
	case e != nil && e.err != nil:
		return nil, e.err
	case e == nil || e.table == nil || e.table.request == nil || e.table.request.last:
		return nil, &Error{sentinel: ErrInvalid, reason: "model", table: stmt.Table, hint: "the model needs a column marked guard:\"request\", not last"}
	}
	if e.table.schema == stmt.Schema {
		return e.table.request.field, nil
	}
	if f := stmt.Schema.LookUpField(e.table.request.name); f != nil {
		return f, nil
	}
	return nil, &Error{sentinel: ErrInvalid, reason: "model", table: stmt.Table, column: e.table.request.name, hint: "the model lacks the request column"}
}

func (o *once) run() (inserted bool, err error) {
	for range onceAttempts {
		inserted, err = o.insert(o.tx, o.tx.Name() == dialectPostgres)
		if inserted || err != nil && !errors.Is(err, gorm.ErrDuplicatedKey) {
			return inserted, err
		}
		if found, err := o.find(); found || err != nil {
			return false, err
		}
		if err == nil { // the database passed the row over, and said no name
			if inserted, err = o.insertInSavepoint(); inserted {
				return true, nil
			}
		}
		if err != nil && !errors.Is(err, ErrAlreadyApplied) {
			return false, err
		}
		// The row of this request was in the way and is gone: its transaction was rolled back meanwhile.
		o.restore()
	}
	return false, &Error{sentinel: ErrConflict, reason: "raced", table: bareName(o.request.Schema.Table), cause: err}
}

// insert inserts the row. With skip a row that is in the way makes no error: that would end a PostgreSQL transaction.
// Elsewhere an error undoes the one statement only and says which index it was, while to skip has a price: MariaDB reports
// a row and the id of the existing one, and SQLite counts up and writes.
func (o *once) insert(tx *gorm.DB, skip bool) (bool, error) {
	if skip {
		tx = tx.Clauses(clause.OnConflict{DoNothing: true}, onceClause{})
	} else {
		tx = tx.Session(&gorm.Session{Logger: quiet(tx.Logger)})
	}
	tx = tx.Create(o.row.Addr().Interface())
	return tx.Error == nil && tx.RowsAffected > 0, tx.Error
}

// insertInSavepoint asks PostgreSQL which index is in the way: it tries to insert without skipping. That is exact for
// partial indexes, expressions, generated columns and indexes that no model declares.
func (o *once) insertInSavepoint() (inserted bool, err error) {
	tx := o.tx.Session(&gorm.Session{SkipHooks: true}) // they have run
	if !inTransaction(tx.Statement.ConnPool) {
		return o.insert(tx, false)
	}
	const name = "holdfast_once"
	plain := tx.Session(&gorm.Session{NewDB: true})
	if err := plain.Exec("SAVEPOINT " + name).Error; err != nil { // gorm's SavePoint would not say
		return false, err
	}
	inserted, err = o.insert(tx, false)
	if err != nil {
		if undo := plain.Exec("ROLLBACK TO SAVEPOINT " + name).Error; undo != nil {
			return false, undo
		}
	}
	return inserted, err
}

// find reads the request's row into the caller's. In a MySQL transaction it locks it for reading: a plain read would see
// the snapshot from before the row was there.
func (o *once) find() (bool, error) {
	stored := reflect.New(o.row.Type())
	own := clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: o.request.DBName}, Value: o.id}
	tx := o.reader().Where(own).Limit(1).Find(stored.Interface())
	if tx.Error != nil || tx.RowsAffected == 0 {
		return false, tx.Error
	}
	o.row.Set(stored.Elem())
	return true, nil
}

// reader returns a handle that reads the table of the insert, soft-deleted rows included, where the insert went.
func (o *once) reader() *gorm.DB {
	tx := o.tx.Session(&gorm.Session{NewDB: true}).Unscoped().Set(resolverWrite, struct{}{})
	if t := o.tx.Statement; t.TableExpr != nil {
		tx = tx.Table(t.Table)
	}
	if tx.Name() == dialectMySQL && inTransaction(tx.Statement.ConnPool) {
		tx = tx.Clauses(shareLock{})
	}
	return tx
}

// restore puts back what the failed insert has set in the row, but for the request id.
func (o *once) restore() {
	o.row.Set(o.before)
	_ = o.request.Set(o.ctx, o.row, o.id) // it was set like this once
}

// resolverWrite is the setting by which gorm's dbresolver sends a read to the source: a replica may not have the row yet.
const resolverWrite = "gorm:db_resolver:write"

// onceClause marks the statement of an InsertOnce. Unlike a setting, it is not handed on to associations.
type onceClause struct{}

// onceKey is its name, which gorm renders nowhere.
const onceKey = "holdfast:once"

// Name implements clause.Interface.
func (onceClause) Name() string { return onceKey }

// Build implements clause.Interface and writes nothing.
func (onceClause) Build(clause.Builder) {}

// MergeClause implements clause.Interface.
func (c onceClause) MergeClause(into *clause.Clause) { into.Expression = c }

// verifyOnce is called after an insert, inside its transaction: when the row was passed over, what comes after it must not
// run. It is no error, since gorm would log one.
func verifyOnce(db *gorm.DB) {
	if _, ok := db.Statement.Clauses[onceKey]; !ok || db.Error != nil || db.RowsAffected > 0 || db.DryRun {
		return
	}
	db.Statement.SkipHooks = true
	db.Statement.Omits = append(db.Statement.Omits[:len(db.Statement.Omits):len(db.Statement.Omits)], clause.Associations)
}

// shareLock locks what a SELECT of MySQL or MariaDB reads, in the one form that all versions of both know.
type shareLock struct{}

// Name implements clause.Interface. It is the name of gorm's own locking clause, which dbresolver looks for.
func (shareLock) Name() string { return "FOR" }

// Build implements clause.Interface.
func (shareLock) Build(b clause.Builder) { write(b, "LOCK IN SHARE MODE") }

// MergeClause implements clause.Interface.
func (c shareLock) MergeClause(into *clause.Clause) { into.Name, into.Expression = "", c }
