package gormplugin

import (
	"reflect"
	"strconv"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// beforeCreate prepares an insert.
func (p *Plugin) beforeCreate(db *gorm.DB) {
	if db.Error != nil {
		p.judge.failedBefore(db)
		return
	}
	o := p.begin(db, verbInsert)
	if o == nil {
		return
	}
	if v := db.Statement.ReflectValue; db.Statement.Schema != nil {
		o.readVersions(v)
		o.memory.keep(v, db.Statement.Schema, o.table.pointers)
	}
}

// insertion is the VALUES of an insert while the guard works on it.
type insertion struct {
	o *operation
	clause.Values
}

// buildValues writes the columns that are the plugin's into the rows of an insert, and holds start values against their
// bounds.
func (o *operation) buildValues(c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	values, ok := c.Expression.(clause.Values)
	if !ok {
		o.refuse(fail(ErrUnguardedWrite, "values", "a VALUES clause of another type than clause.Values cannot be judged"))
		return c, o.refusal == nil
	}
	if i, ok := stmt.Clauses["INSERT"].Expression.(clause.Insert); ok && replaces(i.Modifier) && o.refuse(fail(ErrUnguardedWrite, "replace", "INSERT OR REPLACE deletes the rows that are in the way")) {
		return c, false
	}
	o.built, o.qualify = true, true
	in := &insertion{o, values}
	if refusal := in.checkStart(); refusal != nil {
		o.insist(refusal)
		return c, false
	}
	if o.planConflict(stmt, in); o.refusal != nil {
		return c, false
	}
	if o.p.shadow {
		return c, true
	}
	if refusal := in.setRequest(stmt); refusal != nil {
		o.insist(refusal)
		return c, false
	}
	in.setFence()
	in.setVersion()
	c.Expression = in.Values
	return c, true
}

// replaces reports whether a modifier lets a statement delete rows that are in its way.
func replaces(modifier string) bool { return containsWord(modifier, "replace") }

// index returns the place of a column, -1 where the insert does not have it.
func (in *insertion) index(c *column) int {
	for i, col := range in.Columns {
		if in.o.table.byColumn(col.Name) == c {
			return i
		}
	}
	return -1
}

// need is index for a column that is added, with nothing in it, where the insert does not have it.
func (in *insertion) need(c *column) int {
	if i := in.index(c); i >= 0 {
		return i
	}
	in.Columns = append(in.Columns, clause.Column{Name: c.name})
	for row := range in.Values.Values {
		in.Values.Values[row] = append(in.Values.Values[row], nil)
	}
	return len(in.Columns) - 1
}

func (in *insertion) checkStart() *Error {
	for i, col := range in.Columns {
		c := in.o.table.byColumn(col.Name)
		for _, row := range in.Values.Values {
			if _, ok := row[i].(Delta); ok {
				return fail(ErrUnguardedWrite, "insert", "Sub and Add change a row that is there; an insert sets a start value").at(in.o.table, bareName(col.Name))
			}
			if c == nil || c.kind != kindStock {
				continue
			}
			if refusal := c.checkLiteral(in.o.table, row[i]); refusal != nil && in.o.refuse(refusal) {
				return refusal
			}
		}
	}
	return nil
}

// setRequest gives the row of a request its id: its own, else the one in the context.
func (in *insertion) setRequest(stmt *gorm.Statement) *Error {
	r := in.o.table.request
	if r == nil {
		return nil
	}
	request, _ := reqctx.RequestOf(stmt.Context)
	i := in.index(r)
	rows := in.Values.Values
	for row := range rows {
		switch {
		case i >= 0 && !isEmpty(rows[row][i]), r.last && request.ID == "":
		case len(rows) > 1 && !r.last:
			return fail(ErrInvalid, "request", "several rows bring a request id each").at(in.o.table, r.name)
		case request.ID == "":
			return fail(ErrInvalid, "request", "no request id, neither in the row nor in the context").at(in.o.table, r.name)
		default:
			i = in.need(r)
			rows[row][i] = request.ID
		}
	}
	a := in.o.table.attempt
	if a == nil || i < 0 || request.ID == "" {
		return nil
	}
	at := in.need(a)
	for _, row := range in.Values.Values {
		if !isEmpty(row[at]) {
			continue
		}
		row[at] = 0
		if id, ok := textIn(row[i]); ok && id == request.ID {
			row[at] = request.Attempt
		}
	}
	return nil
}

// setFence writes the number of the lease. The model's own value is never sent: it may be an old one.
func (in *insertion) setFence() {
	f := in.o.table.fence
	switch {
	case f == nil:
	case in.o.hasFence:
		i := in.need(f)
		for _, row := range in.Values.Values {
			row[i] = in.o.fence
		}
	default:
		if i := in.index(f); i >= 0 {
			for _, row := range in.Values.Values {
				if !isEmpty(row[i]) {
					row[i] = 0
				}
			}
		}
	}
}

// setVersion starts at 1. Where rows may be there already, each brings the version that it will have when it is updated.
func (in *insertion) setVersion() {
	v := in.o.table.version
	if v == nil {
		return
	}
	i := in.need(v)
	for row := range in.Values.Values {
		in.Values.Values[row][i] = 1 + in.o.loadedVersion(row)
	}
}

// loadedVersion returns the version that a row of a checked upsert was loaded with, 0 for any other.
func (o *operation) loadedVersion(row int) int64 {
	switch {
	case o.upsert == nil || !o.upsert.checksVersion:
		return 0
	case o.hasVersion:
		return o.atVersion
	case o.rowVersions != nil && row < len(o.rowVersions.rows):
		return o.rowVersions.rows[row].version
	}
	return o.loaded
}

// verifyCreate decides about an insert.
func (p *Plugin) verifyCreate(db *gorm.DB) {
	p.judge.statement(db)
	verifyOnce(db)
	o := operationOf(db.Statement)
	if o == nil || o.passive || db.Error != nil || db.DryRun || !o.built {
		return
	}
	if o.verifyConflict(db); db.Error == nil && !p.shadow {
		if err := o.fillModel(db); err != nil {
			o.insist(&Error{sentinel: ErrInvalid, reason: "model", cause: err})
		}
	}
}

// fillModel writes into the model what the insert has sent for it, so that hooks and the caller see the row as it is.
func (o *operation) fillModel(db *gorm.DB) error {
	stmt := db.Statement
	v := stmt.ReflectValue
	if stmt.Schema == nil || db.RowsAffected < 1 || v.Kind() != reflect.Struct && o.upsert != nil && o.upsert.nothing {
		return nil
	}
	request, _ := reqctx.RequestOf(stmt.Context)
	var err error
	set := func(elem reflect.Value, c *column, value any) {
		if f := o.fieldOf(c); f != nil && err == nil && elem.CanSet() {
			err = f.Set(stmt.Context, elem, value)
		}
	}
	elements(v, func(i int, elem reflect.Value) {
		t := o.table
		if o.hasFence {
			set(elem, t.fence, o.fence)
		}
		if !o.upsert.inserts(i) { // it may have been there: neither its version nor its request is known
			if o.upsert.checksVersion {
				set(elem, t.version, 1+o.loadedVersion(i))
			}
			return
		}
		set(elem, t.version, int64(1))
		if f := o.fieldOf(t.request); f != nil && request.ID != "" {
			if isZero(f, stmt, elem) {
				set(elem, t.request, request.ID)
			}
			own, _ := f.ValueOf(stmt.Context, elem)
			if a := o.fieldOf(t.attempt); a != nil && isZero(a, stmt, elem) {
				if id, ok := textIn(own); ok && id == request.ID {
					set(elem, t.attempt, int64(request.Attempt))
				}
			}
		}
	})
	return err
}

func isZero(f *schema.Field, stmt *gorm.Statement, v reflect.Value) bool {
	_, zero := f.ValueOf(stmt.Context, v)
	return zero
}

// isEmpty reports whether a value to be inserted is none: nil, or the zero of its type.
func isEmpty(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.IsZero() || rv.Kind() == reflect.Pointer && rv.Elem().IsZero()
}

// textIn returns the text of a string, a pointer to one, or another type of that kind.
func textIn(v any) (string, bool) {
	if s, ok := v.(string); ok {
		return s, true
	}
	if v == nil {
		return "", false
	}
	if rv := reflect.Indirect(reflect.ValueOf(v)); rv.Kind() == reflect.String {
		return rv.String(), true
	}
	if n, ok := numberOf(v); ok {
		return strconv.FormatInt(n.i, 10), true
	}
	return "", false
}
