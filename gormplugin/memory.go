package gormplugin

import (
	"reflect"

	"gorm.io/gorm/schema"
)

// memory is a model as the caller set it, kept while a statement runs: gorm writes the values that it sends into the
// model, whether the database takes them or not.
type memory struct {
	one  kept   // most models are one struct, and cost no slice
	more []kept // elements of slices, and what pointers in them point to
}

// kept is one value and what it was.
type kept struct{ live, was reflect.Value }

// keep remembers a struct or the structs of a slice. Structs that cannot be written are left out: gorm cannot write them
// either.
func (m *memory) keep(v reflect.Value, s *schema.Schema, pointers bool) {
	if v.Kind() == reflect.Struct { // nearly always
		m.keepElement(v, s, pointers)
		return
	}
	elements(v, func(_ int, elem reflect.Value) { m.keepElement(elem, s, pointers) })
}

func (m *memory) keepElement(v reflect.Value, s *schema.Schema, pointers bool) {
	if !v.CanSet() {
		return
	}
	if k := keepValue(v); m.one.live.IsValid() {
		m.more = append(m.more, k)
	} else {
		m.one = k
	}
	if pointers {
		m.keepPointers(v, s)
	}
}

// keepPointers remembers what the pointers of a struct point to, as far as they are columns or embedded structs: gorm
// writes through them. Pointers to related models are left alone.
func (m *memory) keepPointers(v reflect.Value, s *schema.Schema) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		if _, related := s.Relationships.Relations[f.Name]; related {
			continue
		}
		fv := v.Field(i)
		if fv.Kind() == reflect.Pointer && !fv.IsNil() {
			m.more = append(m.more, keepValue(fv.Elem()))
			fv = fv.Elem()
		}
		if f.Anonymous && fv.Kind() == reflect.Struct {
			m.keepPointers(fv, s)
		}
	}
}

// each calls visit for each value.
func (m *memory) each(visit func(kept)) {
	if m.one.live.IsValid() {
		visit(m.one)
	}
	for _, k := range m.more {
		visit(k)
	}
}

func keepValue(v reflect.Value) kept {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	return kept{v, was}
}

// restore puts the model back. What has not changed is not written, so that a model which several goroutines share, each
// with a statement that changes nothing in it, stays free of races.
func (m *memory) restore() { m.each(kept.restore) }

func (k kept) restore() {
	if k.live.Kind() != reflect.Struct {
		if !reflect.DeepEqual(k.live.Interface(), k.was.Interface()) {
			k.live.Set(k.was)
		}
		return
	}
	t := k.live.Type()
	exported := false
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		exported = true
		live, was := k.live.Field(i), k.was.Field(i)
		if !reflect.DeepEqual(live.Interface(), was.Interface()) {
			live.Set(was)
		}
	}
	if !exported && !reflect.DeepEqual(k.live.Interface(), k.was.Interface()) {
		k.live.Set(k.was) // time.Time and the like
	}
}
