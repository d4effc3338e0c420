package landing

import (
	"errors"
	"reflect"
	"slices"
	"strings"
)

// unready reports whether a database refuses a statement for what it is and not for what is in it: a table, a column or a right
// is missing, as in the middle of a migration, or its disk is full. No driver is imported: PostgreSQL is known by the method
// SQLState, MySQL by the field Number, SQLite by its text.
func unready(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		switch state := postgres.SQLState(); state {
		case "42P01", "42703", "42501", "3D000", "3F000": // no table, no column, no right, no database, no schema
			return true
		default:
			return strings.HasPrefix(state, "28") || strings.HasPrefix(state, "58") // not let in; its disk
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e); ok {
			return slices.Contains([]uint64{1044, 1045, 1049, 1054, 1142, 1143, 1146, 1021, 1114}, n) // the last two: no room
		}
		if list, ok := e.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(list.Unwrap(), unready)
		}
	}
	text := err.Error()
	return strings.Contains(text, "no such table") || strings.Contains(text, "no such column")
}

// refusesRow reports whether a database refuses a row for what is in it: a constraint, a trigger, or a value that its column does
// not take.
func refusesRow(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		state := postgres.SQLState()
		return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") || state == "44000" || state == "P0001" // data, constraint, view, trigger
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e); ok {
			return slices.Contains([]uint64{
				1048, 1364, 1264, 1690, 1265, 1292, 1366, 1406, 1411, 3140, // NULL, out of range, no value of its column, too long
				1216, 1217, 1451, 1452, 1369, 1526, 1644, 3819, 4025, // foreign key, view, partition, trigger, check
			}, n)
		}
		if coded, ok := e.(interface{ Code() int }); ok && slices.Contains([]int{18, 19, 20}, coded.Code()&0xff) { // too big, constraint, mismatch
			return true
		}
		if list, ok := e.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(list.Unwrap(), refusesRow)
		}
	}
	return strings.Contains(err.Error(), "constraint failed")
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
