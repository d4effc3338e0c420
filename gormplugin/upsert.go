package gormplugin

import (
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// upsert is the plan for the ON CONFLICT of an insert: made while its VALUES are written, used for the clause itself.
type upsert struct {
	clause.OnConflict
	nothing       bool   // a row that is in the way stays as it is
	dropped       bool   // the clause is left out
	checksVersion bool   // each row's version is checked, and comes with it raised by one
	replaces      bool   // the clause is written as planned, else as it came
	fresh         []bool // which rows come without a primary key, and so cannot be in its way
}

// inserts reports whether a row is one that the insert makes for certain.
func (p *upsert) inserts(row int) bool {
	return p == nil || p.nothing || p.dropped || row < len(p.fresh) && p.fresh[row]
}

// planConflict decides what becomes of the insert's ON CONFLICT.
func (o *operation) planConflict(stmt *gorm.Statement, in *insertion) {
	c, ok := stmt.Clauses["ON CONFLICT"]
	if !ok || len(o.table.columns) == 0 {
		return
	}
	given, ok := c.Expression.(clause.OnConflict)
	if !ok {
		o.refuse(fail(ErrUnguardedWrite, "upsert", "an ON CONFLICT clause of another type than clause.OnConflict cannot be judged"))
		return
	}
	p := &upsert{OnConflict: given, nothing: given.DoNothing || len(given.DoUpdates) == 0}
	o.upsert = p
	if o.child {
		o.planChild(stmt, in)
	}
	if o.dialect != dialectMySQL && p.targetsPrimary(stmt) {
		p.fresh = keyless(stmt)
	}
	if p.nothing || p.dropped || o.refusal != nil {
		return
	}
	set, commutes := o.planUpdates(given)
	if o.refusal != nil || o.p.shadow {
		return
	}
	p.replaces = true
	p.DoUpdates = o.planOwn(set, commutes, in)
	if o.refusal == nil {
		o.planWhere(stmt, in)
	}
}

// planUpdates judges the assignments of DO UPDATE.
func (o *operation) planUpdates(given clause.OnConflict) (out clause.Set, commutes bool) {
	commutes = true
	o.changes = makeRoom(o.changes, len(o.table.stock))
	for _, a := range given.DoUpdates {
		c := o.table.byColumn(a.Column.Name)
		switch {
		case c == nil:
			if _, ok := a.Value.(Delta); ok {
				o.insist(fail(ErrUnguardedWrite, "unmarked", "Sub and Add work on columns marked guard:\"stock\"").at(o.table, bareName(a.Column.Name)))
				return nil, false
			}
			if o.isSQL(a.Column.Name) {
				return nil, false
			}
			commutes = commutes && o.table.isAuto(a.Column.Name)
			out = append(out, a)
			continue
		case c.kind != kindStock:
			if !given.UpdateAll && o.refuse(fail(ErrUnguardedWrite, c.kind.String(), "the plugin writes this column itself").at(o.table, c.name)) {
				return nil, false
			}
			continue
		}
		a, plain := o.planStock(c, a, given.UpdateAll)
		if o.refusal != nil {
			return nil, false
		}
		commutes = commutes && !plain
		out = append(out, a)
	}
	return out, commutes
}

func (o *operation) planStock(c *column, a clause.Assignment, whole bool) (sent clause.Assignment, plain bool) {
	n, add, found, refusal := o.amountOf(c, a.Value)
	_, isDelta := a.Value.(Delta)
	switch {
	case o.p.shadow && !isDelta:
		o.judgeShadow(c, found, refusal)
		return a, true
	case refusal != nil:
		o.insist(refusal)
	case o.changed(c):
		o.insist(fail(ErrUnguardedWrite, "twice", "one statement changes a column once").at(o.table, c.name))
	case found && add && !c.max.isSet:
		o.changes = append(o.changes, change{o: o, column: c, n: n, add: true})
		a.Value = &o.changes[len(o.changes)-1]
		return a, false
	case found:
		o.insist(fail(ErrUnguardedWrite, "upsert", "an upsert takes Add on a column without max; update the row for all else").at(o.table, c.name))
	case o.allowsAbsolute(o.table, c):
		if refusal := c.checkLiteral(o.table, a.Value); refusal != nil {
			o.insist(refusal)
			return a, false
		}
		o.changes = append(o.changes, change{o: o, column: c})
		return a, true
	default:
		reason := "absolute"
		if whole {
			reason = "whole_row"
		}
		o.refuse(fail(ErrUnguardedWrite, reason, "write Omit(\""+o.fieldName(c)+"\") or AllowAbsolute(\""+c.name+"\")").at(o.table, c.name))
	}
	return a, false
}

// planOwn adds the plugin's own columns and their checks.
func (o *operation) planOwn(set clause.Set, commutes bool, in *insertion) clause.Set {
	o.checks = makeRoom(o.checks, 2)
	if o.ownFence(commutes); o.hasFence {
		if o.dialect == dialectMySQL {
			o.refuse(fail(ErrUnguardedWrite, "upsert", "ON DUPLICATE KEY UPDATE takes no condition, so it cannot check a fence: update the row").at(o.table, o.table.fence.name))
			return nil
		}
		set = append(set, clause.Assignment{Column: clause.Column{Name: o.table.fence.name}, Value: o.fence})
	}
	v := o.table.version
	if v == nil || o.refusal != nil {
		return set
	}
	if commutes || o.anyVersion || o.child && !o.upsert.UpdateAll {
		return append(set, clause.Assignment{Column: clause.Column{Name: v.name}, Value: &next{o, v}})
	}
	rows := len(in.Values.Values)
	switch {
	case o.dialect == dialectMySQL:
		o.refuse(fail(ErrUnguardedWrite, "upsert", "ON DUPLICATE KEY UPDATE takes no condition, so it cannot check a version: say AnyVersion(), or update the row").at(o.table, v.name))
	case o.hasVersion && rows == 1, o.rowVersions != nil && o.rowVersions.complete && len(o.rowVersions.rows) == rows, rows == 1 && o.loaded > 0:
		o.upsert.checksVersion = true
		n := o.loaded
		if o.hasVersion {
			n, o.rowVersions = o.atVersion, nil
		}
		o.checks = append(o.checks, check{kind: checkVersion, o: o, column: v, n: whole(n)})
		raised := clause.Column{Table: "excluded", Name: v.name}
		return append(set, clause.Assignment{Column: clause.Column{Name: v.name}, Value: raised})
	default:
		o.refuse(fail(ErrUnguardedWrite, "no_version", "an upsert may hit a row that is there: load it first, or say AnyVersion()").at(o.table, v.name))
	}
	return set
}

// planWhere puts the checks into the condition of DO UPDATE, and remembers how to find a row that fails them.
func (o *operation) planWhere(stmt *gorm.Statement, in *insertion) {
	p := o.upsert
	if o.dialect == dialectMySQL {
		moves := o.child && !p.UpdateAll // it has its keys, and only its foreign key moves
		if !moves && o.keysAtStake(stmt, in) > 1 {
			o.refuse(fail(ErrUnguardedWrite, "upsert", "ON DUPLICATE KEY UPDATE updates the row of any key that collides, another user's too: use InsertOnce, or update the row"))
		}
		return
	}
	if len(o.checks) == 0 {
		return
	}
	own := p.Where.Exprs
	exprs := make([]clause.Expression, 0, len(own)+len(o.checks))
	if len(own) > 0 {
		exprs = append(exprs, parens{clause.Where{Exprs: own}})
	}
	for i := range o.checks {
		exprs = append(exprs, upsertCheck{&o.checks[i]})
	}
	p.Where.Exprs = exprs
	o.expects, o.rows = true, int64(len(in.Values.Values))
	o.openRows(stmt)
	o.where = clause.Clause{Name: "WHERE", Expression: clause.Where{Exprs: p.targetRows(stmt, in)}}
	o.hadWhere = true
}

// keysAtStake counts the unique keys that a row of the insert could collide with.
func (o *operation) keysAtStake(stmt *gorm.Statement, in *insertion) int {
	n := len(o.table.uniques)
	if stmt.Schema == nil {
		return n
	}
	for _, pk := range stmt.Schema.PrimaryFields {
		for _, col := range in.Columns {
			if col.Name == pk.DBName {
				return n + 1
			}
		}
	}
	return n
}

// targetRows writes which rows could be in the way of the insert, by the columns of its conflict target.
func (p *upsert) targetRows(stmt *gorm.Statement, in *insertion) []clause.Expression {
	var any []clause.Expression
	for _, row := range in.Values.Values {
		var all []clause.Expression
		for _, target := range p.Columns {
			for i, col := range in.Columns {
				if col.Name == target.Name {
					all = append(all, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: col.Name}, Value: row[i]})
				}
			}
		}
		if len(all) == 0 || len(all) < len(p.Columns) {
			return nil
		}
		any = append(any, clause.And(all...))
	}
	return []clause.Expression{parens{clause.Where{Exprs: []clause.Expression{clause.Or(any...)}}}}
}

