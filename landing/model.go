package landing

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// orderModel is what is known of the service's order model. Fields that it need not have are nil.
type orderModel struct {
	typ    reflect.Type
	schema *schema.Schema

	request, number, status                   *schema.Field
	reason                                    *schema.Field // nil: not kept
	item, variant, activity, user, units, nth *schema.Field // nil: not there
	unpaid, paid, closed                      any           // as the status field holds them
	ownIndexes                                map[string]bool
}

// itemModel is what is known of the service's item model.
type itemModel struct {
	typ    reflect.Type
	schema *schema.Schema
	key    *schema.Field // the primary key
	stock  *schema.Field
}

// newOrderModel reads the order model. Its error says everything that is wrong with it, and what to write.
func newOrderModel(db *gorm.DB, typ reflect.Type, cfg *config) (*orderModel, error) {
	m := &orderModel{typ: typ, ownIndexes: map[string]bool{}}
	s, marks, err := parse(db, typ)
	if err != nil {
		return nil, err
	}
	m.schema = s
	var faults []error
	if m.request = s.LookUpField(marks.Request); marks.Request == "" || m.request == nil {
		faults = append(faults, fmt.Errorf("landing: model %s has no request column: mark one with guard:\"request\", under a unique index of its own", s.Name))
	}
	for _, c := range []struct {
		to          **schema.Field
		name, usual string
		missing     string // what to do where it is required
	}{
		{&m.number, cfg.columns.Order, "order_no", "add one for stock.Result.Order, under a unique index, or name yours with WithColumns"},
		{&m.status, cfg.status.Column, "status", "a refused order is kept as a closed row, else a late copy would land it: add one (0 unpaid, 1 paid, 2 closed), or name yours with WithStatus"},
		{&m.reason, cfg.status.Reason, "close_reason", ""},
		{&m.item, cfg.columns.Item, "item_id", ""},
		{&m.variant, cfg.columns.Variant, "variant_id", ""},
		{&m.activity, cfg.columns.Activity, "activity_id", ""},
		{&m.user, cfg.columns.User, "user_id", ""},
		{&m.units, cfg.columns.Units, "units", ""},
		{&m.nth, cfg.columns.Nth, "nth", ""},
	} {
		name := c.name
		if name == "" {
			name = c.usual
		}
		f := s.LookUpField(name)
		switch {
		case f != nil && f.DBName != "":
			*c.to = f
		case c.name != "":
			faults = append(faults, fmt.Errorf("landing: model %s has no column %q", s.Name, c.name))
		case c.missing != "":
			faults = append(faults, fmt.Errorf("landing: model %s has no column %q: %s", s.Name, name, c.missing))
		}
	}
	if m.status != nil {
		faults = append(faults, m.readStates(cfg.status))
	}
	if m.number != nil {
		for _, idx := range s.ParseIndexes() {
			if idx.Class == "UNIQUE" && len(idx.Fields) == 1 && idx.Fields[0].Field == m.number {
				m.ownIndexes[idx.Name] = true
			}
		}
		for name, constraint := range s.ParseUniqueConstraints() {
			if constraint.Field == m.number {
				m.ownIndexes[name] = true
			}
		}
		if m.number.PrimaryKey {
			m.ownIndexes["PRIMARY"], m.ownIndexes[s.Table+"_pkey"] = true, true
		}
	}
	return m, errors.Join(faults...)
}

// readStates turns the three states into what the status field holds.
func (m *orderModel) readStates(s Status) error {
	for _, state := range []struct {
		name  string
		value any
		to    *any
	}{{"Unpaid", s.Unpaid, &m.unpaid}, {"Paid", s.Paid, &m.paid}, {"Closed", s.Closed, &m.closed}} {
		row := reflect.New(m.typ)
		if err := m.status.Set(context.Background(), row, state.value); err != nil {
			return fmt.Errorf("landing: model %s: column %s cannot hold the state %s: give its values with WithStatus", m.schema.Name, m.status.DBName, state.name)
		}
		*state.to = plain(m.status, row)
	}
	if reflect.DeepEqual(m.unpaid, m.paid) || reflect.DeepEqual(m.paid, m.closed) || reflect.DeepEqual(m.unpaid, m.closed) {
		return fmt.Errorf("landing: model %s: the three states in column %s are not different", m.schema.Name, m.status.DBName)
	}
	return nil
}

// newItemModel reads the item model.
func newItemModel(db *gorm.DB, typ reflect.Type) (*itemModel, error) {
	s, marks, err := parse(db, typ)
	if err != nil {
		return nil, err
	}
	m := &itemModel{typ: typ, schema: s}
	var faults []error
	if len(marks.Stock) == 1 {
		m.stock = s.LookUpField(marks.Stock[0])
	}
	if m.stock == nil {
		faults = append(faults, fmt.Errorf("landing: model %s has %d stock columns: mark the one that is sold with guard:\"stock,min=0\"", s.Name, len(marks.Stock)))
	}
	if len(s.PrimaryFields) == 1 {
		m.key = s.PrimaryFields[0]
	} else {
		faults = append(faults, fmt.Errorf("landing: model %s has a primary key of %d columns: an item is found by one, the id that stock.Sale.Item has", s.Name, len(s.PrimaryFields)))
	}
	return m, errors.Join(faults...)
}

func parse(db *gorm.DB, typ reflect.Type) (*schema.Schema, gormplugin.Marks, error) {
	if typ.Kind() != reflect.Struct {
		return nil, gormplugin.Marks{}, fmt.Errorf("landing: %s is no struct: give the models themselves, not pointers to them", typ)
	}
	model := reflect.New(typ).Interface()
	stmt := &gorm.Statement{DB: db}
	if err := stmt.Parse(model); err != nil {
		return nil, gormplugin.Marks{}, fmt.Errorf("landing: model %s: %w", typ, err)
	}
	marks, err := gormplugin.MarksOf(db, model)
	if err != nil {
		return nil, gormplugin.Marks{}, fmt.Errorf("landing: model %s: %w", typ, err)
	}
	return stmt.Schema, marks, nil
}
