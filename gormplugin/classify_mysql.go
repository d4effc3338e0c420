package gormplugin

import (
	"reflect"
	"strconv"
	"strings"
)

// classifyMySQL knows the errors of MySQL and MariaDB by the driver's field Number, or by the driver's text around it.
func classifyMySQL(err error) dbError {
	number := mysqlNumber(err)
	if number == 0 {
		return dbError{}
	}
	found := dbError{class: mysqlClass(number), server: true}
	switch {
	case number == 1213 || number == 1020 || number == 1205 || number == 3101:
		found.endsTx = true
	case found.class == lost:
		found.server = false
	}
	if found.class == conflicting {
		found.reason = map[uint64]string{1213: "deadlock", 1205: "lock_wait", 3572: "lock_wait"}[number]
		if found.reason == "" {
			found.reason = "serialization"
		}
	}
	message := textField(err, "Message")
	if message == "" {
		message = err.Error()
	}
	switch number {
	case 1062, 1586, 1859: // the texts are localised, the key is the last token in quotes
		found.name = lastQuoted(message, '\'')
	case 3819: // Check constraint 'name' is violated.
		found.name = lastQuoted(message, '\'')
	case 4025: // CONSTRAINT `name` failed for `database`.`table`
		found.name = firstQuoted(message, '`')
	}
	return found
}

func mysqlClass(number uint64) class {
	switch number {
	case 1062, 1586, 1859:
		return uniqueViolation
	case 3819, 4025:
		return checkViolation
	case 1264, 1690:
		return outOfRange
	case 1213, 1020, 1205, 3572, // deadlock, row changed since last read, lock wait timeout, NOWAIT
		3101: // group replication rolled back at COMMIT
		return conflicting
	case 1040, 1203, 1226, 1053, 1290, 1836, 1792, 1047, // too many connections, shutdown, read-only, not in the cluster
		1317, 1969, 3024, 4031: // interrupted, or cut off by a timeout of the server
		return unavailable
	case 1927, 1180: // killed while it worked; an error in the middle of COMMIT
		return lost
	}
	return otherServer
}

// mysqlNumber returns the server's error number, 0 where err is not the driver's.
func mysqlNumber(err error) uint64 {
	if f := field(err, "Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
		return f.Uint()
	}
	rest, ok := strings.CutPrefix(err.Error(), "Error ") // "Error 1062 (23000): ..."
	if !ok {
		return 0
	}
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if !strings.HasPrefix(rest[len(digits):], ":") && !strings.HasPrefix(rest[len(digits):], " (") {
		return 0
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0
	}
	return number
}

// lastQuoted returns the last token in quotes: a duplicate's text quotes the value before it, and the value may hold
// anything, quotes included.
func lastQuoted(text string, quote byte) string {
	end := strings.LastIndexByte(text, quote)
	if end < 0 {
		return ""
	}
	start := strings.LastIndexByte(text[:end], quote)
	if start < 0 {
		return ""
	}
	return text[start+1 : end]
}

func firstQuoted(text string, quote byte) string {
	_, rest, ok := strings.Cut(text, string(quote))
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(rest, string(quote))
	if !ok {
		return ""
	}
	return name
}
