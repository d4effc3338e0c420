package gormplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
)

// The dialectors that the plugin knows, by their Name.
const (
	dialectPostgres = "postgres"
	dialectMySQL    = "mysql" // MariaDB too
	dialectSQLite   = "sqlite"
)

// class is what a database error means to us, whichever database said it.
type class uint8

const (
	notOurs         class = iota // no database error at all
	otherServer                  // a server's answer that stays the driver's error
	uniqueViolation              // a unique index refused the row
	checkViolation               // a check constraint did
	outOfRange                   // a number left its type
	conflicting                  // serialization failure, deadlock, lock wait: worth a repeat
	deadTx                       // the transaction was over before the statement
	unavailable                  // refused, or gone before it was sent: not done, for certain
	lost                         // the reply was lost: done or not
)

// dbError is what could be learned from a driver's error.
type dbError struct {
	class   class
	err     error    // the driver's error itself, without what wraps it
	reason  string   // in a word, for conflicts
	server  bool     // the server answered, so it is up and the statement was judged
	aborted bool     // deadTx: the database knows the transaction as one that can only be rolled back
	endsTx  bool     // the database has, or may have, rolled the whole transaction back
	name    string   // constraint or index
	table   string   // "" where the database does not say
	columns []string // of the unique index, where the database names these and not the index
}

// classify looks for a database error in err's tree. An error of this package ends the search: it was judged already.
//
// No driver is imported: PostgreSQL is known by the method SQLState, MySQL by the field Number, SQLite by the method Code
// or by texts, and all three may be wrapped to any depth.
func classify(dialect string, err error) dbError {
	var found dbError
	walk(err, func(e error) bool {
		if _, ok := e.(*Error); ok { //nolint:errorlint // walk comes to each error of the tree
			found = dbError{}
			return true
		}
		found = classifyOne(dialect, e)
		return found.class != notOurs
	})
	return found
}

func classifyOne(dialect string, err error) dbError {
	var found dbError
	switch dialect {
	case dialectPostgres:
		found = classifyPostgres(err)
	case dialectMySQL:
		found = classifyMySQL(err)
	case dialectSQLite:
		found = classifySQLite(err)
	}
	if found.class == notOurs {
		found = dbError{class: classifyConnection(err)}
		found.aborted = found.class == deadTx && err.Error() == abortedByPgx
	}
	found.err = err
	return found
}

// abortedByPgx is what pgx says when COMMIT has found an aborted transaction.
const abortedByPgx = "commit unexpectedly resulted in rollback"

// classifyConnection judges what no server said: the connection's own errors, and the context's.
func classifyConnection(err error) class {
	is := func(these ...error) bool { return slices.Contains(these, err) } // walk comes to each error of the tree
	switch {
	case is(driver.ErrBadConn, sql.ErrConnDone):
		return unavailable
	case is(sql.ErrTxDone):
		return deadTx
	case is(context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded):
		return lost
	}
	if safe, ok := err.(interface{ SafeToRetry() bool }); ok && safe.SafeToRetry() {
		return unavailable
	}
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" { //nolint:errorlint // as above
		return unavailable
	}
	if _, ok := err.(net.Error); ok { //nolint:errorlint // as above
		return lost
	}
	switch text := err.Error(); {
	case strings.HasPrefix(text, "failed to connect to "):
		return unavailable
	case text == "tx is closed", text == abortedByPgx:
		return deadTx
	case text == "conn closed":
		return unavailable
	case text == "invalid connection", text == "busy buffer", strings.HasPrefix(text, "malformed packet"),
		strings.HasPrefix(text, "commands out of sync"):
		return lost // MySQL's driver: the connection broke somewhere between sending and reading
	}
	return notOurs
}

// walk visits err and all it wraps, outermost first, until visit returns true.
func walk(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				if walk(e, visit) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}

// wraps reports whether err has others inside: texts are judged at the innermost error only, which is the driver's own.
func wraps(err error) bool {
	if _, ok := err.(interface{ Unwrap() []error }); ok {
		return true
	}
	return errors.Unwrap(err) != nil
}

// field returns the field of a driver's error that has one of the names, and an invalid value where there is none.
func field(err error, names ...string) reflect.Value {
	v := reflect.ValueOf(err)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return reflect.Value{}
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for _, name := range names {
		if f := v.FieldByName(name); f.IsValid() {
			return f
		}
	}
	return reflect.Value{}
}

func textField(err error, names ...string) string {
	if f := field(err, names...); f.IsValid() && f.Kind() == reflect.String {
		return f.String()
	}
	return ""
}
