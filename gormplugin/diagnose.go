package gormplugin

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// maxKeys is how many keys an error about a part of the rows names.
const maxKeys = 100

// verify decides, inside the transaction, whether an update or delete did what it was to do.
func (o *operation) verify(db *gorm.DB) {
	if len(o.checks) == 0 && !o.save && !o.hasExpect {
		return
	}
	need := int64(1)
	if o.expects {
		need = o.rows
	}
	if !o.hasExpect && o.expects && db.RowsAffected < need {
		need = o.distinctRows()
	}
	if db.RowsAffected >= need {
		o.closeRows(db)
		return
	}
	refusal, hit := o.diagnose(db, need)
	if refusal != nil {
		o.insist(refusal)
		return
	}
	db.RowsAffected = hit
	if r := db.Statement.Result; r != nil {
		r.RowsAffected = hit
	}
}

// distinctRows counts the rows that a slice stands for: it may hold one twice.
func (o *operation) distinctRows() int64 {
	if o.stmt.Schema == nil {
		return o.rows
	}
	seen := map[string]bool{}
	elements(o.stmt.ReflectValue, func(i int, elem reflect.Value) {
		var key strings.Builder
		for _, f := range o.stmt.Schema.PrimaryFields {
			v, zero := f.ValueOf(o.stmt.Context, elem)
			if zero {
				v = i
			}
			fmt.Fprintf(&key, "%v\x00", v)
		}
		seen[key.String()] = true
	})
	return int64(len(seen))
}

// finding is what one row says of one check.
type finding struct {
	c             *check
	stored, limit any
	fits          bool
}

// diagnose finds out why a statement hit fewer rows than it should have, by one SELECT with the statement's own WHERE on
// the same connection. It returns a refusal, or how many rows were in fact hit.
func (o *operation) diagnose(db *gorm.DB, need int64) (*Error, int64) {
	many := o.expects && o.rows > 1
	if o.opened && o.countsChanges() {
		rows, err := o.look(db, many, limitOf(many))
		if fits, _ := o.judgeRows(db, rows); err == nil && fits >= need {
			o.closeRows(db)
			return nil, fits
		}
	}
	if err := o.undoRows(db); err != nil {
		return o.unknown(err), 0
	}
	rows, err := o.look(db, many, limitOf(many))
	if err != nil {
		return o.unknown(err), 0
	}
	fits, first := o.judgeRows(db, rows)
	switch {
	case len(rows) == 0:
		return o.missing(), 0
	case fits >= need && o.countsChanges() && !o.opened:
		return nil, fits
	case many && db.RowsAffected > 0, many && first == nil && fits < need:
		return o.partial(rows, need), 0
	case first != nil:
		o.remember(first)
		return first, 0
	}
	return o.raced(), 0
}

// judgeRows counts the rows that fit, and returns the refusal of the first that does not.
func (o *operation) judgeRows(db *gorm.DB, rows []foundRow) (fits int64, first *Error) {
	for _, row := range rows {
		refusal := o.judgeRow(db, row.findings)
		if refusal == nil {
			fits++
		} else if first == nil {
			first = refusal
		}
	}
	return fits, first
}

// countsChanges reports whether the database may have hit a row and not counted it, since nothing in it changed: MySQL does
// so, unless the connection asks for found rows. Only a fence, which never falls, fits now exactly if it fitted before.
func (o *operation) countsChanges() bool {
	for i := range o.checks {
		if o.checks[i].kind != checkFence {
			return false
		}
	}
	return o.dialect == dialectMySQL
}

// foundRow is one row that the statement's own WHERE matches.
type foundRow struct {
	keys     []any
	findings []finding
}

// limitOf returns how many rows say why a statement hit none: one is as good as the next, unless each is asked for.
func limitOf(many bool) int {
	if many {
		return 0
	}
	return 1
}

