// Package middleware guards the routes of a chi router: one at a time on a resource, one effect for a request.
//
// chi has a package of the same name, so import this one as holdfast:
//
//	import holdfast "github.com/holdfast-go/holdfast/middleware"
//
//	guard, err := holdfast.New(rdb, holdfast.WithValue("userID", currentUser))
//	r.With(guard.Dedup("{userID}"), guard.Lock("balance:{userID}")).Post("/withdrawals", withdraw)
//
// # What it promises
//
// [Guard.Lock]: while a handler runs, no other one runs under the same key, in this process or another. A request that
// does not get the lock in time is answered 429 with Retry-After and its handler is not called. The lock is released on
// every way out: return, error, panic, a client that has left.
//
// [Guard.Dedup]: a request that is sent again gets the first answer again and the work is not done twice. An answer
// leaves only after it has been stored.
//
// [Guard.RequestID]: the id of a request is checked and derived as Dedup does it, and put into the context for packages
// stock and gormplugin, which let it have one effect. No Redis, no record.
//
// # What it does not promise
//
// A lock in Redis can be lost, by a failover, an eviction or a pause longer than its TTL. Then the handler's context
// ends, and the conditional update, the unique index and the fence in SQL refuse what comes too late: see gormplugin.
//
// # Where to mount it
//
// Recoverer, Logger, CORS, Compress, then authentication, body limit, Dedup, Lock, handler. Dedup outside the lock, so
// that a replay never waits for it; authentication outside Dedup, so that a scope is a principal and strangers take no
// locks. [http.TimeoutHandler] belongs outside: inside, it answers while the work goes on. chi's Timeout may be on
// either side.
//
// Rules are written at the route, with With or in a Group, or in one place for a finished router: see [Annotations].
// They may also be in the Use of a router or on a mount, before chi knows the route: then the rule asks the router for it,
// and a request that chi will answer 404 or 405 passes. A middleware that changes the path, such as chi's StripSlashes,
// must be outside of such a rule. What is mounted and is no chi router is one route. [Guard.Validate] finds at start-up
// what would fail at the first request.
//
// # Answers
//
// Refusals are application/problem+json (RFC 9457) with a stable type. [WriteProblem] answers the errors of all
// packages of holdfast in the same way, for handlers. No value of a request, no key and no address appears in one.
package middleware
