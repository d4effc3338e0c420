package gormplugin

import (
	"reflect"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// maxKeys is how many keys an error about a part of the rows names.
const maxKeys = 100

// judgeRow returns the refusal of the check that answers first, nil for a row that fits.
func (o *operation) judgeRow(db *gorm.DB, findings []finding) *Error {
	for kind := checkAttempt; kind <= checkMax; kind++ {
		for _, f := range findings {
			if f.c.kind == kind && !f.fits {
				return f.refusal(db)
			}
		}
	}
	return nil
}

// refusal says what a check that does not fit means.
func (f finding) refusal(db *gorm.DB) *Error {
	c := f.c
	e := c.refusal()
	switch c.kind {
	case checkAttempt:
		e.reason, e.ours, e.stored = "attempt", c.n.String(), textOf(f.stored)
	case checkFence:
		e.reason, e.ours, e.stored = "fence", c.n.String(), textOf(f.stored)
	case checkVersion:
		e.reason, e.stored = "version", textOf(f.stored)
		if c.o.rowVersions == nil {
			e.ours = c.n.String()
			if stored, ok := numberOf(f.stored); ok && stored == c.n.add(whole(1)) && inCallersTransaction(db) {
				e.hint = "written earlier in this transaction: load it again"
			}
		}
	case checkState:
		e.reason, e.ours, e.stored = "state", textOf(c.value), textOf(f.stored)
	case checkMin, checkMax:
		l := c.limit()
		e.reason = "below_min"
		if c.kind == checkMax {
			e.reason = "above_max"
		}
		e.available, e.limit = textOf(f.stored), textOf(f.limit)
		if l.isNumber() {
			e.limit = l.number.String()
		}
		if f.stored == nil || l.isColumn() && f.limit == nil {
			e.reason = "null"
		}
	}
	return e
}

// refusal is the error of a check without what the row says.
func (c *check) refusal() *Error {
	e := &Error{table: c.o.table.name}
	if c.column != nil {
		e.column = c.column.name
	}
	switch c.kind {
	case checkAttempt, checkFence:
		e.sentinel = ErrStaleFence
	case checkVersion:
		e.sentinel = ErrVersionConflict
	case checkState:
		e.sentinel = ErrVersionConflict
		if left, ok := c.left.(clause.Column); ok {
			e.column = left.Name
		}
	case checkMin, checkMax:
		e.sentinel, e.requested = ErrInsufficient, c.n.String()
	}
	return e
}

// missing is for a statement whose own WHERE matches no row.
func (o *operation) missing() *Error {
	if _, optimistic := o.stmt.Clauses["version_enabled"]; optimistic {
		// gorm's optimisticlock has put the version into that WHERE.
		return &Error{sentinel: ErrVersionConflict, reason: "version", table: o.table.name}
	}
	e := &Error{sentinel: ErrNotFound, table: o.table.name}
	if o.save {
		e.hint = "use Create for a new row"
	}
	return e
}

// unknown is for a row that could not be read.
func (o *operation) unknown(cause error) *Error {
	e := &Error{sentinel: ErrNotFound, table: o.table.name}
	if len(o.checks) > 0 {
		e = o.checks[0].refusal()
	}
	e.reason, e.cause = "unknown", cause
	return e
}

// raced is for a row that fits now and did not when the statement ran.
func (o *operation) raced() *Error {
	if len(o.checks) == 0 {
		return &Error{sentinel: ErrVersionConflict, table: o.table.name, reason: "raced", raced: true}
	}
	first := &o.checks[0]
	for i := range o.checks {
		if k := o.checks[i].kind; k == checkVersion || k >= checkMin {
			first = &o.checks[i]
			break
		}
	}
	e := first.refusal()
	e.reason, e.raced = "raced", true
	return e
}

// partial is for a statement that hit some of its rows. It names the keys of those that are not there or do not fit.
func (o *operation) partial(rows []foundRow, need int64) *Error {
	e := &Error{
		sentinel: ErrInsufficient, reason: "partial", table: o.table.name,
		available: strconv.FormatInt(o.stmt.RowsAffected, 10), requested: strconv.FormatInt(need, 10),
	}
	there := map[string]bool{}
	for _, row := range rows {
		there[keyText(row.keys)] = true
		if len(e.keys) < maxKeys && len(row.keys) > 0 && !row.fits() {
			e.keys = append(e.keys, keyValue(row.keys))
		}
	}
	if o.stmt.Schema == nil || o.stmt.ReflectValue.Kind() == reflect.Struct {
		return e
	}
	elements(o.stmt.ReflectValue, func(_ int, elem reflect.Value) {
		var keys []any
		for _, f := range o.stmt.Schema.PrimaryFields {
			v, _ := f.ValueOf(o.stmt.Context, elem)
			keys = append(keys, v)
		}
		if len(e.keys) < maxKeys && !there[keyText(keys)] {
			e.keys = append(e.keys, keyValue(keys))
		}
	})
	return e
}

func keyText(keys []any) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(textOf(k))
		b.WriteByte(0)
	}
	return b.String()
}

func keyValue(keys []any) any {
	for i, k := range keys {
		if b, ok := k.([]byte); ok {
			keys[i] = string(b)
		}
	}
	if len(keys) == 1 {
		return keys[0]
	}
	return keys
}

// Keys returns the primary keys of the rows that a write of several rows left out, with the reason "partial": rows that
// are not there and rows that do not hold enough, at most 100. A key of several columns is a []any. nil for other errors.
func (e *Error) Keys() []any { return e.keys }
