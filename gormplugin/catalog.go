package gormplugin

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// catalog is what the plugin knows of models and tables. Readers see an immutable snapshot; whoever meets a model for the
// first time makes the next one.
type catalog struct {
	marks []tableMark
	mu    sync.Mutex
	known atomic.Pointer[snapshotOfCatalog]
}

type snapshotOfCatalog struct {
	models map[*schema.Schema]*entry
	tables map[string]*table // lower case
}

// entry is what is known of one model; all is zero for one that the plugin has nothing to do with.
type entry struct {
	table    *table
	err      *Error // fault in the tags: every write fails with it
	children bool   // a related model is guarded
}

func newCatalog(marks []tableMark) (*catalog, error) {
	c := &catalog{marks: marks}
	first := &snapshotOfCatalog{models: map[*schema.Schema]*entry{}, tables: map[string]*table{}}
	var errs []error
	for _, m := range marks {
		if first.tables[strings.ToLower(m.table)] != nil {
			continue
		}
		t, err := bareTable(m.table, marks)
		errs = append(errs, err)
		first.tables[strings.ToLower(m.table)] = t
	}
	c.known.Store(first)
	return c, errors.Join(errs...)
}

// of returns the entry of a statement's model or table, nil where it has neither.
func (c *catalog) of(stmt *gorm.Statement) *entry {
	if stmt.Schema != nil && stmt.TableExpr == nil {
		if e := c.known.Load().models[stmt.Schema]; e != nil {
			return e
		}
	}
	return c.search(stmt)
}

func (c *catalog) search(stmt *gorm.Statement) *entry {
	if stmt.Schema != nil && stmt.TableExpr == nil {
		return c.learn(stmt.DB, stmt.Schema)
	}
	return c.byName(stmt)
}

// byName is of for a statement that names its table: the table counts before the model.
func (c *catalog) byName(stmt *gorm.Statement) *entry {
	var byModel *entry
	if stmt.Schema != nil {
		e, ok := c.known.Load().models[stmt.Schema]
		if !ok {
			e = c.learn(stmt.DB, stmt.Schema)
		}
		if e.table != nil || e.err != nil {
			byModel = e
		}
	}
	name, whole := stmt.Table, true
	expr := tableText(stmt)
	if stmt.TableExpr != nil {
		name, whole = tableIn(expr)
	}
	if !whole { // a join or worse
		for _, t := range c.known.Load().tables {
			if containsWord(expr, t.name) {
				return &entry{err: &Error{sentinel: ErrUnguardedWrite, reason: "table", table: t.name, hint: "name one table, or use a model"}}
			}
		}
		return byModel
	}
	if t := c.table(name); t != nil && (byModel == nil || byModel.table == nil || byModel.table.name != t.name) {
		return &entry{table: t}
	}
	return byModel
}

// table returns the guarded table of that name, nil for any other.
func (c *catalog) table(name string) *table {
	tables := c.known.Load().tables
	name = strings.ToLower(name)
	if t := tables[name]; t != nil {
		return t
	}
	for known, t := range tables {
		if sameTable(known, name) {
			return t
		}
	}
	return nil
}

// learn reads the tags of a model.
func (c *catalog) learn(db *gorm.DB, s *schema.Schema) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.known.Load()
	if e, ok := old.models[s]; ok {
		return e
	}
	t, err := newTable(db.Name(), s, c.marks)
	e := &entry{table: t}
	switch {
	case err == nil && t == nil:
		e.table = c.table(s.Table) // a smaller struct for the same table
	case err != nil:
		e.table = nil
		e.err = &Error{sentinel: ErrInvalid, reason: "tag", table: bareName(s.Table), hint: err.Error()}
	}
	for _, rel := range s.Relationships.Relations {
		e.children = e.children || rel.FieldSchema != nil && (hasGuards(rel.FieldSchema) || c.table(rel.FieldSchema.Table) != nil)
	}
	next := &snapshotOfCatalog{models: maps.Clone(old.models), tables: old.tables}
	next.models[s] = e
	if t != nil && err == nil {
		next.tables = maps.Clone(old.tables)
		next.tables[strings.ToLower(s.Table)] = t
		// What was learned of other models may be wrong now: those of the same table, and those with relations to it.
		maps.DeleteFunc(next.models, func(o *schema.Schema, e *entry) bool {
			return o != s && (sameTable(o.Table, s.Table) || len(o.Relationships.Relations) > 0) && e.table == nil
		})
	}
	c.known.Store(next)
	return e
}

// tableText returns the statement's table expression as it is sent: a variable in it may be the name, as in
// db.Table("?", clause.Table{Name: "items"}).
func tableText(stmt *gorm.Statement) string {
	switch {
	case stmt.TableExpr == nil:
		return ""
	case len(stmt.TableExpr.Vars) == 0:
		return stmt.TableExpr.SQL
	}
	own := &gorm.DB{Config: stmt.Config}
	own.Statement = &gorm.Statement{DB: own, Table: stmt.Table, Context: stmt.Context, Clauses: map[string]clause.Clause{}}
	stmt.TableExpr.Build(own.Statement)
	return own.Statement.SQL.String()
}

// tableIn reads the name in a table expression: `items`, "shop"."items", items AS i, items i. whole is false for all else.
func tableIn(expr string) (name string, whole bool) {
	words := strings.Fields(expr)
	switch {
	case len(words) == 1, len(words) == 2, len(words) == 3 && strings.EqualFold(words[1], "as"):
	default:
		return "", false
	}
	if strings.ContainsAny(words[0], ",()?") {
		return "", false
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("`\"[]", r) {
			return -1
		}
		return r
	}, words[0]), true
}

// containsWord reports whether text has word as a whole word, in any case.
func containsWord(text, word string) bool {
	text, word = strings.ToLower(text), strings.ToLower(word)
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		i += from
		before := i == 0 || !isWordByte(text[i-1])
		after := i+len(word) == len(text) || !isWordByte(text[i+len(word)])
		if before && after {
			return true
		}
		from = i + 1
	}
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
