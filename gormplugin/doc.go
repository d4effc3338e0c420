// Package gormplugin is a GORM plugin that gives the database the last word about scarce things: stock, balances, quotas.
//
// A service registers it and marks a few columns. From then on each write to them carries its condition, its fencing
// number and its request id, whichever of gorm's calls makes it. A write goes out guarded, or not at all, and "not at
// all" is a typed error on the handle that gorm returns.
//
//	type Item struct {
//		ID    int64
//		Stock int64 `guard:"stock" gorm:"not null"` // by Sub and Add only, never below 0
//	}
//
//	err := db.Use(gormplugin.New(gormplugin.WithModels(&Item{})))
//
//	err = db.Model(&Item{ID: 1001}).Update("stock", gormplugin.Sub(1)).Error
//	// UPDATE items SET stock = stock - 1 WHERE id = 1001 AND stock >= 1
//	// nil, or ErrInsufficient, or ErrNotFound
//
// It works on PostgreSQL from 13, MySQL 8, MariaDB from 10.5 and SQLite from 3.35. It needs no Redis, no lock and no HTTP;
// with them it is what still refuses when they were wrong.
//
// # Columns
//
// The tag guard says what a column is for. It is read when the model is first used, or in db.Use for [WithModels].
//
//   - guard:"stock" is a number with bounds. min= and max= take a number or a column of the row; min is 0 without one.
//   - guard:"fence,lock=stock" holds the highest fencing number seen. Numbers of leases on stock:... count here, those of
//     other locks do not. With strict, a plain write without such a lease is refused.
//   - guard:"version" is raised by each write and checked by those that do not commute.
//   - guard:"request" is the request id of the row that is the effect; it wants a unique index. attempt= names a column
//     for the attempt. With last it is no unique id but that of the last request which wrote a shared row.
//
// [Plugin.VerifySchema] compares the marks with what the database has.
//
// # Writes
//
// [Sub] and [Add] change a stock column; `gorm.Expr("stock - ?", n)` does the same, if it is exactly that. A literal, a
// struct or any other expression is refused with [ErrUnguardedWrite]; [AllowAbsolute] lets one through, and Omit("Stock")
// writes the rest of a row. A statement of nothing but Sub and Add commutes with others: it needs no fencing number and no
// loaded version.
//
// [From] and [AtVersion] add conditions to one statement, [Expect] says how many rows it must hit. [Take] and [TakeAll]
// take units by primary key and say what is left. [InsertOnce] writes the row of a request once, however often the
// request comes, and [Retry] repeats a transaction that met a conflict.
//
// # Errors
//
// Each error is an [*Error] that wraps one of the sentinels, with numbers where there are any: what was there, what was
// asked for, which bound. [Refused] tells the refusals, after which nothing was written for certain, from the errors after
// which the same request may still succeed. A statement that hits nothing is looked into by one SELECT on the same
// connection, so "no such row", "not enough" and "a newer holder has written" are different errors.
//
// # What it does not see
//
// Raw SQL passes, with a warning, unless [WithRawSQL] refuses it, and so does what other programs write: a CHECK constraint
// and unique indexes are the floor under them. A transaction begun without WithContext(r.Context()) has no fencing number.
// [WithShadow] lets an old code base find out what would be refused.
//
// # Transactions
//
// Acquire the lock, begin, commit, and only then release: a COMMIT after the release lets the next holder read the old row.
// READ COMMITTED is enough. For a single guarded statement gorm's default transaction may be switched off with
// SkipDefaultTransaction; slices, associations and hooks that write need one. On SQLite open the database with
// _txlock=immediate, so that a transaction which will write does not begin as a reader.
package gormplugin
