package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// requestChars is how long a request id is.
const requestChars = 43

// VerifySchema compares what the plugin was told, by [WithModels], [WithColumn] and [WithUnique], with the tables in the
// database. It is for start-up and for CI: the guard in the statements holds only together with the column types and unique
// indexes underneath, and a migration that was never run shows nowhere else.
//
// It returns nil, or all faults joined, each an [ErrInvalid] with the reason "schema" whose text says what to write: guarded
// columns that are missing, nullable, text or float; a fence of less than 64 bits; a request column shorter than 43
// characters or without a unique index of its own; declared or mapped indexes that are missing on their table or are over
// other columns or another predicate; on MySQL another engine than InnoDB and an unfit sql_mode. [ErrUnavailable] means
// that the database could not be asked.
//
// What is not wrong but unwise goes to the logger as warnings. It writes nothing, but for a temporary table on MySQL. It may
// be called any number of times.
func (p *Plugin) VerifySchema(ctx context.Context, db *gorm.DB) error {
	db = db.Session(&gorm.Session{NewDB: true, Context: ctx})
	v := &verification{p: p, ctx: ctx, db: db, tables: map[string]*dbTable{}}
	var err error
	if v.read, err = readerFor(db); err != nil {
		return err
	}
	for _, check := range []func() error{v.guardedTables, v.declaredIndexes, v.mappedIndexes, v.server} {
		if err := check(); err != nil {
			return err
		}
	}
	return errors.Join(v.faults...)
}

// schemaReader reads what a database has.
type schemaReader interface {
	// table reads one table by the name that gorm writes, or returns nil for one that is not there.
	table(name string) (*dbTable, error)
	// tablesOfIndex returns the names of the tables that have an index of that name.
	tablesOfIndex(name string) ([]string, error)
	// server judges settings that are not about a table.
	server(v *verification) error
}

// dbTable is a table as the database has it.
type dbTable struct {
	engine  string // MySQL
	columns []dbColumn
	indexes []dbIndex // unique and whole: those over a prefix of a column are left out
	checks  []string  // expressions
}

type dbColumn struct {
	name      string
	declared  string // type as the database writes it
	kind      columnKind
	bits      int // of a whole number
	chars     int // of a text; 0 means any number
	nullable  bool
	caseBlind bool
}

type columnKind uint8

const (
	otherKind columnKind = iota
	wholeKind
	decimalKind
	floatKind
	textKind
)

type dbIndex struct {
	name      string
	columns   []string // "" for an expression
	where     string
	primary   bool
	invalid   bool // PostgreSQL: a concurrent build has failed
	caseBlind bool
}

func (t *dbTable) column(name string) *dbColumn {
	for i := range t.columns {
		if strings.EqualFold(t.columns[i].name, name) {
			return &t.columns[i]
		}
	}
	return nil
}

// verification is one VerifySchema.
type verification struct {
	p      *Plugin
	ctx    context.Context
	db     *gorm.DB
	read   schemaReader
	tables map[string]*dbTable
	faults []error
}

func (v *verification) fault(table, column, format string, args ...any) {
	v.faults = append(v.faults, &Error{sentinel: ErrInvalid, reason: "schema", table: table, column: column, hint: fmt.Sprintf(format, args...)})
}

func (v *verification) advise(message string, args ...any) {
	v.p.logger().WarnContext(v.ctx, "gormplugin: "+message, args...)
}

// table reads a table once; nil means that it is not there.
func (v *verification) table(name string) (*dbTable, error) {
	if t, ok := v.tables[name]; ok {
		return t, nil
	}
	t, err := v.read.table(name)
	if err != nil {
		return nil, err
	}
	v.tables[name] = t
	if t == nil {
		v.fault(name, "", "the table is not in the database: run its migration")
	}
	return t, nil
}

// guardedTables looks at the columns that are marked.
func (v *verification) guardedTables() error {
	for name, t := range v.p.guardedTables() {
		actual, err := v.table(name)
		if err != nil {
			return err
		}
		if actual == nil {
			continue
		}
		if actual.engine != "" && !strings.EqualFold(actual.engine, "InnoDB") {
			v.fault(name, "", "engine %s has no transactions: ALTER TABLE %s ENGINE=InnoDB", actual.engine, name)
		}
		for _, c := range t.columns {
			v.guardedColumn(name, actual, c)
		}
	}
	return nil
}

