package gormplugin

import (
	"log/slog"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// judgeShadow remembers that an assignment would have been refused. What would have been guarded instead is looked at when
// the statement has run.
func (o *operation) judgeShadow(c *column, found bool, refusal *Error) {
	o.marked = true
	switch {
	case refusal != nil:
		o.refuse(refusal)
	case !found && !o.allowsAbsolute(o.table, c):
		reason := "absolute"
		if o.wholeRow {
			reason = "whole_row"
		}
		o.refuse(fail(ErrUnguardedWrite, reason, "").at(o.table, c.name))
	}
}

// lookShadow asks, after a marked column was written without its guard, whether a bound or the fence was broken.
func (o *operation) lookShadow(db *gorm.DB) {
	stmt := db.Statement
	if !o.marked || db.RowsAffected < 1 || stmt.Schema == nil || stmt.ReflectValue.Kind() != reflect.Struct {
		return
	}
	var key []clause.Expression
	for _, f := range stmt.Schema.PrimaryFields {
		v, zero := f.ValueOf(stmt.Context, stmt.ReflectValue)
		if zero {
			return
		}
		key = append(key, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: v})
	}
	if len(key) == 0 {
		return
	}
	look := &operation{p: o.p, stmt: stmt, table: o.table, verb: o.verb, dialect: o.dialect, hadWhere: true}
	look.where = clause.Clause{Name: "WHERE", Expression: clause.Where{Exprs: key}}
	for _, c := range o.table.stock {
		if c.min.isSet {
			look.checks = append(look.checks, check{kind: checkMin, o: look, column: c})
		}
		if c.max.isSet {
			look.checks = append(look.checks, check{kind: checkMax, o: look, column: c})
		}
	}
	if o.table.fence != nil && o.fence > 0 {
		look.checks = append(look.checks, check{kind: checkFence, o: look, column: o.table.fence, n: whole(o.fence)})
	}
	rows, err := look.look(db, false, limitOf(false))
	if err != nil { // the statement stands: shadow mode only looks
		o.p.complain(stmt.Context, "shadow_look", "gormplugin: shadow mode could not read a row", slog.String("table", o.table.name))
		return
	}
	if _, broken := look.judgeRows(db, rows); broken != nil {
		o.shadowed = broken
	}
}
