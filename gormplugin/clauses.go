package gormplugin

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// AllowAbsolute lets one statement write the named stock columns with whatever value it brings, zero included: back
// office, corrections, imports. The numeric bounds of a literal are still checked, fence and version still count. It is
// for db.Clauses(...) or gorm.G[T](db, ...); children saved with the model do not inherit it.
func AllowAbsolute(columns ...string) clause.Interface {
	return statementClause{settings{absolute: columns}}
}

// From adds `column = old` to one update or delete, on any column of any model, so that of two who move a row from the same
// state one wins: From("status", Unpaid). nil stands for NULL. A miss is [ErrVersionConflict] with the reason "state".
// May be given more than once. An update that sets no column asks nothing, and fails with [ErrInvalid].
func From(column string, old any) clause.Interface {
	return statementClause{settings{from: []state{{column, old}}}}
}

// AtVersion says which version the row must have, instead of the one in the model: that of an If-Match header, say. v is
// at least 1, else the statement fails with [ErrInvalid]. Of several the last counts. A miss is [ErrVersionConflict].
func AtVersion(v int64) clause.Interface {
	return statementClause{settings{atVersion: v, hasVersion: true}}
}

// AnyVersion raises the version without checking it, for a statement that may overwrite what others did since. It
// overrides the model's version and [AtVersion].
func AnyVersion() clause.Interface { return statementClause{settings{anyVersion: true}} }

// Expect says how many rows one update or delete must hit, at least: fewer is [ErrInsufficient] with the reason "partial".
// Default: one row, or one for each element of a slice; a statement by a WHERE of your own may hit some rows of many and
// succeed. 0 means none need be hit. More than 1 needs a transaction, gorm's own included; negative is [ErrInvalid].
func Expect(rows int64) clause.Interface {
	return statementClause{settings{expect: rows, hasExpect: true}}
}

// settings are what the clauses of one statement ask for.
type settings struct {
	absolute   []string
	from       []state
	atVersion  int64
	hasVersion bool
	anyVersion bool
	expect     int64
	hasExpect  bool
	takeLeft   bool // MySQL: the new value comes with the result
}

type state struct {
	column string
	old    any
}

// settingsKey is where a statement's settings lie in its clauses: gorm's sessions copy clauses, and association saves
// start without them. gorm renders only clauses whose name it knows.
const settingsKey = "holdfast:settings"

type statementClause struct{ s settings }

// Name implements clause.Interface.
func (statementClause) Name() string { return settingsKey }

// Build implements clause.Interface and writes nothing.
func (statementClause) Build(clause.Builder) {}

// MergeClause implements clause.Interface. It makes a new value each time, since clones of a statement share the old one.
func (c statementClause) MergeClause(into *clause.Clause) {
	merged := c.s
	if old, ok := into.Expression.(statementClause); ok {
		merged = old.s
		merged.absolute = append(slices.Clip(merged.absolute), c.s.absolute...)
		merged.from = append(slices.Clip(merged.from), c.s.from...)
		if c.s.hasVersion {
			merged.atVersion, merged.hasVersion = c.s.atVersion, true
		}
		if c.s.hasExpect {
			merged.expect, merged.hasExpect = c.s.expect, true
		}
		merged.anyVersion = merged.anyVersion || c.s.anyVersion
		merged.takeLeft = merged.takeLeft || c.s.takeLeft
	}
	into.Expression = statementClause{merged}
}

// hasSettings reports whether a statement asks for anything.
func hasSettings(stmt *gorm.Statement) bool {
	_, ok := stmt.Clauses[settingsKey]
	return ok
}

// settingsOf returns what a statement asks for; found is false where it asks for nothing.
func settingsOf(stmt *gorm.Statement) (s settings, found bool) {
	c, ok := stmt.Clauses[settingsKey]
	if !ok {
		return settings{}, false
	}
	own, ok := c.Expression.(statementClause)
	return own.s, ok
}

func (s *settings) allowsAbsolute(t *table, c *column) bool {
	for _, name := range s.absolute {
		if t.byColumn(name) == c {
			return true
		}
	}
	return false
}
