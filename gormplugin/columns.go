package gormplugin

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// table is what the plugin knows of a guarded table. It is immutable once it is in the catalog.
type table struct {
	name    string         // as gorm writes it, without a schema before it
	schema  *schema.Schema // nil for a table that only WithColumn names
	columns []*column      // the guarded ones; fence, version, request and attempt are in it too
	uniques []unique       // declared by the model, the primary key not among them

	stock                            []*column
	fence, version, request, attempt *column

	pointers bool // a column's field is a pointer, so a copy of the struct shares it
	bounded  bool // a column is the bound of another
	rate     *conflictRate
	soldOut  *soldOut
}

// column is one guarded column.
type column struct {
	mark
	name     string        // in the database
	field    *schema.Field // nil where no model is known
	decimal  bool          // holds fractions
	scale    int           // digits behind its point, -1 where not known
	min, max limit

	plain, qualified any // clause.Column, boxed once
}

// limit is a bound of a stock column, ready to be written.
type limit struct {
	bound
	plain, qualified any
}

// unique is a unique index that a model declares.
type unique struct {
	name    string
	columns []string
	where   string // predicate of a partial one
}

// byColumn returns the guarded column of that name. SQL does not care for the case of a name, so neither does it.
func (t *table) byColumn(name string) *column {
	for _, c := range t.columns {
		if c.name == name {
			return c
		}
	}
	if t.schema != nil {
		if _, other := t.schema.FieldsByDBName[name]; other {
			return nil
		}
	}
	name = bareName(name)
	for _, c := range t.columns {
		if strings.EqualFold(c.name, name) {
			return c
		}
	}
	if t.schema != nil {
		if f := t.schema.LookUpField(name); f != nil {
			for _, c := range t.columns {
				if c.field == f {
					return c
				}
			}
		}
	}
	return nil
}

// isBoundedBy reports whether the named column is a bound of c.
func (c *column) isBoundedBy(name string) bool {
	name = bareName(name)
	return c.min.isColumn() && strings.EqualFold(c.min.column, name) || c.max.isColumn() && strings.EqualFold(c.max.column, name)
}

// isAuto reports whether gorm sets the column at each update by itself.
func (t *table) isAuto(name string) bool {
	if t.schema == nil {
		return false
	}
	f := t.schema.FieldsByDBName[name]
	return f != nil && f.AutoUpdateTime > 0
}

// bareName strips quotes and what stands before the last dot: "items"."Stock" is Stock.
func bareName(name string) string {
	name = strings.TrimSpace(name)
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[i+1:]
	}
	return strings.Trim(name, "`\"[] ")
}

// hasGuards reports whether a model has a guard tag.
func hasGuards(s *schema.Schema) bool {
	return slices.ContainsFunc(s.Fields, func(f *schema.Field) bool { return f.Tag.Get(tagKey) != "" })
}

// newTable reads a model's guard tags and adds what WithColumn says of its table. It returns nil for a model without any.
func newTable(dialect string, s *schema.Schema, marks []tableMark) (*table, error) {
	t := &table{name: bareName(s.Table), schema: s, rate: &conflictRate{}, soldOut: &soldOut{}}
	var errs []error
	for _, f := range s.Fields {
		text, ok := f.Tag.Lookup(tagKey)
		if !ok {
			continue
		}
		// Of two fields for one column gorm reads and writes one only; the tag of either marks the column.
		if winner := s.FieldsByDBName[f.DBName]; winner != nil && winner != f {
			if _, tagged := winner.Tag.Lookup(tagKey); tagged {
				continue
			}
			f = winner
		}
		m, err := parseMark(text)
		if err == nil && f.DBName == "" {
			err = errors.New("the field is no column")
		}
		if err == nil {
			err = t.add(dialect, f.DBName, f, m)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.%s `guard:%q`: %w", s.Name, f.Name, text, err))
		}
	}
	for _, m := range marks {
		if !sameTable(m.table, s.Table) {
			continue
		}
		f := s.LookUpField(m.column)
		err := errors.New("the model has no such column")
		if f != nil && f.DBName != "" {
			err = t.add(dialect, f.DBName, f, m.mark)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("WithColumn(%q, %q) for model %s: %w", m.table, m.column, s.Name, err))
		}
	}
	if len(t.columns) == 0 && len(errs) == 0 {
		return nil, nil
	}
	errs = append(errs, t.finish()...)
	t.uniques = uniquesOf(s)
	for _, f := range s.Fields {
		behindPointer := slices.ContainsFunc(f.StructField.Index, func(i int) bool { return i < 0 })
		t.pointers = t.pointers || f.DBName != "" && (behindPointer || f.FieldType.Kind() == reflect.Pointer)
	}
	return t, errors.Join(errs...)
}

