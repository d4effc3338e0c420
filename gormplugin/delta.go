package gormplugin

import (
	"database/sql/driver"

	"gorm.io/gorm/clause"
)

// maxAmount is the greatest amount of Sub and Add: the greatest integer that every part of the project, scripts in Redis
// and JavaScript clients included, holds exactly.
const maxAmount = 1<<53 - 1

// Integer is any integer type.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Delta is a change of a guarded column by an amount: the value that [Sub] and [Add] return, for Update, Updates with a
// map, UpdateColumn, UpdateColumns, Assign and clause.Set. It is immutable; the zero value is an invalid amount.
//
// It only means something to a column marked guard:"stock". Anywhere else, that is on an unmarked column, in an INSERT,
// in a condition, or on a *gorm.DB without the plugin, the statement fails with [ErrUnguardedWrite] and nothing is sent.
type Delta struct {
	// The amount, shifted left by one, with the lowest bit set for Add; 0 is invalid. One word, and small for small
	// amounts, so that putting it into an interface costs nothing.
	code uint64
}

// Sub takes n units: `SET stock = stock - n` where `stock >= n + min`. n is from 1 to 2^53-1, in the column's unit; any
// other amount fails with [ErrInvalid] before anything is sent.
//
// When the row does not hold enough the statement fails with [ErrInsufficient], when there is no row with
// [ErrNotFound], in both cases on the returned handle.
func Sub[N Integer](n N) Delta { return delta(n, 0) }

// Add puts n units back: `SET stock = stock + n`, where the result does not pass the column's max, if it has one. n is from
// 1 to 2^53-1, in the column's unit; any other amount fails with [ErrInvalid] before anything is sent. Above max the
// statement fails with [ErrInsufficient], without a row with [ErrNotFound].
func Add[N Integer](n N) Delta { return delta(n, 1) }

func delta[N Integer](n N, bit uint64) Delta {
	if n < 1 || uint64(n) > maxAmount {
		return Delta{}
	}
	return Delta{uint64(n)<<1 | bit}
}

// On names the column, for the generic API: gorm.G[Item](db).Where("id = ?", id).Set(gormplugin.Sub(1).On("stock")).
func (d Delta) On(column string) clause.Assignment {
	return clause.Assignment{Column: clause.Column{Name: column}, Value: d}
}

// Value implements driver.Valuer with a constant error: whoever hands a Delta to a driver has written it where no guard
// sees it.
func (d Delta) Value() (driver.Value, error) {
	return nil, fail(ErrUnguardedWrite, "delta", "Sub and Add work on columns marked guard:\"stock\", in updates, with the plugin registered")
}

func (d Delta) valid() bool   { return d.code != 0 }
func (d Delta) isAdd() bool   { return d.code&1 == 1 }
func (d Delta) amount() int64 { return int64(d.code >> 1) }
