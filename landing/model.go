package landing

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

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
	versioned                                 bool
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
	m.schema, m.versioned = s, marks.Version != ""
	var faults []error
	if marks.StrictFence {
		faults = append(faults, fmt.Errorf("landing: model %s has a strict fence, and orders land, are paid and are closed under no lock: leave strict out, or the fence", s.Name))
	}
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
		if typ := strings.ToLower(string(m.number.DataType)); m.number.FieldType.Kind() == reflect.String && !keepsText(typ) {
			faults = append(faults, fmt.Errorf("landing: model %s: column %s of type %s may write an order number otherwise than it is: make it a text", s.Name, m.number.DBName, typ))
		}
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
		_, number := state.value.(int)
		if err := m.status.Set(context.Background(), row, state.value); err != nil || number && m.status.IndirectFieldType.Kind() == reflect.String {
			return fmt.Errorf("landing: model %s: column %s cannot hold the state %s: give its values with WithStatus", m.schema.Name, m.status.DBName, state.name)
		}
		*state.to = plain(m.status, row)
		if _, zero := m.status.ValueOf(context.Background(), row.Elem()); zero && m.status.HasDefaultValue && !m.defaults(*state.to) {
			return fmt.Errorf("landing: model %s: the state %s is the zero value of column %s, which has another default: a row that is to be %s would get that one; drop the default, or number the states otherwise",
				m.schema.Name, state.name, m.status.DBName, strings.ToLower(state.name))
		}
	}
	if reflect.DeepEqual(m.unpaid, m.paid) || reflect.DeepEqual(m.paid, m.closed) || reflect.DeepEqual(m.unpaid, m.closed) {
		return fmt.Errorf("landing: model %s: the three states in column %s are not different", m.schema.Name, m.status.DBName)
	}
	return nil
}

// defaults reports whether a row gets this state where none is given.
func (m *orderModel) defaults(state any) bool {
	row := reflect.New(m.typ)
	text := strings.Trim(m.status.DefaultValue, "'")
	return m.status.Set(context.Background(), row, text) == nil && reflect.DeepEqual(plain(m.status, row), state)
}

// keepsText reports whether a column of this type gives back a text as it was written, blanks at its end apart.
func keepsText(typ string) bool {
	for _, kind := range []string{"string", "text", "char", "varchar", "nchar", "nvarchar", "bpchar", "tinytext", "mediumtext", "longtext", "citext", "clob"} {
		if strings.HasPrefix(typ, kind) {
			return true
		}
	}
	return false
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
