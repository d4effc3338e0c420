// Package redisx is how lock, dedup and stock talk to Redis: scripts, sent in batches, with errors that say whether a
// script may have run.
//
// # Sending
//
// Every change is one script, and every script may be sent twice. So the client's own resending is switched off for
// them (a lost reply would otherwise look like somebody else's work, redis/go-redis#2985), and Run sends again by
// itself, alone and through the pool, up to three times.
//
// A call without trouble costs one round trip, or a share of one: while fewer than four sends are in flight a caller
// sends at once on its own goroutine; what arrives meanwhile leaves as one pipeline when a send returns. While such a
// pipeline is on its way there is a crowd, and two sends in flight are enough: they are larger, and cost client and
// server less. There is no lingering. On a cluster each master has a batcher of its own, so a hanging node delays only
// its keys.
//
// # Errors
//
// The error of a call is an [*Error], and its Kind is the whole decision: Unavailable, nothing was done, for certain;
// Unknown, the reply was lost; Failed, the script itself failed.
package redisx
