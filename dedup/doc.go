// Package dedup answers a request that comes twice with the result of the first, and lets its work be done once.
//
// A request is named by a scope (whose it is), a name (what is done) and a key (the caller's own id of it: an
// idempotency key, a message id, a period). [Dedup.Do] runs a function unless the request has been done:
//
//	d, err := dedup.New(rdb)
//	res, replayed, err := d.Do(ctx, dedup.Request{Scope: "billing", Name: "charge", Key: msg.ID}, func(ctx context.Context) ([]byte, error) {
//		return charge(ctx, dedup.FromContext(ctx).RequestID())
//	})
//
// [Dedup.Begin] is the same in steps, for callers that have more to do between the question and the result. The chi
// middleware of holdfast is one; this package itself knows nothing of HTTP.
//
// # What is promised
//
//   - While a request runs, repeats wait for it, up to 2 s, and get its result; then they get [ErrInFlight]. Repeats in
//     one process wait without a command.
//   - Once it has ended well, every repeat gets that result for as long as the record lives: 24 h, or what
//     [Request.TTL] says, at least 10 min.
//   - After an error or a panic the same request may run again at once, as the next attempt.
//   - Once its process has died, the request may run again after 30 s. The work then sees [Execution.Takeover], since
//     the earlier attempt may have had its effect. [Request.NoTakeover] refuses that instead.
//   - The same key for another request, told by [Request.Fingerprint], is refused with [ErrMismatch].
//   - Without a store nothing runs: [ErrUnavailable] or [ErrUnknownOutcome]. [Request.Bypass] makes exceptions.
//
// What is not promised: that the work runs only once. A process that dies between the effect and the record, a Redis
// that forgets, a takeover from somebody who was only slow: each makes it run again. So the effect carries the
// [Execution.RequestID], under a unique index in SQL and in the same transaction, and a second one is refused there.
//
// # States of a record
//
//	absent -> running -> done                          by Begin, then Complete
//	          running -> failed -> running             by Fail, then Begin: the next attempt
//	          running -> absent                        by Forget of the first attempt: nothing had been done
//	          running (lapsed) -> running              by Begin after 30 s without renewal: the next attempt, a takeover
//	          running (lapsed) -> done                 by Complete all the same, if nobody has taken over
//	done, failed -> absent                             at the end of the record's life
//
// Renewal is automatic and starts after 10 s, so that a shorter request costs two commands, and a repeat one. After
// 5 min the work's context is cancelled.
//
// # What it needs from Redis
//
// Redis 6.2 or Valkey, standalone, Sentinel or Cluster, with maxmemory-policy noeviction: New warns otherwise, because an
// evicted record is a forgotten request. One hash for each request, under prefix + "idem:" + record id, always with a
// TTL, of about 300 bytes and the result. No key, scope or fingerprint of a client is readable in it. The client's
// ReadTimeout is how long a command that hangs is waited for; 1 s is plenty.
//
// # Operation
//
// [Dedup.Entries] lists records, those that have lapsed for instance; [Dedup.Settle] ends one as done, [Dedup.Reopen]
// lets a request run again. Spans, metrics and log records carry the outcome of each request; the client's key shows
// in them only as its hash, [Request.Hash].
package dedup
