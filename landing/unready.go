package landing

import (
	"errors"
	"reflect"
	"slices"
	"strings"
)

// unready reports whether a database refuses a statement for what it is and not for what is in it: a table, a column or a right
// is missing, as in the middle of a migration. No driver is imported: PostgreSQL is known by the method SQLState, MySQL by the
// field Number, SQLite by its text.
func unready(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		switch state := postgres.SQLState(); state {
		case "42P01", "42703", "42501", "3D000", "3F000": // no table, no column, no right, no database, no schema
			return true
		default:
			return strings.HasPrefix(state, "28") // not let in
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e); ok {
			return slices.Contains([]uint64{1044, 1045, 1049, 1054, 1142, 1143, 1146}, n)
		}
		if list, ok := e.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(list.Unwrap(), unready)
		}
	}
	text := err.Error()
	return strings.Contains(text, "no such table") || strings.Contains(text, "no such column")
}

// number is the field Number of an error of MySQL's driver.
func number(err error) (uint64, bool) {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct || v.Type().Name() != "MySQLError" {
		return 0, false
	}
	f := v.FieldByName("Number")
	if !f.IsValid() || !f.CanUint() {
		return 0, false
	}
	return f.Uint(), true
}
