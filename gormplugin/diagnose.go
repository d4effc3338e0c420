package gormplugin

import (
	"fmt"
	"reflect"
	"strings"

	"gorm.io/gorm"
)

// verify decides, inside the transaction, whether an update or delete did what it was to do.
func (o *operation) verify(db *gorm.DB) {
	if len(o.checks) == 0 && !o.save && !o.hasExpect && !o.adds() {
		return
	}
	need := int64(1)
	if o.expects {
		need = o.rows
	}
	if !o.hasExpect && o.expects && db.RowsAffected < need {
		need = o.distinctRows()
	}
	if db.RowsAffected >= need {
		o.closeRows(db)
		return
	}
	refusal, hit := o.diagnose(db, need)
	if refusal != nil {
		o.insist(refusal)
		return
	}
	db.RowsAffected = hit
	if r := db.Statement.Result; r != nil {
		r.RowsAffected = hit
	}
}

// adds reports whether the statement puts units back, which must find a row even where no max is in the way.
func (o *operation) adds() bool {
	for i := range o.changes {
		if o.changes[i].add {
			return true
		}
	}
	return false
}

// distinctRows counts the rows that a slice stands for: it may hold one twice.
func (o *operation) distinctRows() int64 {
	if o.stmt.Schema == nil {
		return o.rows
	}
	seen := map[string]bool{}
	elements(o.stmt.ReflectValue, func(i int, elem reflect.Value) {
		var key strings.Builder
		for _, f := range o.stmt.Schema.PrimaryFields {
			v, zero := f.ValueOf(o.stmt.Context, elem)
			if zero {
				v = i
			}
			fmt.Fprintf(&key, "%v\x00", v)
		}
		seen[key.String()] = true
	})
	return int64(len(seen))
}

// diagnose finds out why a statement hit fewer rows than it should have, by one SELECT with the statement's own WHERE on
// the same connection. It returns a refusal, or how many rows were in fact hit.
func (o *operation) diagnose(db *gorm.DB, need int64) (*Error, int64) {
	many := o.expects && o.rows > 1
	if o.opened && o.countsChanges() {
		rows, err := o.look(db, many, limitOf(many))
		if fits, _ := o.judgeRows(db, rows); err == nil && fits >= need {
			o.closeRows(db)
			return nil, fits
		}
	}
	if err := o.undoRows(db); err != nil {
		return o.unknown(err), 0
	}
	rows, err := o.look(db, many, limitOf(many))
	if err != nil {
		return o.unknown(err), 0
	}
	fits, first := o.judgeRows(db, rows)
	switch {
	case len(rows) == 0:
		return o.missing(), 0
	case fits >= need && o.countsChanges() && !o.opened:
		return nil, fits
	case many && db.RowsAffected > 0, many && first == nil && fits < need:
		return o.partial(rows, need), 0
	case first != nil:
		o.remember(first)
		return first, 0
	}
	return o.raced(), 0
}

// judgeRows counts the rows that fit, and returns the refusal of the first that does not.
func (o *operation) judgeRows(db *gorm.DB, rows []foundRow) (fits int64, first *Error) {
	for _, row := range rows {
		refusal := o.judgeRow(db, row.findings)
		if refusal == nil {
			fits++
		} else if first == nil {
			first = refusal
		}
	}
	return fits, first
}

// countsChanges reports whether the database may have hit a row and not counted it, since nothing in it changed: MySQL does
// so, unless the connection asks for found rows. Only a fence, which never falls, fits now exactly if it fitted before.
func (o *operation) countsChanges() bool {
	for i := range o.checks {
		if o.checks[i].kind != checkFence {
			return false
		}
	}
	return o.dialect == dialectMySQL
}

// limitOf returns how many rows say why a statement hit none: one is as good as the next, unless each is asked for.
func limitOf(many bool) int {
	if many {
		return 0
	}
	return 1
}