// look reads the guarded columns of the rows that the statement was about, with their keys if asked. limit 0 reads all.
func (o *operation) look(db *gorm.DB, withKeys bool, limit int) ([]foundRow, error) {
	stmt := db.Statement
	own := &gorm.DB{Config: db.Config}
	sub := &gorm.Statement{
		DB: own, Table: stmt.Table, TableExpr: stmt.TableExpr, Schema: stmt.Schema,
		Model: stmt.Model, Context: stmt.Context, ConnPool: stmt.ConnPool, Clauses: map[string]clause.Clause{"WHERE": o.where},
	}
	own.Statement = sub
	keys := 0
	sub.SQL.Grow(180)
	write(sub, "SELECT 1")
	if withKeys && stmt.Schema != nil {
		for _, f := range stmt.Schema.PrimaryFields {
			write(sub, ",")
			sub.WriteQuoted(clause.Column{Table: clause.CurrentTable, Name: f.DBName})
			keys++
		}
	}
	for i := range o.checks {
		o.checks[i].writeFinding(sub)
	}
	write(sub, " FROM ")
	sub.WriteQuoted(clause.Table{Name: clause.CurrentTable})
	if from, ok := stmt.Clauses["FROM"].Expression.(clause.From); ok && o.qualify && len(from.Tables) > 0 {
		write(sub, ", ")
		from.Build(sub)
	}
	write(sub, " ")
	if o.hadWhere {
		sub.Build("WHERE")
	}
	if limit > 0 {
		write(sub, " LIMIT ")
		write(sub, strconv.Itoa(limit))
	}
	if o.dialect == dialectMySQL && inTransaction(stmt.ConnPool) {
		write(sub, " LOCK IN SHARE MODE") // a plain read would see the transaction's old snapshot
	}
	if sub.Error != nil {
		return nil, sub.Error
	}
	begin := time.Now()
	found, err := o.readFindings(sub, keys)
	db.Logger.Trace(stmt.Context, begin, func() (string, int64) {
		sql, vars := sub.SQL.String(), sub.Vars
		if f, ok := db.Logger.(gorm.ParamsFilter); ok { // the log is to have no values
			sql, vars = f.ParamsFilter(stmt.Context, sql, vars...)
		}
		return db.Explain(sql, vars...), int64(len(found))
	}, err)
	return found, err
}

// writeFinding adds to a SELECT what there is to say of one check: what is stored, the limit where that is a column, and
// whether it fits, as the database judges it.
func (c *check) writeFinding(b *gorm.Statement) {
	write(b, ",")
	switch c.kind {
	case checkState:
		b.WriteQuoted(c.left)
	case checkAttempt:
		c.o.writeColumn(b, c.o.table.attempt)
	default:
		c.o.writeColumn(b, c.column)
	}
	if l := c.limit(); l.isColumn() {
		write(b, ",")
		c.o.writeLimit(b, l)
	}
	write(b, ",CASE WHEN ")
	c.Build(b)
	write(b, " THEN 1 ELSE 0 END")
}

// limit returns the bound that a check of a stock column is about.
func (c *check) limit() limit {
	switch c.kind {
	case checkMin:
		return c.column.min
	case checkMax:
		return c.column.max
	}
	return limit{}
}

func (o *operation) readFindings(sub *gorm.Statement, keys int) (found []foundRow, err error) {
	rows, err := sub.ConnPool.QueryContext(sub.Context, sub.SQL.String(), sub.Vars...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := rows.Close(); err == nil {
			err = closing
		}
	}()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := foundRow{keys: values[1 : 1+keys]}
		values = values[1+keys:]
		for i := range o.checks {
			c := &o.checks[i]
			f := finding{c: c, stored: values[0]}
			values = values[1:]
			if c.limit().isColumn() {
				f.limit, values = values[0], values[1:]
			}
			f.fits, values = textOf(values[0]) == "1", values[1:]
			row.findings = append(row.findings, f)
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

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

func (r foundRow) fits() bool {
	for _, f := range r.findings {
		if !f.fits {
			return false
		}
	}
	return true
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

// textOf writes a value as a database gave it.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	case string:
		return v
	case bool:
		if v {
			return "1"
		}
		return "0"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	if n, ok := numberOf(v); ok {
		return n.String()
	}
	return fmt.Sprint(v)
}
