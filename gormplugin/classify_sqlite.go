package gormplugin

import (
	"reflect"
	"strings"
)

// classifySQLite knows SQLite's result codes by the method Code or the field ExtendedCode, and where a driver has neither
// by texts, which SQLite does not translate.
func classifySQLite(err error) dbError {
	code, coded := sqliteCode(err)
	if !coded && wraps(err) {
		return dbError{}
	}
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "UNIQUE constraint failed: "); ok {
		found := dbError{class: uniqueViolation, server: true}
		found.name, found.table, found.columns = sqliteUnique(rest)
		return found
	}
	if _, rest, ok := strings.Cut(text, "CHECK constraint failed: "); ok {
		return dbError{class: checkViolation, server: true, name: withoutCode(rest)}
	}
	if !coded {
		switch {
		case strings.HasSuffix(text, "database is locked"), strings.HasSuffix(text, "database table is locked"):
			return dbError{class: conflicting, reason: "lock_wait", server: true}
		case strings.Contains(text, "no transaction is active"):
			return dbError{class: deadTx, server: true}
		default:
			return dbError{}
		}
	}
	found := dbError{class: otherServer, server: true}
	switch primary := code & 0xff; primary {
	case 5, 6: // busy, locked; and their extended codes 261, 262, 517, 773
		found.class, found.reason = conflicting, "lock_wait"
		if code == 517 { // the snapshot is old: waiting would not have helped
			found.reason = "serialization"
		}
	case 7, 9, 10, 13: // no memory, interrupted, I/O error, full: may have rolled back all, later statements would autocommit
		found.class, found.endsTx = unavailable, true
	case 3, 8, 14, 26: // no permission, read-only, cannot open, not a database
		found.class = unavailable
	case 1:
		if strings.Contains(text, "no transaction is active") {
			found.class = deadTx
		}
	}
	return found
}

func sqliteCode(err error) (int64, bool) {
	if coded, ok := err.(interface{ Code() int }); ok {
		return int64(coded.Code()), true
	}
	if f := field(err, "ExtendedCode"); f.IsValid() && f.Kind() == reflect.Int {
		return f.Int(), true
	}
	return 0, false
}

// sqliteUnique reads "orders.user_id, orders.item_id (2067)" or "index 'uk_live' (2067)".
func sqliteUnique(text string) (name, table string, columns []string) {
	text = withoutCode(text)
	if quoted, ok := strings.CutPrefix(text, "index '"); ok {
		return strings.ReplaceAll(strings.TrimSuffix(quoted, "'"), "''", "'"), "", nil
	}
	for _, part := range strings.Split(text, ", ") {
		if t, column, ok := strings.Cut(part, "."); ok {
			table = t
			columns = append(columns, column)
		}
	}
	return "", table, columns
}

// withoutCode cuts the result code that some drivers put behind SQLite's text.
func withoutCode(text string) string {
	if i := strings.LastIndex(text, " ("); i > 0 && strings.HasSuffix(text, ")") {
		if digits := text[i+2 : len(text)-1]; digits != "" && strings.Trim(digits, "0123456789") == "" {
			return text[:i]
		}
	}
	return text
}
