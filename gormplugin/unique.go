package gormplugin

import (
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm/schema"
)

// indexCache holds the unique indexes that models without guards declare; those of guarded ones are in the catalog. gorm
// writes to the fields of the schema when it parses indexes, so that happens once. The zero value is ready.
type indexCache struct {
	mu sync.Mutex
	m  map[*schema.Schema][]unique
}

func (c *indexCache) of(s *schema.Schema) []unique {
	c.mu.Lock()
	defer c.mu.Unlock()
	us, ok := c.m[s]
	if !ok {
		if c.m == nil {
			c.m = make(map[*schema.Schema][]unique)
		}
		us = uniquesOf(s)
		c.m[s] = us
	}
	return us
}

// withPrimary adds the primary key under the name that MySQL gives every one.
func withPrimary(us []unique, s *schema.Schema) []unique {
	if s == nil || len(s.PrimaryFieldDBNames) == 0 {
		return us
	}
	return append(slices.Clip(us), unique{name: "PRIMARY", columns: s.PrimaryFieldDBNames})
}

// duplicate says which unique index refused a row.
type duplicate struct {
	index   string // as the database or the model names it; several are separated by commas
	mapped  error  // what WithUnique makes of it
	request bool   // it is the request column's own
}

// indexFinder finds the index that a database error is about, among those that the model declares and WithUnique names.
type indexFinder struct {
	table    string // of the statement, without a schema
	declared []unique
	mappings []uniqueMapping
	request  string // the column that holds the request id, "" for none
}

// find takes the name, if the database gave one that is known, else the columns.
func (f indexFinder) find(e dbError) duplicate {
	name, table := e.name, e.table
	if name == "" {
		return f.byColumns(e)
	}
	// MySQL 8.0 says orders.uk_user_item, and ignores the case of names.
	if rest, ok := strings.CutPrefix(name, f.table+"."); ok {
		name, table = rest, f.table
	} else if t, rest, ok := strings.Cut(name, "."); ok {
		table, name = t, rest
	}
	if table == "" {
		table = f.table
	}
	d, known := duplicate{index: name}, false
	exact := false
	for _, m := range f.mappings {
		if !strings.EqualFold(m.index, name) || m.table != "" && !sameTable(m.table, table) {
			continue
		}
		if d.mapped == nil || m.table != "" && !exact { // "orders.uk" goes before "uk"
			d.mapped, exact = m.err, m.table != ""
		}
		known = true
		d.request = d.request || f.isRequest(withoutTable(m.columns, f.table))
	}
	for _, u := range f.declared {
		if strings.EqualFold(u.name, name) && sameTable(table, f.table) {
			known = true
			d.request = d.request || f.isRequest(u.columns)
		}
	}
	if !known {
		return f.byColumns(e)
	}
	return d
}

// byColumns is for SQLite, which names columns, and for PostgreSQL's partitions, whose indexes have names of their own.
// Indexes over the same columns, a partial one and a whole one, cannot be told apart by them: the answer is all of these.
func (f indexFinder) byColumns(e dbError) duplicate {
	d := duplicate{index: e.name}
	if len(e.columns) == 0 {
		return d
	}
	table := f.table
	var names []string
	if e.name == "" && e.table != "" && !sameTable(e.table, f.table) {
		table = e.table // a trigger wrote another table
	} else {
		d.request = f.isRequest(e.columns)
		for _, u := range f.declared {
			if sameColumns(u.columns, e.columns) {
				names = append(names, u.name)
			}
		}
	}
	exact := false
	for _, m := range f.mappings {
		if m.table != "" && !sameTable(m.table, table) {
			continue
		}
		isDeclared := slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, m.index) })
		if !isDeclared && !sameColumns(withoutTable(m.columns, table), e.columns) {
			continue
		}
		if !isDeclared {
			names = append(names, m.index)
		}
		if d.mapped == nil || m.table != "" && !exact {
			d.mapped, exact = m.err, m.table != ""
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		d.index = strings.Join(names, ",")
	}
	return d
}

func (f indexFinder) isRequest(columns []string) bool {
	return f.request != "" && len(columns) == 1 && strings.EqualFold(columns[0], f.request)
}

// sameColumns ignores the order: databases name columns in the order of the index, which WithUnique's list need not have.
func sameColumns(a, b []string) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for _, c := range a {
		if !slices.ContainsFunc(b, func(o string) bool { return strings.EqualFold(o, c) }) {
			return false
		}
	}
	return true
}

// withoutTable returns the columns of "table.column" that belong to table, and nil if one does not.
func withoutTable(columns []string, table string) []string {
	bare := make([]string, 0, len(columns))
	for _, c := range columns {
		rest, ok := strings.CutPrefix(c, table+".")
		if !ok {
			return nil
		}
		bare = append(bare, rest)
	}
	return bare
}
