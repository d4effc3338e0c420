package landing

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// transaction runs fn in a transaction of its own, which ends after a while: a connection that never answers must not hold
// what waits behind it for ever. The error is then a tooLong, after which the same can be tried again.
func (e *engine) transaction(ctx context.Context, fn func(tx *gorm.DB) error) error {
	limited, cancel := context.WithTimeout(ctx, e.pace.transact)
	defer cancel()
	err := gormplugin.Retry(limited, e.db, fn)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return &tooLong{err}
	}
	return err
}

// tooLong is the error of a transaction that has reached its limit: somebody keeps a row locked, or SQL does not answer.
type tooLong struct{ error }

func (e *tooLong) Unwrap() error { return e.error }

func isTooLong(err error) bool {
	var slow *tooLong
	return errors.As(err, &slow)
}

// row makes the row of an accepted order.
func (e *engine) row(tx *gorm.DB, entry *stock.Entry) (row orderRow, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{sentinel: ErrInvalid, reason: "the function that makes a row of an order panicked", cause: &panicked{p}}
		}
	}()
	if e.orders.units == nil && entry.Units != 1 {
		return orderRow{}, fail(ErrInvalid, "an order of several units, and the model has no column for them: add one, or name yours with WithColumns")
	}
	r := orderRow{e.orders, e.newOrder(*entry)}
	kept := []struct {
		f    *schema.Field
		want string
		same bool // else a service may know it by another id than Redis does
	}{
		{e.orders.request, entry.RequestID, true},
		{e.orders.number, entry.Order, true},
		{e.orders.item, entry.Item, true},
		{e.orders.units, strconv.FormatInt(entry.Units, 10), true}, // Close puts back what the row says
		{e.orders.variant, entry.Variant, false},
		{e.orders.activity, entry.Activity, false},
		{e.orders.user, entry.User, false},
		{e.orders.nth, strconv.Itoa(entry.Nth), false},
	}
	for _, k := range kept {
		if k.f == nil || k.want == "" {
			continue
		}
		if _, zero := k.f.ValueOf(tx.Statement.Context, r.v.Elem()); zero {
			if err := r.set(k.f, k.want); err != nil && k.same {
				return orderRow{}, err
			}
		}
	}
	if _, zero := e.orders.status.ValueOf(tx.Statement.Context, r.v.Elem()); zero {
		if err := r.set(e.orders.status, e.orders.unpaid); err != nil {
			return orderRow{}, err
		}
	}
	if err := r.hooks(tx); err != nil {
		return orderRow{}, err
	}
	for _, k := range kept {
		if k.same && k.f != nil && r.text(k.f) != k.want { // of an order number, a copy would take the row for another order's
			return orderRow{}, fail(ErrInvalid, "the row made for an order has another value than the order in column "+k.f.DBName+", or the column does not keep it as it is")
		}
	}
	if state := r.state(); state != stateUnpaid && state != statePaid {
		return orderRow{}, fail(ErrInvalid, "the function made a row that is neither unpaid nor paid")
	}
	return r, nil
}

// find reads the order with this value in a column, from the database that is written to.
func (e *engine) find(tx *gorm.DB, by *schema.Field, value string) (orderRow, bool, error) {
	r := e.orders.newRow()
	res := tx.Session(&gorm.Session{}).Unscoped().Set("gorm:db_resolver:write", struct{}{}).Where(is(by, value)).Limit(1).Find(r.any())
	return r, res.Error == nil && res.RowsAffected > 0, res.Error
}

// findAll is find for many values, by the value.
func (e *engine) findAll(tx *gorm.DB, by *schema.Field, values []string) (map[string]orderRow, error) {
	rows := reflect.New(reflect.SliceOf(e.orders.typ))
	err := tx.Session(&gorm.Session{}).Unscoped().Set("gorm:db_resolver:write", struct{}{}).Where(in(by, values)).Find(rows.Interface()).Error
	found := map[string]orderRow{}
	for i := range rows.Elem().Len() {
		r := orderRow{e.orders, rows.Elem().Index(i).Addr()}
		found[r.text(by)] = r
		if len(values) == 1 { // a column may write a value otherwise than it was asked for: a UUID, or letters of another case
			found[values[0]] = r
		}
	}
	return found, err
}

