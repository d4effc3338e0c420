package gormplugin

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// checkKind orders the checks of a statement by which one answers first when several fail.
type checkKind uint8

const (
	checkAttempt checkKind = iota // no later attempt of the same request has written
	checkFence                    // no newer holder has written
	checkVersion                  // the row is as it was read
	checkState                    // From
	checkMin                      // enough is there
	checkMax                      // enough room is there
)

// check is one condition that the guard adds to a WHERE. It lies in the operation that it belongs to, so that adding one
// costs no allocation.
type check struct {
	kind   checkKind
	o      *operation
	column *column // nil for From on a column without a guard
	left   any     // that column
	n      number  // amount for a bound; fence, version or attempt otherwise
	value  any     // From's old value; the request id
}

// Build implements clause.Expression.
func (c *check) Build(b clause.Builder) {
	switch c.kind {
	case checkAttempt:
		t := c.o.table
		write(b, "(")
		c.o.writeColumn(b, t.request)
		write(b, " IS NULL OR ")
		c.o.writeColumn(b, t.request)
		write(b, " <> ")
		b.AddVar(b, c.value)
		write(b, " OR COALESCE(")
		c.o.writeColumn(b, t.attempt)
		write(b, ",0) <= ")
		c.o.writeNumber(b, c.n)
		write(b, ")")
	case checkFence:
		write(b, "COALESCE(")
		c.o.writeColumn(b, c.column)
		write(b, ",0) <= ")
		c.o.writeNumber(b, c.n)
	case checkVersion:
		if c.o.rowVersions != nil {
			c.o.rowVersions.Build(b)
			return
		}
		c.o.writeColumn(b, c.column)
		write(b, " = ")
		c.o.writeNumber(b, c.n)
	case checkState:
		clause.Eq{Column: c.left, Value: c.value}.Build(b)
	case checkMin:
		c.o.writeColumn(b, c.column)
		write(b, " >= ")
		if m := c.column.min; m.isColumn() {
			c.o.writeLimit(b, m)
			write(b, " + ")
			c.o.writeNumber(b, c.n)
		} else {
			c.o.writeNumber(b, c.n.add(m.number))
		}
	case checkMax:
		c.o.writeColumn(b, c.column)
		if m := c.column.max; m.isColumn() {
			write(b, " + ")
			c.o.writeNumber(b, c.n)
			write(b, " <= ")
			c.o.writeLimit(b, m)
		} else {
			write(b, " <= ")
			c.o.writeNumber(b, m.number.sub(c.n))
		}
	}
}

// change is the new value of a stock column: itself, more or less n.
type change struct {
	o      *operation
	column *column
	n      number
	add    bool
	left   bool // MySQL gives the new value back as the last insert id
}

// Build implements clause.Expression.
func (c *change) Build(b clause.Builder) {
	if c.left {
		write(b, "LAST_INSERT_ID(")
		defer write(b, ")")
	}
	c.o.writeColumn(b, c.column)
	if c.add {
		write(b, " + ")
	} else {
		write(b, " - ")
	}
	c.o.writeNumber(b, c.n)
}

// next is the new value of the version column.
type next struct {
	o      *operation
	column *column
}

// Build implements clause.Expression.
func (n *next) Build(b clause.Builder) {
	n.o.writeColumn(b, n.column)
	write(b, " + 1")
}

// parens keeps conditions together that the guard did not write: a raw `a = 1 OR b = 2`, or one that ends in a comment,
// must not swallow what is added to it.
type parens struct{ clause.Where }

// Build implements clause.Expression.
func (p parens) Build(b clause.Builder) {
	write(b, "(")
	p.Where.Build(b)
	write(b, ")")
}

// needsParens reports whether an AND after the conditions could bind to a part of them only.
func needsParens(exprs []clause.Expression) bool {
	for _, e := range exprs {
		switch e := e.(type) {
		case clause.Eq, clause.Neq, clause.Gt, clause.Gte, clause.Lt, clause.Lte, clause.IN, clause.Like, *check:
		case clause.AndConditions:
			if len(e.Exprs) < 2 {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// joined returns the statement's WHERE with the checks of the guard in it, and false where the statement has none of its
// own: then gorm refuses it as missing, and the guard must not stand in for it. With AllowGlobalUpdate the guard is all of
// the WHERE.
func (o *operation) joined(stmt *gorm.Statement, where clause.Clause) (clause.Clause, bool) {
	var own []clause.Expression
	switch w := where.Expression.(type) {
	case nil:
	case clause.Where:
		own = w.Exprs
	default:
		own = []clause.Expression{w}
	}
	least := 1
	if _, soft := stmt.Clauses["soft_delete_enabled"]; soft {
		least = 2 // the condition that gorm adds for the deletion mark is not the caller's
	}
	if len(own) < least && !stmt.AllowGlobalUpdate {
		return where, false
	}
	exprs := make([]clause.Expression, 0, len(own)+len(o.checks))
	if needsParens(own) {
		exprs = append(exprs, parens{clause.Where{Exprs: own}})
	} else {
		exprs = append(exprs, own...)
	}
	for i := range o.checks {
		exprs = append(exprs, &o.checks[i])
	}
	where.Name = "WHERE"
	where.Expression = clause.Where{Exprs: exprs}
	return where, true
}

// write writes a piece of SQL. gorm builds statements in memory, so it cannot fail.
func write(w clause.Writer, text string) { _, _ = w.WriteString(text) }

// writeColumn writes a guarded column, with the table's name where another table could have one of that name.
func (o *operation) writeColumn(b clause.Builder, c *column) {
	if o.qualify {
		b.WriteQuoted(c.qualified)
	} else {
		b.WriteQuoted(c.plain)
	}
}

func (o *operation) writeLimit(b clause.Builder, l limit) {
	if o.qualify {
		b.WriteQuoted(l.qualified)
	} else {
		b.WriteQuoted(l.plain)
	}
}

// writeNumber binds a number. PostgreSQL gives a bare parameter the type of the column beside it, and the driver then
// cannot send a number that the column could not hold; MySQL's driver sends decimals as text, which compare as doubles.
func (o *operation) writeNumber(b clause.Builder, n number) {
	switch {
	case o.dialect == dialectPostgres && n.isWhole():
		write(b, "CAST(")
		b.AddVar(b, n.i)
		write(b, " AS bigint)")
	case n.isWhole():
		b.AddVar(b, n.i)
	case o.dialect == dialectMySQL:
		write(b, "CAST(")
		b.AddVar(b, n.text)
		write(b, " AS DECIMAL(65,30))")
	default:
		write(b, "CAST(")
		b.AddVar(b, n.text)
		write(b, " AS numeric)")
	}
}
