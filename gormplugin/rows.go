package gormplugin

import (
	"gorm.io/gorm"
)

// rowsSavepoint stands in front of a statement that must hit several rows.
const rowsSavepoint = "holdfast_rows"

// openRows prepares a statement that must hit several rows: it may hit some of them only, and these have to be taken back.
// That needs a transaction, and in it a savepoint, or a caller who goes on after the refusal would commit a part.
func (o *operation) openRows(stmt *gorm.Statement) {
	if !o.expects || o.rows < 2 || stmt.DryRun {
		return
	}
	if !inTransaction(stmt.ConnPool) {
		o.insist(fail(ErrInvalid, "transaction", "a write that may do only a part of its rows needs a transaction"))
		return
	}
	if err := execPlain(stmt, "SAVEPOINT "+rowsSavepoint); err != nil {
		o.fail(err)
		return
	}
	o.opened = true
}

// undoRows takes back what the statement did to a part of its rows. What it finds afterwards is what the statement found.
func (o *operation) undoRows(db *gorm.DB) error {
	if !o.opened {
		return nil
	}
	return execPlain(db.Statement, "ROLLBACK TO SAVEPOINT "+rowsSavepoint)
}

// closeRows drops the savepoint. gorm's own transaction ends at once, and drops it too.
func (o *operation) closeRows(db *gorm.DB) {
	if o.opened && inCallersTransaction(db) {
		_ = db.AddError(execPlain(db.Statement, "RELEASE SAVEPOINT "+rowsSavepoint))
	}
}

// execPlain runs a statement that cannot be prepared in the statement's transaction.
func execPlain(stmt *gorm.Statement, sql string) error {
	pool := stmt.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtTX); ok {
		pool = prepared.Tx
	}
	_, err := pool.ExecContext(stmt.Context, sql)
	return err
}
