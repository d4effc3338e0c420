// Package landing brings what was sold in Redis into SQL: accepted orders become rows, holds that nobody paid for are
// closed, and the two sides are compared.
//
// # What it promises
//
// Redis delivers an order at least once; its effect in SQL happens exactly once. A worker may be killed at any point, any
// number of workers may run, an entry may come three times, in any order, or after its order was closed: the rows are the
// same. SQL has the last word: an order that it refuses is kept as a closed row, and its units end in Redis once.
//
// It owns no table. The models are the service's own: their guard tags say which column is stock and which is the request
// id, the plugin's WithUnique says which index means what, and two columns say which state an order is in and why it was
// closed.
//
// # Use
//
//	l, err := landing.New[SeckillOrder, ItemStock](shop, db, func(e stock.Entry) SeckillOrder { ... })
//
//	go l.Worker().Run(ctx)  // stream -> SQL; needs stock.WithStream
//	go l.Sweeper().Run(ctx) // holds past their deadline; needs stock.WithHold
//
//	err = l.Pay(ctx, orderNo)               // 0 -> 1 in SQL, then Confirm
//	err = l.Close(ctx, orderNo, stock.Operator) // 0 -> 2 in SQL with the units back, then Release
//
//	rep, err := l.Reconciler().Compare(ctx) // where Redis and SQL differ; then Plan, a person, Apply
//
// # What it needs
//
// A [stock.Counter] on Redis 6.2 or Valkey, and a *gorm.DB with the plugin of package gormplugin, on PostgreSQL, MySQL,
// MariaDB or SQLite. The order model has a request column (guard:"request") under a unique index of its own, an order
// number, a status; the index of a user's limit leaves closed orders out, so that a closed one frees its user.
package landing