// bareTable makes a table that no model is known for, from what WithColumn says of it.
func bareTable(name string, marks []tableMark) (*table, error) {
	t := &table{name: bareName(name), rate: &conflictRate{}, soldOut: &soldOut{}}
	var errs []error
	for _, m := range marks {
		if m.table == name {
			if err := t.add("", m.column, nil, m.mark); err != nil {
				errs = append(errs, fmt.Errorf("WithColumn(%q, %q): %w", m.table, m.column, err))
			}
		}
	}
	errs = append(errs, t.finish()...)
	return t, errors.Join(errs...)
}

func (t *table) add(dialect, name string, f *schema.Field, m mark) error {
	c := &column{mark: m, name: name, field: f, scale: -1}
	if f != nil {
		if err := c.checkType(dialect); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(t.columns, func(o *column) bool { return strings.EqualFold(o.name, name) }) {
		return errors.New("the column is marked twice")
	}
	var slot **column
	switch m.kind {
	case kindStock:
		t.stock = append(t.stock, c)
	case kindFence:
		slot = &t.fence
	case kindVersion:
		slot = &t.version
	case kindRequest:
		slot = &t.request
	case kindAttempt:
		slot = &t.attempt
	}
	if slot != nil {
		if *slot != nil {
			return fmt.Errorf("a table has one %s column, and %s is one already", m.kind, (*slot).name)
		}
		*slot = c
	}
	c.plain = clause.Column{Name: name}
	c.qualified = clause.Column{Table: clause.CurrentTable, Name: name}
	t.columns = append(t.columns, c)
	return nil
}

// finish resolves the columns that marks name: bounds and the attempt.
func (t *table) finish() []error {
	var errs []error
	for _, c := range t.stock {
		for _, l := range []struct {
			to   *limit
			from bound
			key  string
		}{{&c.min, c.mark.min, "min"}, {&c.max, c.mark.max, "max"}} {
			l.to.bound = l.from
			if !l.from.isColumn() {
				continue
			}
			name, f, err := t.resolve(c.field, l.from.column)
			if err == nil && f != nil && numberClass(f) == notNumber {
				err = fmt.Errorf("column %s holds no number", name)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.%s: %s=%s: %w", t.name, c.name, l.key, l.from.column, err))
				continue
			}
			t.bounded = true
			l.to.column = name
			l.to.plain = clause.Column{Name: name}
			l.to.qualified = clause.Column{Table: clause.CurrentTable, Name: name}
		}
		if !c.decimal && c.field != nil && (!c.mark.min.number.isWhole() || !c.mark.max.number.isWhole()) {
			errs = append(errs, fmt.Errorf("%s.%s: a bound with a fraction on a column of whole numbers", t.name, c.name))
		}
	}
	if r := t.request; r != nil && r.attempt != "" {
		name, f, err := t.resolve(r.field, r.attempt)
		if err == nil {
			err = t.add("", name, f, mark{kind: kindAttempt})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: attempt=%s: %w", t.name, r.name, r.attempt, err))
		}
	}
	return errs
}

// resolve finds the column that a setting of a field names: by the name in the database or in Go, of the model or of the
// embedded struct that the field is in.
func (t *table) resolve(of *schema.Field, name string) (string, *schema.Field, error) {
	if t.schema == nil {
		return name, nil, nil
	}
	var f *schema.Field
	if of != nil && of.OwnerSchema != nil {
		f = of.OwnerSchema.LookUpField(name)
	}
	if f == nil {
		f = t.schema.LookUpField(name)
	}
	if f == nil || f.DBName == "" {
		return "", nil, errors.New("the model has no such column")
	}
	return f.DBName, f, nil
}

// checkType refuses column types on which the guard would not hold, or not exactly.
func (c *column) checkType(dialect string) error {
	class := numberClass(c.field)
	switch {
	case c.kind == kindRequest:
		if c.field.DataType != schema.String && !strings.Contains(strings.ToLower(string(c.field.DataType)), "char") && !strings.EqualFold(string(c.field.DataType), "text") {
			return fmt.Errorf("a request id is a text, not %s", c.field.DataType)
		}
	case class == notNumber:
		return fmt.Errorf("a %s column holds a number, not %s: text, floats and JSON compare or round wrongly; give a decimal type a `gorm:\"type:decimal(20,2)\"`", c.kind, c.field.DataType)
	case c.kind != kindStock && class != wholeNumber:
		return fmt.Errorf("a %s column holds whole numbers, not %s", c.kind, c.field.DataType)
	case class == fraction && dialect == dialectSQLite:
		return errors.New("SQLite keeps fractions as floats: use an integer of minor units, such as cents")
	}
	c.decimal = class == fraction
	if c.decimal {
		c.scale = scaleOf(c.field)
	}
	return nil
}

// scaleOf reads the scale of a decimal column: decimal(20,2) has two digits behind its point, decimal(20) none.
func scaleOf(f *schema.Field) int {
	_, args, ok := strings.Cut(string(f.DataType), "(")
	if !ok {
		if f.Scale > 0 {
			return f.Scale
		}
		return -1
	}
	args, _, _ = strings.Cut(args, ")")
	_, digits, ok := strings.Cut(args, ",")
	if !ok {
		return 0
	}
	scale, err := strconv.Atoi(strings.TrimSpace(digits))
	if err != nil {
		return -1
	}
	return scale
}

type numeric uint8

const (
	notNumber numeric = iota
	wholeNumber
	fraction
)

// numberClass judges a column's type: gorm's own, or the text of a type setting.
func numberClass(f *schema.Field) numeric {
	switch f.DataType {
	case schema.Int, schema.Uint:
		return wholeNumber
	case schema.Bool, schema.Float, schema.String, schema.Time, schema.Bytes, "":
		return notNumber
	}
	name := strings.ToLower(string(f.DataType))
	if i := strings.IndexFunc(name, func(r rune) bool { return r == '(' || r == ' ' }); i >= 0 {
		name = name[:i]
	}
	switch name {
	case "integer", "int", "bigint", "smallint", "mediumint", "tinyint", "int2", "int4", "int8", "unsigned":
		return wholeNumber
	case "decimal", "numeric", "dec", "fixed":
		return fraction
	}
	return notNumber
}

// uniquesOf lists the unique indexes that a model declares.
func uniquesOf(s *schema.Schema) []unique {
	var us []unique
	for _, idx := range s.ParseIndexes() {
		if idx.Class != "UNIQUE" {
			continue
		}
		u := unique{name: idx.Name, where: idx.Where}
		for _, f := range idx.Fields {
			if f.Field != nil && f.Expression == "" {
				u.columns = append(u.columns, f.DBName)
			} else {
				u.columns = append(u.columns, f.Expression)
			}
		}
		us = append(us, u)
	}
	constraints := s.ParseUniqueConstraints()
	for _, name := range slices.Sorted(maps.Keys(constraints)) {
		if f := constraints[name].Field; f.DBName != "" && !f.PrimaryKey {
			us = append(us, unique{name: name, columns: []string{f.DBName}})
		}
	}
	return us
}

// sameTable compares names of tables: "shop.items" is "items" to whoever names no schema.
func sameTable(a, b string) bool {
	if strings.ContainsRune(a, '.') && strings.ContainsRune(b, '.') {
		return strings.EqualFold(a, b)
	}
	return strings.EqualFold(bareName(a), bareName(b))
}
