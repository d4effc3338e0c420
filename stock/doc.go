// Package stock sells something scarce from a counter in Redis: the last units of an item, each to one buyer.
//
// # What it promises
//
// [Counter.Deduct] decides in one script and one round trip whether an order may have its units: the request has not
// been done before, the sale is open, enough is left, and the user stays under the limit. Then it takes them, and marks
// user and request, or it changes nothing. Counters never go below zero, a request that is repeated takes nothing twice,
// and a unit that was taken ends once: by [Counter.Confirm] or by [Counter.Release].
//
// It does not promise that Redis keeps what it was told: an asynchronous failover may forget the last deducts. So SQL
// has the last word, with conditional updates and unique indexes; Redis only keeps from it what cannot succeed.
//
// # Use
//
//	shop, err := stock.New(rdb)
//	_, err = shop.Warm(ctx, stock.Sale{Item: 1001, Units: 200, Ends: end, Limit: stock.Limit{Units: 1}})
//
//	bought := stock.Order{Item: 1001, User: userID, Units: 1} // the request id comes from the context
//	res, err := shop.Deduct(ctx, bought)
//	// write order res.Order to SQL; if SQL refuses it:
//	_, err = shop.Release(ctx, res.Order, stock.Failed, stock.Of(bought))
//
// # What it needs
//
// Redis 6.2 or Valkey with maxmemory-policy noeviction. Every key has a TTL. All times are those of the Redis server.
package stock