// move moves orders from unpaid to another state, and returns how many it was this call that did. Whoever moved the row
// decides what happens to its units.
func (e *engine) move(tx *gorm.DB, by *schema.Field, values []string, to any, why stock.Reason) (int64, error) {
	set := map[string]any{e.orders.status.DBName: to}
	if why != "" && e.orders.reason != nil {
		set[e.orders.reason.DBName] = string(why)
	}
	if err := touch(tx, e.orders.schema, set); err != nil {
		return 0, err
	}
	clauses := []clause.Expression{gormplugin.From(e.orders.status.DBName, e.orders.unpaid)}
	if e.orders.versioned {
		clauses = append(clauses, gormplugin.AnyVersion())
	}
	res := tx.Session(&gorm.Session{SkipHooks: true}).Unscoped().Model(e.orders.newRow().any()).Where(in(by, values)).Clauses(clauses...).Updates(set)
	if errors.Is(res.Error, gormplugin.ErrNotFound) || errors.Is(res.Error, gormplugin.ErrVersionConflict) {
		return 0, nil
	}
	return res.RowsAffected, res.Error
}

// giveBack puts units back on the items' rows, deleted softly or not, in the order in which gormplugin.TakeAll takes them: who
// takes and who gives back must not wait for each other. An item whose row is gone has nowhere to put them.
func (e *engine) giveBack(tx *gorm.DB, units map[string]int64) error {
	items := slices.Collect(maps.Keys(units))
	rows := make(map[string]any, len(items))
	for _, item := range items {
		var err error
		if rows[item], err = e.items.row(item); err != nil {
			return err
		}
	}
	slices.SortFunc(items, func(a, b string) int { return e.items.compare(rows[a], rows[b]) })
	for _, item := range items {
		set := map[string]any{e.items.stock.DBName: gormplugin.Add(units[item])}
		if err := touch(tx, e.items.schema, set); err != nil {
			return err
		}
		res := tx.Session(&gorm.Session{SkipHooks: true}).Unscoped().Model(rows[item]).Clauses(gormplugin.Expect(0)).Updates(set)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			e.tel.warn(tx.Statement.Context, "units go back in Redis only: their item has no row", gormplugin.ErrNotFound)
		}
	}
	return nil
}

// touch adds the times of an update, which gorm keeps only where hooks run: those of the service would see an empty row.
func touch(tx *gorm.DB, s *schema.Schema, set map[string]any) error {
	row := reflect.New(s.ModelType)
	for _, f := range s.FieldsByDBName {
		if f.AutoUpdateTime == 0 {
			continue
		}
		if err := f.Set(tx.Statement.Context, row, tx.NowFunc()); err != nil {
			return err
		}
		set[f.DBName] = plain(f, row)
	}
	return nil
}

// compare orders rows by their key: numbers as numbers, all else by its bytes.
func (m *itemModel) compare(a, b any) int {
	x, y := plain(m.key, reflect.ValueOf(a)), plain(m.key, reflect.ValueOf(b))
	v, w := reflect.ValueOf(x), reflect.ValueOf(y)
	switch {
	case v.CanInt() && w.CanInt():
		return cmp.Compare(v.Int(), w.Int())
	case v.CanUint() && w.CanUint():
		return cmp.Compare(v.Uint(), w.Uint())
	}
	return strings.Compare(textOf(x), textOf(y))
}

// row returns a pointer to an Item that has the primary key and nothing else.
func (m *itemModel) row(item string) (any, error) {
	row := reflect.New(m.typ)
	if err := m.key.Set(context.Background(), row, item); err != nil {
		return nil, &Error{sentinel: ErrInvalid, reason: "the item's id is none of its model", cause: err}
	}
	if _, zero := m.key.ValueOf(context.Background(), row.Elem()); zero {
		return nil, fail(ErrInvalid, "the item's id is none of its model")
	}
	return row.Interface(), nil
}

func in[T any](f *schema.Field, values []T) clause.Expression {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return clause.IN{Column: column(f), Values: list}
}

func is(f *schema.Field, value any) clause.Expression {
	return clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: value}
}