// guardedTables yields the guarded tables by the names that gorm writes, in order.
func (p *Plugin) guardedTables() iter.Seq2[string, *table] {
	tables := map[string]*table{}
	for name, t := range p.catalog.known.Load().tables { // these names are in lower case
		if t.schema != nil {
			name = t.schema.Table
		}
		for _, m := range p.marks {
			if t.schema == nil && strings.EqualFold(m.table, name) {
				name = m.table
			}
		}
		tables[name] = t
	}
	return func(yield func(string, *table) bool) {
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if !yield(name, tables[name]) {
				return
			}
		}
	}
}

func (v *verification) guardedColumn(table string, actual *dbTable, c *column) {
	col := actual.column(c.name)
	if col == nil {
		v.fault(table, c.name, "the column is not in the database: run its migration")
		return
	}
	mayBeNull := c.kind == kindAttempt || c.kind == kindRequest && c.last
	if col.nullable && !mayBeNull {
		v.fault(table, c.name, "the column may be NULL, and NULL passes no condition: make it NOT NULL (in the model: gorm:\"not null\")")
	}
	switch c.kind {
	case kindRequest:
		v.requestColumn(table, actual, c, col)
		return
	case kindStock:
		v.stockColumn(table, actual, c, col)
	default:
		if col.kind != wholeKind {
			v.fault(table, c.name, "%s is no whole number: use BIGINT", col.declared)
		}
	}
	if c.kind == kindFence && col.kind == wholeKind && col.bits < 64 {
		v.fault(table, c.name, "%s has %d bits, fencing numbers need 64: use BIGINT", col.declared, col.bits)
	}
}

func (v *verification) stockColumn(table string, actual *dbTable, c *column, col *dbColumn) {
	switch {
	case col.kind == decimalKind && v.db.Name() == dialectSQLite:
		v.fault(table, c.name, "SQLite keeps %s as a float: use INTEGER and minor units, such as cents", col.declared)
	case col.kind != wholeKind && col.kind != decimalKind:
		v.fault(table, c.name, "%s compares or rounds wrongly: use BIGINT or DECIMAL", col.declared)
	}
	covered := func(names ...string) bool {
		return slices.ContainsFunc(actual.checks, func(check string) bool {
			return !slices.ContainsFunc(names, func(n string) bool { return !containsWord(check, n) })
		})
	}
	switch {
	case c.min.isColumn() && !covered(c.name, c.min.column):
		v.advise("no CHECK keeps a guarded column above its min, so SQL past the plugin can", "table", table, "column", c.name,
			"write", fmt.Sprintf("CHECK (%s >= %s)", c.name, c.min.column))
	case c.min.isNumber() && !covered(c.name):
		v.advise("no CHECK keeps a guarded column above its min, so SQL past the plugin can", "table", table, "column", c.name,
			"write", fmt.Sprintf("CHECK (%s >= %s)", c.name, c.min.number))
	}
	if c.max.isColumn() && !covered(c.name, c.max.column) {
		v.advise("no CHECK keeps a guarded column below its max column, so SQL past the plugin can", "table", table, "column", c.name,
			"write", fmt.Sprintf("CHECK (%s <= %s)", c.name, c.max.column))
	}
	if v.db.Name() == dialectSQLite && !c.max.isSet {
		v.advise("SQLite turns a number that overflows into a float: give the column a max", "table", table, "column", c.name)
	}
}

func (v *verification) requestColumn(table string, actual *dbTable, c *column, col *dbColumn) {
	if col.kind != textKind || col.chars > 0 && col.chars < requestChars {
		v.fault(table, c.name, "%s does not hold a request id of %d characters: use VARCHAR(%d)", col.declared, requestChars, requestChars)
	}
	if col.caseBlind {
		v.advise("a request id that differs in case only counts as the same: use a binary collation", "table", table, "column", c.name)
	}
	if c.last {
		return
	}
	own := slices.IndexFunc(actual.indexes, func(i dbIndex) bool {
		return len(i.columns) == 1 && strings.EqualFold(i.columns[0], c.name) && i.where == "" && !i.invalid
	})
	switch {
	case own < 0:
		v.fault(table, c.name, "the request column has no unique index of its own, so a request may have two effects: gorm:\"uniqueIndex\"")
	case actual.indexes[own].caseBlind:
		v.advise("a request id that differs in case only counts as the same: use a binary collation", "table", table, "column", c.name)
	}
}

