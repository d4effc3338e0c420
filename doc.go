// Package holdfast documents the module; it has no code of its own.
//
// holdfast guards HTTP routes that spend something scarce: the last unit of stock, a merchant's quota, a user's balance.
// It is mounted on an existing chi router and registered as a GORM plugin. From then on a column marked guard:"stock"
// cannot go below its bound, a request id has one effect, a holder that lost its lock cannot write, and every step shows
// in a trace.
//
// # Two layers
//
// Redis is for speed: it queues, deduplicates and pre-deducts, so that the database sees only requests that can succeed.
// SQL is for truth: conditional updates, unique indexes and fencing numbers refuse whatever Redis got wrong. A lock is
// never the only thing between a user and a wrong balance.
//
// # Packages
//
//	middleware   chi middleware: Guard with Lock, Dedup, RequestID; problem answers (imported as holdfast)
//	lockkey      key templates, from a request to the keys it locks
//	lock         leases: acquire, wait, renew, fence, release; useful without HTTP
//	dedup        one request id, one effect; useful without HTTP
//	stock        counters in Redis: check, deduct and limit in one round trip
//	landing      from stock into SQL: worker, sweeper, pay and close, reconciler
//	gormplugin   guarded columns, fencing, unique-index mapping, insert once; useful without Redis
//
// Start with the README; examples/flashsale runs with nothing installed.
package holdfast