// upsertCheck is a check in the condition of DO UPDATE: there the version that a row must have came with the row.
type upsertCheck struct{ *check }

// Build implements clause.Expression.
func (c upsertCheck) Build(b clause.Builder) {
	if c.kind != checkVersion {
		c.check.Build(b)
		return
	}
	c.o.writeColumn(b, c.column)
	write(b, " = ")
	b.WriteQuoted(clause.Column{Table: "excluded", Name: c.column.name})
	write(b, " - 1")
}

// planChild is for a row that gorm saves as an association of another. It would do nothing, or move the foreign key, when
// any unique key collides, and so lose the row or take over somebody else's. A collision is meant to be found by the primary
// key only; all others are errors.
func (o *operation) planChild(stmt *gorm.Statement, in *insertion) {
	p := o.upsert
	if len(o.table.uniques) == 0 || stmt.Schema == nil {
		return
	}
	if o.dialect != dialectMySQL {
		p.Columns, p.OnConstraint = nil, ""
		for _, pk := range stmt.Schema.PrimaryFields {
			p.Columns = append(p.Columns, clause.Column{Name: pk.DBName})
		}
		p.replaces = len(p.Columns) > 0
		return
	}
	fresh := keyless(stmt)
	switch {
	case !slices.Contains(fresh, false):
		p.dropped = true
	case slices.Contains(fresh, true):
		o.refuse(fail(ErrUnguardedWrite, "children", "some of the children have a primary key and some have none: save them apart"))
	}
}

