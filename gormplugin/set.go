package gormplugin

import (
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// typeInvalid is the type of what a client may be to blame for.
const typeInvalid = fault.Invalid

// buildSet guards the SET of an update or a soft delete. It runs while gorm writes the statement, behind everything that
// may still change the assignments and the WHERE, so whichever call they came from they are final here.
func (o *operation) buildSet(c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	set, ok := c.Expression.(clause.Set)
	if !ok {
		o.refuse(&Error{sentinel: ErrUnguardedWrite, reason: "set", hint: "a SET clause of another type than clause.Set cannot be judged"})
		return c, o.refusal == nil
	}
	if u, ok := stmt.Clauses["UPDATE"].Expression.(clause.Update); ok && replaces(u.Modifier) && o.refuse(fail(ErrUnguardedWrite, "replace", "UPDATE OR REPLACE deletes the rows that are in the way")) {
		return c, false
	}
	_, from := stmt.Clauses["FROM"]
	o.qualify = from && o.verb == verbUpdate
	o.changes = makeRoom(o.changes, len(o.table.stock))
	o.checks = makeRoom(o.checks, len(o.table.stock)+len(o.from)+3)

	if o.leftOut(set) {
		return c, false
	}
	out := make(clause.Set, 0, len(set)+o.table.ownColumns())
	commutes := true
	var others []string
	for _, a := range set {
		col := o.table.byColumn(a.Column.Name)
		if col == nil {
			if _, ok := a.Value.(Delta); ok {
				o.insist(fail(ErrUnguardedWrite, "unmarked", "Sub and Add work on columns marked guard:\"stock\"").at(o.table, bareName(a.Column.Name)))
				return c, false
			}
			if o.isSQL(a.Column.Name) {
				return c, false
			}
			if o.table.bounded {
				others = append(others, a.Column.Name)
			}
			commutes = commutes && o.table.isAuto(a.Column.Name)
			out = append(out, a)
			continue
		}
		kept, plain := o.assign(col, a)
		if o.refusal != nil {
			return c, false
		}
		commutes = commutes && !plain
		if kept.Value != nil || plain {
			out = append(out, kept)
		}
	}
	if b := o.steppedOver(others); b != nil && o.refuse(fail(ErrUnguardedWrite, "bound", "change the bound in a statement of its own").at(o.table, b.name)) {
		return c, false
	}
	if out = o.own(out, commutes); o.refusal != nil {
		return c, false
	}
	if o.joinWhere(stmt); o.refusal != nil || !o.askFirst(o.db) {
		return c, false
	}
	c.Expression = out
	return c, true
}

// leftOut refuses a statement that was given a Sub or Add which is not in its SET: a Select or an Omit that the handle carries
// takes it out, and then nothing would be taken and no error say so.
func (o *operation) leftOut(set clause.Set) bool {
	given, ok := o.stmt.Dest.(map[string]any)
	if p, isPointer := o.stmt.Dest.(*map[string]any); isPointer && p != nil {
		given, ok = *p, true
	}
	if !ok {
		return false
	}
	n := 0
	for _, v := range given {
		if _, ok := v.(Delta); ok {
			n++
		}
	}
	for _, a := range set {
		if _, ok := a.Value.(Delta); ok {
			n--
		}
	}
	if n > 0 {
		o.insist(fail(ErrInvalid, "left_out", "Select or Omit leaves out the column that Sub or Add was for"))
	}
	return n > 0
}

// assign judges an assignment to a guarded column. It returns what is sent instead, nothing for a column that is left out,
// and whether that is a plain write, which does not commute with others.
func (o *operation) assign(c *column, a clause.Assignment) (sent clause.Assignment, plain bool) {
	if c.kind != kindStock {
		if !o.wholeRow {
			o.refuse(fail(ErrUnguardedWrite, c.kind.String(), "the plugin writes this column itself").at(o.table, c.name))
		}
		if o.p.shadow {
			return a, true
		}
		return clause.Assignment{}, false
	}
	n, add, found, refusal := o.amountOf(c, a.Value)
	if _, isDelta := a.Value.(Delta); o.p.shadow && !isDelta {
		o.judgeShadow(c, found, refusal)
		return a, true
	}
	switch {
	case refusal != nil:
		o.insist(refusal)
		return a, false
	case o.changed(c):
		o.insist(fail(ErrUnguardedWrite, "twice", "one statement changes a column once").at(o.table, c.name))
		return a, false
	case found:
		o.changes = append(o.changes, change{o: o, column: c, n: n, add: add, left: o.takeLeft})
		if !add {
			o.checks = append(o.checks, check{kind: checkMin, o: o, column: c, n: n})
		} else if c.max.isSet {
			o.checks = append(o.checks, check{kind: checkMax, o: o, column: c, n: n})
		}
		a.Value = &o.changes[len(o.changes)-1]
		return a, false
	case !o.allowsAbsolute(o.table, c):
		reason := "absolute"
		if o.wholeRow {
			reason = "whole_row"
		}
		o.refuse(fail(ErrUnguardedWrite, reason, "write Omit("+strconv.Quote(o.fieldName(c))+"), Sub/Add, or AllowAbsolute("+strconv.Quote(c.name)+")").at(o.table, c.name))
		return a, false
	}
	if refusal := c.checkLiteral(o.table, a.Value); refusal != nil {
		o.insist(refusal)
		return a, false
	}
	o.changes = append(o.changes, change{o: o, column: c}) // only so that a second one is seen
	return a, true
}

// isSQL refuses the name of a column that is more than a name: a raw one may hold assignments of its own.
func (o *operation) isSQL(name string) bool {
	return strings.ContainsAny(name, "=,;()") && o.refuse(fail(ErrUnguardedWrite, "column", "the name of a column is SQL, which cannot be judged"))
}

// changed reports whether the statement assigns the stock column already.
func (o *operation) changed(c *column) bool {
	for i := range o.changes {
		if o.changes[i].column == c {
			return true
		}
	}
	return false
}

// steppedOver returns a column that the statement changes by an amount, while it assigns the bound that the amount was
// checked against.
func (o *operation) steppedOver(assigned []string) *column {
	for i := range o.changes {
		c := o.changes[i].column
		if o.changes[i].n != (number{}) && slices.ContainsFunc(assigned, c.isBoundedBy) {
			return c
		}
	}
	return nil
}

func (o *operation) fieldName(c *column) string {
	if f := o.fieldOf(c); f != nil {
		return f.Name
	}
	return c.name
}

// own adds what the plugin writes and checks by itself: fence, version, request id, and the states of From.
func (o *operation) own(out clause.Set, commutes bool) clause.Set {
	for _, f := range o.from {
		o.addState(f)
	}
	if o.p.shadow {
		o.hasFence = false
		if !o.hasVersion {
			return out
		}
	} else if o.ownFence(commutes); o.hasFence {
		out = append(out, clause.Assignment{Column: clause.Column{Name: o.table.fence.name}, Value: o.fence})
	}
	if v := o.table.version; v != nil {
		o.checkVersion(commutes)
		o.raised = true
		out = append(out, clause.Assignment{Column: clause.Column{Name: v.name}, Value: &next{o, v}})
	}
	if o.p.shadow {
		return out
	}
	return o.ownRequest(out)
}

// ownColumns is how many assignments own adds at most.
func (t *table) ownColumns() (n int) {
	for _, c := range [...]*column{t.fence, t.version, t.request, t.attempt} {
		if c != nil {
			n++
		}
	}
	return n
}

func (o *operation) addState(f state) {
	name := bareName(f.column)
	var c *column
	if o.stmt.Schema != nil {
		if field := o.stmt.Schema.LookUpField(name); field != nil && field.DBName != "" {
			name = field.DBName
		}
	}
	if c = o.table.byColumn(name); c != nil {
		name = c.name
	}
	left := clause.Column{Name: name}
	if o.qualify {
		left.Table = clause.CurrentTable
	}
	o.checks = append(o.checks, check{kind: checkState, o: o, column: c, left: left, value: f.old})
}

// ownFence adds the check of the fence, or judges its absence.
func (o *operation) ownFence(commutes bool) {
	f := o.table.fence
	switch {
	case f == nil:
	case o.hasFence:
		o.checks = append(o.checks, check{kind: checkFence, o: o, column: f, n: whole(o.fence)})
	case commutes:
	case f.strict:
		o.refuse(fail(ErrUnguardedWrite, "no_fence", "the context has no lease on "+strconv.Quote(f.lock)).at(o.table, f.name))
	default:
		o.noFence = true
	}
}

// checkVersion adds the check of the version, unless the statement commutes with whatever was written since.
func (o *operation) checkVersion(commutes bool) {
	v := o.table.version
	switch {
	case o.anyVersion:
		return
	case o.hasVersion:
		o.version = o.atVersion
	case commutes:
		return
	case o.rowVersions != nil:
		if o.verb == verbDelete && !o.rowVersions.any {
			return
		}
		if !o.rowVersions.complete && o.verb != verbDelete {
			o.refuse(fail(ErrUnguardedWrite, "no_version", "load the rows first, or say AnyVersion()").at(o.table, v.name))
			return
		}
	case o.loaded > 0:
		o.version = o.loaded
	case o.verb == verbDelete:
		return
	default:
		o.refuse(fail(ErrUnguardedWrite, "no_version", "load the row first, or say AtVersion(v) or AnyVersion()").at(o.table, v.name))
		return
	}
	if o.version != 0 {
		o.rowVersions = nil
	}
	o.checks = append(o.checks, check{kind: checkVersion, o: o, column: v, n: whole(o.version)})
}

// ownRequest lets a shared row remember its last request. The row that is a request's effect keeps the id it was born with.
func (o *operation) ownRequest(out clause.Set) clause.Set {
	r := o.table.request
	if r == nil || !r.last {
		return out
	}
	request, ok := reqctx.RequestOf(o.stmt.Context)
	if !ok || request.ID == "" {
		return out
	}
	attempt := int64(request.Attempt)
	o.checks = append(o.checks, check{kind: checkAttempt, o: o, column: r, n: whole(attempt), value: request.ID})
	return append(out,
		clause.Assignment{Column: clause.Column{Name: r.name}, Value: request.ID},
		clause.Assignment{Column: clause.Column{Name: o.table.attempt.name}, Value: attempt},
	)
}

// joinWhere puts the checks into the statement's WHERE. One without a WHERE is gorm's to refuse.
func (o *operation) joinWhere(stmt *gorm.Statement) {
	o.where, o.hadWhere = stmt.Clauses["WHERE"]
	o.built = true
	if len(o.checks) == 0 {
		return
	}
	if o.openRows(stmt); o.refusal != nil {
		return
	}
	if joined, ok := o.joined(stmt, o.where); ok {
		stmt.Clauses["WHERE"] = joined
		o.rewrote = true
	}
}

// checkLiteral holds a literal against the numeric bounds of its column. What is no literal is the database's to check.
func (c *column) checkLiteral(t *table, value any) *Error {
	n, ok := numberOf(value)
	switch {
	case !ok:
	case c.min.isNumber() && n.less(c.min.number):
		return &Error{sentinel: ErrInsufficient, reason: "below_min", table: t.name, column: c.name, requested: n.String(), limit: c.min.number.String()}
	case c.max.isNumber() && c.max.number.less(n):
		return &Error{sentinel: ErrInsufficient, reason: "above_max", table: t.name, column: c.name, requested: n.String(), limit: c.max.number.String()}
	}
	return nil
}

// at says which table and column an error is about.
func (e *Error) at(t *table, column string) *Error {
	e.table, e.column = t.name, column
	return e
}

// makeRoom returns an empty slice that n elements fit into without moving: others point to them.
func makeRoom[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:0]
	}
	return make([]T, 0, n)
}
