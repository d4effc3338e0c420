package landing

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/schema"

	"github.com/holdfast-go/holdfast/stock"
)

// state is an order's state, whatever the service's model calls it.
type state uint8

const (
	stateOther state = iota // none of the three: not ours to touch
	stateUnpaid
	statePaid
	stateClosed
)

// orderRow is one row of the service's order model: a pointer to its struct, with what is read from it by column.
type orderRow struct {
	m *orderModel
	v reflect.Value // *Order
}

func (m *orderModel) newRow() orderRow { return orderRow{m, reflect.New(m.typ)} }

// any returns the pointer that gorm wants.
func (r orderRow) any() any { return r.v.Interface() }

func (r orderRow) text(f *schema.Field) string {
	if f == nil {
		return ""
	}
	return textOf(plain(f, r.v))
}

// number is the order's number, requestID that of its request.
func (r orderRow) number() string    { return r.text(r.m.number) }
func (r orderRow) requestID() string { return r.text(r.m.request) }
func (r orderRow) item() string      { return r.text(r.m.item) }

// units is how many units the order has: 1 where the model has no such column.
func (r orderRow) units() int64 {
	if r.m.units == nil {
		return 1
	}
	n, err := strconv.ParseInt(r.text(r.m.units), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (r orderRow) state() state {
	v := plain(r.m.status, r.v)
	switch {
	case reflect.DeepEqual(v, r.m.unpaid):
		return stateUnpaid
	case reflect.DeepEqual(v, r.m.paid):
		return statePaid
	case reflect.DeepEqual(v, r.m.closed):
		return stateClosed
	}
	return stateOther
}

// reason is why the order was closed. A row that does not tell, or tells in words of its own, was closed by somebody.
func (r orderRow) reason() stock.Reason {
	why := stock.Reason(r.text(r.m.reason))
	if returns(why) || why == stock.Insufficient {
		return why
	}
	return stock.Operator
}

// returns reports whether units that are released for this reason go back on sale.
func returns(why stock.Reason) bool {
	switch why {
	case stock.Unpaid, stock.Failed, stock.Operator, stock.Duplicate, stock.LimitReached:
		return true
	}
	return false
}

// close makes a row that is to be kept closed.
func (r orderRow) close(why stock.Reason) error {
	if err := r.set(r.m.status, r.m.closed); err != nil || r.m.reason == nil {
		return err
	}
	return r.set(r.m.reason, string(why))
}

// hooks runs those of the service's hooks that may fill in columns of a new row.
func (r orderRow) hooks(tx *gorm.DB) error {
	tx = tx.Session(&gorm.Session{NewDB: true})
	if hook, ok := r.any().(callbacks.BeforeSaveInterface); ok {
		if err := hook.BeforeSave(tx); err != nil {
			return &Error{sentinel: ErrInvalid, reason: "BeforeSave refused a row", cause: err}
		}
	}
	if hook, ok := r.any().(callbacks.BeforeCreateInterface); ok {
		if err := hook.BeforeCreate(tx); err != nil {
			return &Error{sentinel: ErrInvalid, reason: "BeforeCreate refused a row", cause: err}
		}
	}
	return nil
}

func (r orderRow) set(f *schema.Field, value any) error {
	if err := f.Set(context.Background(), r.v, value); err != nil {
		return &Error{sentinel: ErrInvalid, reason: "column " + f.DBName + " cannot hold what the order says", cause: err}
	}
	return nil
}

// entry is the order as it was accepted, as far as the row tells; ok is false where the model lacks a column that is needed
// to name the order's keys in Redis.
func (r orderRow) entry() (e stock.Entry, ok bool) {
	if r.m.item == nil || r.m.user == nil {
		return stock.Entry{}, false
	}
	e = stock.Entry{
		Order: r.number(), RequestID: r.requestID(), Item: r.item(), Variant: r.text(r.m.variant), Activity: r.text(r.m.activity),
		User: r.text(r.m.user), Units: r.units(), Nth: 1,
	}
	if n, err := strconv.Atoi(r.text(r.m.nth)); err == nil {
		e.Nth = n
	}
	return e, e.Item != "" && e.Units > 0
}

// orderOf is what the Counter was asked for: the argument of stock.Of.
func orderOf(e *stock.Entry) stock.Order {
	return stock.Order{
		RequestID: e.RequestID, Item: e.Item, Variant: e.Variant, Activity: e.Activity, User: e.User, Units: e.Units,
	}
}

// plain returns the value of a field without pointers; nil for NULL.
func plain(f *schema.Field, row reflect.Value) any {
	v := reflect.Indirect(f.ReflectValueOf(context.Background(), reflect.Indirect(row)))
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}

// textOf writes an id as package stock does: a text as it is, an integer in decimal digits.
func textOf(v any) string {
	if v == nil {
		return ""
	}
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return strconv.FormatInt(r.Int(), 10)
	case r.CanUint():
		return strconv.FormatUint(r.Uint(), 10)
	case r.Kind() == reflect.String:
		return strings.TrimRight(r.String(), " ")
	}
	if valuer, ok := v.(driver.Valuer); ok { // sql.NullString and the like, UUIDs
		inner, err := valuer.Value()
		if err != nil || inner == nil {
			return ""
		}
		if b, ok := inner.([]byte); ok {
			return string(b)
		}
		return fmt.Sprint(inner)
	}
	return fmt.Sprint(v)
}
