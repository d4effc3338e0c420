package gormplugin

import (
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// verb is what a statement does to its table.
type verb uint8

const (
	verbInsert verb = iota + 1
	verbUpdate
	verbDelete
)

func (v verb) String() string { return [...]string{"", "INSERT", "UPDATE", "DELETE"}[v] }

// operation is one guarded statement on its way through gorm's callbacks: holdfast:before makes it, the clause builders
// fill it, holdfast:verify decides by it, holdfast:after reports it.
type operation struct {
	p       *Plugin
	db      *gorm.DB // as the callbacks have it: a scope may have made it another than the statement's own
	stmt    *gorm.Statement
	table   *table
	verb    verb
	dialect string
	settings

	passive  bool // nothing to guard; it is the parent of models that are guarded
	built    bool // its clauses went through the guard, so the conditions below are in the SQL
	qualify  bool // columns need the table's name
	wholeRow bool // the values come from a struct: its guarded fields are there because the row has them, not by intent
	save     bool // it may be the update of gorm's Save, which inserts when nothing is hit
	child    bool // gorm saves it as an association of another model
	upsert   *upsert
	marked   bool   // in shadow mode: a marked column is written without the guard
	shadowed *Error // in shadow mode: why it would have been refused

	fence    int64
	hasFence bool
	noFence  bool // the fence column was left alone by a statement that does not commute

	version     int64 // that the row must have; 0 where none is checked
	loaded      int64 // that the model in memory has, and that is raised with the row's
	rowVersions *rowVersions
	raised      bool

	checks  []check
	space   [4]check
	changes []change
	space2  [2]change
	expects bool  // rows was said by Expect or by the length of a slice
	rows    int64 // how many it must hit, at least
	opened  bool  // a savepoint stands in front of it

	where    clause.Clause // as the statement brought it
	hadWhere bool
	rewrote  bool // the WHERE holds our conditions
	selects  []string
	selected bool // Selects holds ours
	clauses  []string

	memory  memory // the model as the caller set it
	refusal *Error
	first   error // the statement's first error, which gorm may have made text of
}

// operationKey is where an operation lies in its statement's clauses. operationTag at the end of the list of clauses to build says
// that there is one: looking at it is all that the hooks cost a statement without a guard. gorm renders neither.
const (
	operationKey = "holdfast:operation"
	operationTag = "holdfast"
)

// Build implements clause.Expression and writes nothing.
func (o *operation) Build(clause.Builder) {}

// operationOf returns the operation that a statement is, nil for one that the guard has nothing to do with.
func operationOf(stmt *gorm.Statement) *operation {
	if n := len(stmt.BuildClauses); n == 0 || stmt.BuildClauses[n-1] != operationTag {
		return nil
	}
	o, _ := stmt.Clauses[operationKey].Expression.(*operation)
	if o == nil || o.stmt != stmt { // a clone made half-way
		return nil
	}
	return o
}

// begin makes the operation of a statement, or returns nil where the guard has nothing to do with it or has refused it.
func (p *Plugin) begin(db *gorm.DB, v verb) *operation {
	if p.beforeRead(db); db.Error != nil { // db.Raw(...).Create(...) sends the raw text
		return nil
	}
	e := p.catalog.of(db.Statement)
	if (e == nil || e.table == nil && e.err == nil && !e.children) && !hasSettings(db.Statement) {
		return nil
	}
	if e == nil {
		e = &entry{}
	}
	return p.newOperation(db, v, e)
}

func (p *Plugin) newOperation(db *gorm.DB, v verb, e *entry) *operation {
	stmt := db.Statement
	asked, asks := settingsOf(stmt)
	o, _ := p.pool.Get().(*operation)
	if o == nil {
		o = &operation{}
	}
	o.p, o.db, o.stmt, o.verb, o.dialect, o.settings, o.table = p, db, stmt, v, db.Name(), asked, e.table
	if o.table == nil { // only the clauses bind, or the fault in the tags
		o.table = &table{name: bareName(stmt.Table), schema: stmt.Schema}
		o.passive = e.err == nil && !asks
	}
	o.checks, o.changes = o.space[:0], o.space2[:0]
	o.clauses = stmt.BuildClauses
	stmt.BuildClauses = p.tagged(v, o.clauses)
	stmt.Clauses[operationKey] = clause.Clause{Name: operationKey, Expression: o}
	if parent, ok := stmt.Settings.Load(parentKey); ok && parent != stmt {
		o.child = true
	}
	if e.children {
		stmt.Settings.Store(parentKey, stmt)
	}
	if o.passive {
		return nil
	}
	if e.err != nil {
		o.insist(e.err)
		return nil
	}
	if over := leaseOver(stmt.Context, o.table); over != nil && o.refuse(over) {
		return nil
	}
	if refusal := o.readSettings(); refusal != nil {
		o.insist(refusal)
		return nil
	}
	if refusal := o.readFence(); refusal != nil && o.refuse(refusal) {
		return nil
	}
	return o
}

// tagged returns the clauses to build with operationTag behind them. They are the same for nearly all statements of a verb,
// which share one slice without room to append.
func (p *Plugin) tagged(v verb, clauses []string) []string {
	last := &p.lastTagged[v]
	if known := last.Load(); known != nil && slices.Equal((*known)[:len(*known)-1], clauses) {
		return *known
	}
	fresh := slices.Clip(append(slices.Clip(clauses), operationTag))
	last.Store(&fresh)
	return fresh
}

// parentKey marks the statement of a model that has guarded children. gorm copies settings to the statements that save
// the children, and there the mark names another statement.
const parentKey = "holdfast:parent"

// free gives an operation back when its statement is over. Nothing may point to it then: the WHERE is the statement's own
// again, and clones made meanwhile lack the mark that leads to it.
func (o *operation) free() {
	p := o.p
	*o = operation{}
	p.pool.Put(o)
}

// refuse ends the statement before it is sent and reports whether it did: in shadow mode it only remembers why it would
// have. The error is assigned, not added: gorm makes text of the first error when a second one is added.
func (o *operation) refuse(e *Error) bool {
	if o.p.shadow {
		if o.shadowed == nil {
			o.shadowed = e
		}
		return false
	}
	o.insist(e)
	return true
}

// insist is refuse for what the statement asked for by itself, which binds in shadow mode too.
func (o *operation) insist(e *Error) {
	if e.table == "" {
		e.table = o.table.name
	}
	if o.refusal == nil {
		o.refusal = e
		o.fail(e)
	}
}

// fail gives the statement an error that takes the place of any other.
func (o *operation) fail(err error) { o.db.Error, o.stmt.Error = err, err }

// readSettings judges what the statement's clauses ask for.
func (o *operation) readSettings() *Error {
	switch {
	case o.hasVersion && o.atVersion < 1:
		return fail(ErrInvalid, "version", "AtVersion wants a version from 1")
	case (o.hasVersion || o.anyVersion) && o.table.version == nil:
		return fail(ErrInvalid, "version", "AtVersion and AnyVersion need a column marked guard:\"version\"")
	case o.hasExpect && o.expect < 0:
		return fail(ErrInvalid, "rows", "Expect wants a number from 0")
	case o.verb == verbInsert && (len(o.from) > 0 || o.hasExpect):
		return fail(ErrInvalid, "clause", "From and Expect are for updates and deletes")
	}
	return nil
}

func (o *operation) readFence() (refusal *Error) {
	if o.table.fence == nil {
		return nil
	}
	o.fence, o.hasFence, refusal = fenceIn(o.stmt.Context, o.table)
	return refusal
}

// fieldOf returns the field of the statement's own model for a guarded column, nil where it has none: the model may be a
// smaller struct, or there may be none at all.
func (o *operation) fieldOf(c *column) *schema.Field {
	switch s := o.stmt.Schema; {
	case c == nil || s == nil:
		return nil
	case s == o.table.schema:
		return c.field
	default:
		f := s.LookUpField(c.name)
		if f == nil || f.DBName == "" {
			return nil
		}
		return f
	}
}

// elements calls visit for each struct that the statement's model is or holds.
func elements(v reflect.Value, visit func(i int, elem reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		visit(0, v)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if elem := reflect.Indirect(v.Index(i)); elem.Kind() == reflect.Struct {
				visit(i, elem)
			}
		}
	}
}

// ownTransaction reports whether gorm began a transaction for this statement alone.
func ownTransaction(db *gorm.DB) bool {
	_, own := db.InstanceGet("gorm:started_transaction")
	return own
}

// inCallersTransaction reports whether the statement runs in a transaction that the caller began. It is right until gorm
// commits its own.
func inCallersTransaction(db *gorm.DB) bool {
	return inTransaction(db.Statement.ConnPool) && !ownTransaction(db)
}
