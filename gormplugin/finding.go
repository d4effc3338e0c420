package gormplugin

import (
	"fmt"
	"strconv"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// finding is what one row says of one check.
type finding struct {
	c             *check
	stored, limit any
	fits          bool
}

// foundRow is one row that the statement's own WHERE matches.
type foundRow struct {
	keys     []any
	findings []finding
}

func (r foundRow) fits() bool {
	for _, f := range r.findings {
		if !f.fits {
			return false
		}
	}
	return true
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
