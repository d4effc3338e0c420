package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// judge turns what databases and their drivers say into errors of this package. For a create, update or delete it is asked
// at four points, since gorm's own transaction lies around the statement:
//
//	failedBefore   before the statement is sent: an error is that of BEGIN, or of the caller's hook
//	statement      right after it was sent, still inside the transaction
//	beforeCommit   an error that is new is that of a hook or an association
//	finish         after gorm's COMMIT or ROLLBACK: an error that is new is COMMIT's
//
// A query, a row and raw SQL have one point, answer. gorm makes text of a first error when a second one comes, such as that
// of a ROLLBACK on a broken connection: so the first is kept at each point and put back at the end. While there is no error
// none of this costs anything.
type judge struct {
	txs       transactions
	indexes   indexCache
	catalog   *catalog
	uniques   []uniqueMapping
	checks    []checkMapping
	translate atomic.Bool // TranslateError was on: errors carry gorm's sentinels beside the driver's
}

// firstError is the setting that keeps the first error of a statement.
const firstError = "holdfast:first_error"

// keepFirst keeps the error of a statement, in its operation where it has one.
func keepFirst(db *gorm.DB) {
	if o := operationOf(db.Statement); o != nil {
		o.first = db.Error
	} else {
		db.InstanceSet(firstError, db.Error)
	}
}

// first returns the error that keepFirst kept, nil if there was none.
func first(db *gorm.DB) error {
	if o := operationOf(db.Statement); o != nil {
		return o.first
	}
	kept, _ := db.InstanceGet(firstError)
	err, _ := kept.(error)
	return err
}

// failedBefore is for an error that is there before the statement is sent.
func (j *judge) failedBefore(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if !db.SkipDefaultTransaction && !inTransaction(db.Statement.ConnPool) { // gorm's BEGIN failed
		db.Error = j.beginError(db, db.Error)
	}
	keepFirst(db)
}

// statement is for the error of a create, update or delete itself.
func (j *judge) statement(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if first(db) != nil {
		return
	}
	j.answer(db, true)
}

// answer is for the error of a query, a row or raw SQL. writes says whether a lost reply leaves something unknown.
func (j *judge) answer(db *gorm.DB, writes bool) {
	if db.Error == nil {
		return
	}
	pool := db.Statement.ConnPool
	e := classify(db.Name(), db.Error)
	j.replace(db, e, !writes || inTransaction(pool))
	if e.class != notOurs && e.class != deadTx && inTransaction(pool) {
		j.endTransaction(db, e)
	}
}

// endTransaction keeps the error for the statements that come after it, and ends a transaction that the database has, or
// may have, rolled back as a whole: on MySQL and SQLite the next statements would commit one by one. It stays away from
// gorm's own transaction, which gorm rolls back at once, and from PostgreSQL, where a savepoint may live.
func (j *judge) endTransaction(db *gorm.DB, e dbError) {
	if ownTransaction(db) {
		return
	}
	postgres := db.Name() == dialectPostgres
	gone := !e.server && (e.class == lost || e.class == unavailable)
	if over := e.endsTx || gone || postgres && e.server; !over {
		return
	}
	pool := db.Statement.ConnPool
	j.txs.of(pool).end(db.Error)
	if tx, ok := pool.(gorm.TxCommitter); ok && !postgres {
		_ = tx.Rollback() // whatever it says, database/sql lets nothing more through
	}
}

// beforeCommit keeps the error of a hook or of an association, which was judged as a statement of its own.
func (j *judge) beforeCommit(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if first(db) == nil {
		keepFirst(db)
	}
}

// finish puts the first error back, or judges that of COMMIT.
func (j *judge) finish(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if first := first(db); first != nil {
		db.Error = first
		if operationOf(db.Statement) != nil {
			return
		}
		// A session that is reused, or one whose statement gets the address of this one, must not find it.
		db.Statement.Settings.Delete(fmt.Sprintf("%p", db.Statement) + firstError)
		return
	}
	if ownTransaction(db) {
		db.Error = j.commitError(db, db.Error, true)
	}
}

// commitError judges the error of a COMMIT. A server that answers has not committed; with any other error nobody knows. own
// says that the transaction was gorm's own, which nothing but the end of its context ends early.
func (j *judge) commitError(db *gorm.DB, err error, own bool) error {
	e := classify(db.Name(), err)
	switch {
	case isContextError(e.err) && db.Name() != dialectPostgres:
		// database/sql looks at the context before it sends; only PostgreSQL's driver does so afterwards too.
		return j.failed(db, e, ErrUnavailable, "context")
	case e.class == lost, e.class == notOurs && !isOurs(err) && !errors.Is(err, gorm.ErrInvalidTransaction):
		e.err = err
		return j.failed(db, e, ErrUnknownOutcome, "commit")
	case e.class == deadTx && !own && !e.aborted && j.txs.known(db.Statement.ConnPool).ended() == nil:
		// Somebody else has ended it: a timeout, or the caller's own Commit or Rollback.
		return j.failed(db, e, ErrUnknownOutcome, "transaction_over")
	}
	return j.judged(db, e, err, true)
}

// beginError judges the error of a BEGIN: nothing was sent that could write.
func (j *judge) beginError(db *gorm.DB, err error) error {
	e := classify(db.Name(), err)
	if e.class == lost {
		return j.failed(db, e, ErrUnavailable, "begin")
	}
	return j.judged(db, e, err, true)
}

// conflictIn judges the error that a transaction's function returned: it is kept as it is, but for a conflict that came
// past the plugin, from a statement on the bare connection.
func (j *judge) conflictIn(db *gorm.DB, err error) error {
	if e := classify(db.Name(), err); e.class == conflicting {
		return j.failed(db, e, ErrConflict, e.reason)
	}
	return err
}