// declaredIndexes looks for the unique indexes that the models of WithModels declare, on their own table: PostgreSQL's
// names are schema-wide, and IF NOT EXISTS does nothing for the second model that uses one.
func (v *verification) declaredIndexes() error {
	for _, model := range v.p.models {
		stmt := &gorm.Statement{DB: v.db}
		if err := stmt.Parse(model); err != nil {
			return &Error{sentinel: ErrInvalid, reason: "model", cause: err}
		}
		actual, err := v.table(stmt.Schema.Table)
		if err != nil {
			return err
		}
		if actual == nil {
			continue
		}
		for _, u := range v.p.judge.uniquesOf(v.db, stmt.Schema) {
			v.declaredIndex(stmt.Schema.Table, actual, u)
		}
	}
	return nil
}

func (v *verification) declaredIndex(table string, actual *dbTable, u unique) {
	at := slices.IndexFunc(actual.indexes, func(i dbIndex) bool { return strings.EqualFold(i.name, u.name) })
	if at < 0 {
		same := slices.IndexFunc(actual.indexes, func(i dbIndex) bool { return sameColumns(i.columns, u.columns) && i.where == "" && u.where == "" })
		if same >= 0 && v.db.Name() == dialectSQLite {
			return // a UNIQUE constraint has no name of its own there
		}
		v.fault(table, "", "unique index %s is not on this table: run its migration, and mind that on PostgreSQL another table of the schema may have the name", u.name)
		return
	}
	v.compareIndex(table, actual.indexes[at], u)
}

func (v *verification) compareIndex(table string, has dbIndex, wants unique) {
	switch {
	case has.invalid:
		v.fault(table, "", "unique index %s is invalid, its build has failed: REINDEX INDEX %s", has.name, has.name)
	case !slices.Contains(has.columns, "") && !slices.ContainsFunc(wants.columns, isExpression) && len(wants.columns) > 0 && !sameColumns(has.columns, wants.columns):
		v.fault(table, "", "unique index %s is over (%s), declared is (%s): drop it and run the migration",
			has.name, strings.Join(has.columns, ", "), strings.Join(wants.columns, ", "))
	case has.where == "" && wants.where != "":
		v.fault(table, "", "unique index %s covers all rows, declared is WHERE %s (on MySQL: a generated column that is NULL for the others)", has.name, wants.where)
	case !samePredicate(has.where, wants.where):
		v.fault(table, "", "unique index %s is WHERE %s, declared is WHERE %s: drop it and run the migration", has.name, has.where, or(wants.where, "(all rows)"))
	}
}

// mappedIndexes looks for the indexes that WithUnique names.
func (v *verification) mappedIndexes() error {
	for _, m := range v.p.judge.uniques {
		tables := []string{m.table}
		if m.table == "" {
			var err error
			if tables, err = v.read.tablesOfIndex(m.index); err != nil {
				return err
			}
		}
		found := false
		for _, name := range tables {
			actual, err := v.table(name)
			if err != nil {
				return err
			}
			if actual == nil {
				continue
			}
			for _, has := range actual.indexes {
				if !strings.EqualFold(has.name, m.index) {
					continue
				}
				found = true
				if columns := withoutTable(m.columns, bareName(name)); len(columns) > 0 {
					v.compareIndex(name, has, unique{name: m.index, columns: columns, where: has.where})
				}
			}
		}
		if !found && !v.isConstraint(m) {
			v.fault(m.table, "", "WithUnique(%q): no table has a unique index of that name", m.index)
		}
	}
	return nil
}

// isConstraint reports whether a mapped name is a UNIQUE constraint that a model declares: SQLite keeps no name of it.
func (v *verification) isConstraint(m uniqueMapping) bool {
	if v.db.Name() != dialectSQLite {
		return false
	}
	for _, t := range v.p.guardedTables() {
		if slices.ContainsFunc(t.uniques, func(u unique) bool { return strings.EqualFold(u.name, m.index) }) {
			return true // declaredIndexes has looked for it
		}
	}
	return false
}

func (v *verification) server() error { return v.read.server(v) }

func isExpression(column string) bool { return strings.ContainsAny(column, " ()'") }

func or(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}
