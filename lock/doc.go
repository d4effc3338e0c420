// Package lock hands out leases: the right to be the only worker on a set of keys until it is released or lost.
//
//	locker, err := lock.New(rdb)
//	...
//	err = locker.Do(ctx, []string{"report:daily"}, func(ctx context.Context) error {
//		return build(ctx) // alone; ctx ends if the lease is lost
//	})
//
// # What is guaranteed
//
// While one Redis master keeps its data: one holder for a key; no key without TTL; only the holder's token renews or
// frees it; a holder is told at its safe deadline at the latest, which is before the server's; the fence of a key only
// grows; waiters of one process are served in the order in which they came; after a crash the key is free within the
// TTL.
//
// # What is not
//
// Two holders at once cannot be excluded after a failover, since replication is asynchronous; after an eviction; when
// the server's clock jumps; or between a pause of the process and the timer that ends its lease. For these each lease has
// a fence, a number that only grows: write it with the data, and have the database refuse a smaller one. Package
// gormplugin does that for marked tables. A lock is there for speed and order; it is not the only thing that may stand
// between a user and a wrong balance.
//
// There is no order among waiters of different processes, though none is starved. And every waiter pays for what is done
// inside a lease: a remote call belongs before it, not into it.
//
// # Life of a lease
//
// It is renewed at a third of its TTL, by one goroutine for all leases of a Locker. A renewal without an answer is
// repeated and loses nothing; only a key that is gone or has another owner, a safe deadline that passes without a
// confirmation, MaxHold, and Close end a lease under its holder. Then its contexts are cancelled with a cause that
// matches ErrLost, and the next waiter is let in.
//
// Take it before a transaction begins and release it after the commit: otherwise the next holder reads the old row, and
// waiters hold database connections.
//
// # Choosing a TTL
//
// The TTL is how long a crash blocks the key, nothing else. It does not limit the work, which is renewed for. Start from
// the P99 of the work: twice to three times that, and not below what a pause of the process or of the network takes
// ([DoubleP99], [TripleP99]).
// 30 s suits work whose users can wait that long once after a crash.
//
// # Nesting
//
// Ownership travels in the context and belongs to one flow of work. An Acquire under [Lease.Context] for keys that the
// lease has is nested in it: it cannot wait for itself, and costs nothing. What is started with that context works inside
// the lease; what must compete takes [Detach].
//
// # Redis
//
// 6.2 or newer, or Valkey; on a cluster, wake-ups need 7. Each lock is a string lock:KEY with a TTL, its fence counter
// {lock:KEY}:fence, which lives for a day, and a channel {lock:KEY}:free. A user restricted by ACL needs the keys lock:*
// and {lock:*, the channels {lock:*, and the commands evalsha, eval, script|load, cluster|info, info, ssubscribe or
// subscribe; without channels waiting goes by the back-off alone. Set maxmemory-policy noeviction.
//
// A ReadTimeout of about 1 s on the client is advised: a context cannot interrupt a command on the wire, so that is how
// long a server that hangs can hold a call. With redisotel, switch statements off: they would show owner tokens.
package lock
