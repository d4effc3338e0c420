package gormplugin

import (
	"database/sql/driver"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// number is an exact decimal: almost always an int64, else a text that is a plain decimal such as "-12.50". Floats have no
// place here: 9007199254740993.11 - 0.01 is wrong in any of them.
type number struct {
	i    int64
	text string // "" for an integer
}

func whole(n int64) number { return number{i: n} }

func (n number) String() string {
	if n.text != "" {
		return n.text
	}
	return strconv.FormatInt(n.i, 10)
}

func (n number) isWhole() bool { return n.text == "" }

func (n number) rat() *big.Rat {
	if n.text == "" {
		return new(big.Rat).SetInt64(n.i)
	}
	r, _ := new(big.Rat).SetString(n.text)
	return r
}

func (n number) sign() int { return n.rat().Sign() }

func (n number) less(o number) bool {
	if n.text == "" && o.text == "" {
		return n.i < o.i
	}
	return n.rat().Cmp(o.rat()) < 0
}

// add returns n + o, exactly.
func (n number) add(o number) number {
	if sum := n.i + o.i; n.text == "" && o.text == "" && (sum > n.i) == (o.i > 0) {
		return number{i: sum}
	}
	return fromRat(new(big.Rat).Add(n.rat(), o.rat()))
}

// sub returns n - o, exactly.
func (n number) sub(o number) number {
	if diff := n.i - o.i; n.text == "" && o.text == "" && (diff < n.i) == (o.i > 0) {
		return number{i: diff}
	}
	return fromRat(new(big.Rat).Sub(n.rat(), o.rat()))
}

func fromRat(r *big.Rat) number {
	if r.IsInt() && r.Num().IsInt64() {
		return number{i: r.Num().Int64()}
	}
	digits, _ := r.FloatPrec() // both operands are decimals, so it is exact
	return number{text: r.FloatString(digits)}
}

// parseNumber reads a plain decimal: sign, digits, point, digits. Exponents, hex, fractions and "NaN" are no numbers here.
func parseNumber(text string) (number, bool) {
	digits := 0
	for i, c := range text {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case (c == '-' || c == '+') && i == 0:
		case c == '.' && strings.Count(text, ".") == 1:
		default:
			return number{}, false
		}
	}
	if digits == 0 || digits > 65 {
		return number{}, false
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return number{i: i}, true
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return number{}, false
	}
	return fromRat(r), true
}

// numberOf returns the exact number that a Go value is: an integer of any type, a text, bytes, or a Valuer or pointer that
// gives one of these. A float is none.
func numberOf(v any) (number, bool) {
	switch v := v.(type) {
	case nil:
		return number{}, false
	case int:
		return whole(int64(v)), true
	case int64:
		return whole(v), true
	case string:
		return parseNumber(v)
	case []byte:
		return parseNumber(string(v))
	case driver.Valuer:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return number{}, false
		}
		inner, err := v.Value()
		if _, again := inner.(driver.Valuer); err != nil || again {
			return number{}, false
		}
		return numberOf(inner)
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer:
		if rv.IsNil() {
			return number{}, false
		}
		return numberOf(rv.Elem().Interface())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return whole(rv.Int()), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return parseNumber(strconv.FormatUint(rv.Uint(), 10))
	case reflect.String:
		return parseNumber(rv.String())
	}
	return number{}, false
}