// replace puts the judgement in the place of the driver's error.
func (j *judge) replace(db *gorm.DB, e dbError, nothingWritten bool) {
	db.Error = j.judged(db, e, db.Error, nothingWritten)
}

func (j *judge) judged(db *gorm.DB, e dbError, err error, nothingWritten bool) error {
	switch e.class {
	case uniqueViolation:
		return j.duplicateError(db, e)
	case checkViolation:
		if failed := j.checkError(db, e); failed != nil {
			return failed
		}
	case outOfRange:
		if t := j.guarded(db, e); t != nil && len(t.stock) > 0 {
			return j.failed(db, e, ErrInsufficient, "out_of_range")
		}
	case conflicting:
		return j.failed(db, e, ErrConflict, e.reason)
	case deadTx:
		return j.deadTransaction(db, e)
	case unavailable:
		return j.failed(db, e, ErrUnavailable, e.reason)
	case lost:
		if nothingWritten {
			return j.failed(db, e, ErrUnavailable, "reply_lost")
		}
		return j.failed(db, e, ErrUnknownOutcome, "reply_lost")
	}
	return j.translated(db, e, err)
}

// failed makes the error for a judgement that has no numbers.
func (j *judge) failed(db *gorm.DB, e dbError, sentinel error, reason string) *Error {
	return &Error{sentinel: sentinel, reason: reason, table: statementTable(db), cause: j.cause(db, e)}
}

// duplicateError names the unique index that refused the row.
func (j *judge) duplicateError(db *gorm.DB, e dbError) *Error {
	s := db.Statement.Schema
	finder := indexFinder{table: statementTable(db), mappings: j.uniques}
	if t := j.guarded(db, e); t != nil {
		finder.table = t.name
		if t.schema != nil {
			s = t.schema
		}
		if t.request != nil && !t.request.last {
			finder.request = t.request.name
		}
	}
	finder.declared = withPrimary(j.uniquesOf(db, s), s)
	d := finder.find(e)
	failed := j.failed(db, e, ErrDuplicate, "")
	failed.index, failed.mapped, failed.table = d.index, d.mapped, finder.table
	if d.request {
		failed.sentinel, failed.column = ErrAlreadyApplied, finder.request
	}
	return failed
}

// uniquesOf returns the unique indexes that a model declares, but for its primary key.
func (j *judge) uniquesOf(db *gorm.DB, s *schema.Schema) []unique {
	if s == nil {
		return nil
	}
	if e := j.catalog.of(&gorm.Statement{DB: db, Schema: s, Table: s.Table}); e != nil && e.table != nil {
		return e.table.uniques
	}
	return j.indexes.of(s)
}

// deadTransaction answers with the error that ended the transaction, however often it is asked.
func (j *judge) deadTransaction(db *gorm.DB, e dbError) error {
	if first := j.txs.known(db.Statement.ConnPool).ended(); first != nil {
		return first
	}
	return j.failed(db, e, ErrUnavailable, "transaction_over")
}

// cause is what errors.Is finds behind the judgement: gorm's sentinel where that was asked for, the driver's error, and
// why the context ended, if it did.
func (j *judge) cause(db *gorm.DB, e dbError) error {
	cause := j.translated(db, e, e.err)
	if ctx := db.Statement.Context; ctx.Err() != nil {
		if why := context.Cause(ctx); !errors.Is(cause, why) {
			cause = errors.Join(cause, why)
		}
	}
	return cause
}

// translated joins what the dialector makes of the driver's error to err. The dialector sees that error itself, not what
// wraps it: PostgreSQL's would go through any other by reflection.
func (j *judge) translated(db *gorm.DB, e dbError, err error) error {
	if !j.translate.Load() || !e.server {
		return err
	}
	translator, ok := db.Dialector.(gorm.ErrorTranslator)
	if !ok {
		return err
	}
	gormErr := translator.Translate(e.err)
	if gormErr == nil || errors.Is(err, gormErr) {
		return err
	}
	return &translatedError{gormErr, err}
}

// translatedError is gorm's sentinel and the driver's error in one, with gorm's text.
type translatedError struct{ gorm, driver error }

func (e *translatedError) Error() string   { return e.gorm.Error() }
func (e *translatedError) Unwrap() []error { return []error{e.gorm, e.driver} }

// guarded returns the guarded table that a statement, or the database's answer to it, is about, nil for any other. Raw SQL
// names no table to gorm: the answer does, or the text.
func (j *judge) guarded(db *gorm.DB, e dbError) *table {
	if known := j.catalog.of(db.Statement); known != nil {
		return known.table
	}
	if e.table != "" {
		return j.catalog.table(e.table)
	}
	if sql := db.Statement.SQL.String(); db.Statement.Table == "" {
		for _, t := range j.catalog.known.Load().tables {
			if containsWord(sql, t.name) {
				return t
			}
		}
	}
	return nil
}

func statementTable(db *gorm.DB) string { return bareName(db.Statement.Table) }

func isContextError(err error) bool {
	return err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // bare: a driver wraps its own
}

func isOurs(err error) bool {
	var ours *Error
	return errors.As(err, &ours)
}

// isWriteSQL reports whether raw SQL may write: anything that does not plainly read.
func isWriteSQL(sql string) bool {
	word, _, _ := strings.Cut(strings.TrimLeft(sql, " \t\r\n("), " ")
	switch strings.ToUpper(word) {
	case "SELECT", "SHOW", "EXPLAIN", "VALUES", "TABLE", "PRAGMA":
		return false
	}
	return true
}
