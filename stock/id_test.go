package stock

import (
	"strings"
	"testing"
)

type sku string
type userID int64

func TestIDsAreStringsAndIntegers(t *testing.T) {
	for _, tt := range []struct {
		id   ID
		want string
		ok   bool
	}{
		{nil, "", true},
		{"a:b", "a:b", true},
		{7, "7", true},
		{int64(-7), "-7", true},
		{uint8(7), "7", true},
		{uint64(1<<64 - 1), "18446744073709551615", true},
		{sku("x"), "x", true},
		{userID(42), "42", true},
		{7.0, "", false},
		{[]byte("x"), "", false},
		{true, "", false},
		{struct{}{}, "", false},
	} {
		if got, ok := idText(tt.id); got != tt.want || ok != tt.ok {
			t.Errorf("idText(%#v) = %q, %v; want %q, %v", tt.id, got, ok, tt.want, tt.ok)
		}
	}
}

func TestWrongIDsAreRefused(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter()
	e.warm(c, Sale{Units: 1})
	long := strings.Repeat("x", maxID+1)
	good := e.order(1)
	for name, tt := range map[string]struct {
		change func(o *Order)
		typ    string
	}{
		"item of a wrong type": {func(o *Order) { o.Item = 1.5 }, "misuse"},
		"no item":              {func(o *Order) { o.Item = nil }, "invalid"},
		"empty item":           {func(o *Order) { o.Item = "" }, "invalid"},
		"no user":              {func(o *Order) { o.User = nil }, "invalid"},
		"long user":            {func(o *Order) { o.User = long }, "invalid"},
		"long variant":         {func(o *Order) { o.Variant = long }, "invalid"},
		"long activity":        {func(o *Order) { o.Activity = long }, "invalid"},
		"long order id":        {func(o *Order) { o.ID = long }, "invalid"},
		"long request id":      {func(o *Order) { o.RequestID = long }, "invalid"},
		"no request id":        {func(o *Order) { o.RequestID = "" }, "misuse"},
		"blank at the end":     {func(o *Order) { o.RequestID = "x " }, "invalid"},
		"blank at the front":   {func(o *Order) { o.User = "\u00a0x" }, "invalid"},
		"a zero byte":          {func(o *Order) { o.RequestID = "x\x00y" }, "invalid"},
		"not UTF-8":            {func(o *Order) { o.Item = "x\xff" }, "invalid"},
		"a line feed":          {func(o *Order) { o.Variant = "größe\n1" }, "invalid"},
	} {
		o := good
		tt.change(&o)
		e.unchanged(name, func() {
			if err := e.refused(c, o, ErrInvalid); err.ErrorType() != tt.typ {
				t.Errorf("%s: type %q, want %q", name, err.ErrorType(), tt.typ)
			}
		})
	}
}