// keyless says which structs of the statement's model have no primary key yet.
func keyless(stmt *gorm.Statement) []bool {
	var fresh []bool
	elements(stmt.ReflectValue, func(_ int, elem reflect.Value) {
		without := slices.ContainsFunc(stmt.Schema.PrimaryFields, func(pk *schema.Field) bool { return isZero(pk, stmt, elem) })
		fresh = append(fresh, without)
	})
	return fresh
}

// targetsPrimary reports whether only a row with the same primary key can be in the way.
func (p *upsert) targetsPrimary(stmt *gorm.Statement) bool {
	if stmt.Schema == nil || p.OnConstraint != "" || len(p.Columns) == 0 {
		return false
	}
	for _, c := range p.Columns {
		if f := stmt.Schema.LookUpField(c.Name); f == nil || !f.PrimaryKey {
			return false
		}
	}
	return true
}

// buildConflict writes the clause as planned.
func (o *operation) buildConflict(c clause.Clause, _ *gorm.Statement) (clause.Clause, bool) {
	switch p := o.upsert; {
	case p == nil, !p.replaces && !p.dropped:
		return c, true
	case p.dropped:
		return c, false
	default:
		c.Expression = p.OnConflict
		return c, true
	}
}

// verifyConflict decides whether an upsert wrote all its rows.
func (o *operation) verifyConflict(db *gorm.DB) {
	if len(o.checks) == 0 || db.RowsAffected >= o.rows {
		return
	}
	if w, _ := o.where.Expression.(clause.Where); len(w.Exprs) == 0 {
		o.insist(o.unknown(nil))
		return
	}
	refusal, _ := o.diagnose(db, o.rows)
	if refusal == nil {
		refusal = o.raced()
	}
	o.insist(refusal)
}
