// Package checker judges a run that moved stock, by what was answered and by what lies in the stores afterwards. It is
// for tests, and knows nothing of the packages that it judges but their keys, tables and promises: it reads Redis and
// SQL itself.
//
//	rec := checker.NewRecorder(file)      // one line of JSON an answer, nil: memory only
//	rec.Add(checker.Record{Op: checker.Deduct, Request: "r1", User: "42", Item: "1001", Units: 1, Outcome: ..., Start: ..., End: ...})
//
//	kept, err := checker.ReadRedis(ctx, rdb, "shop:")
//	rows, err := checker.ReadSQL(ctx, db, checker.Seckill())
//	findings := checker.Check(checker.Run{
//		Sales: []checker.Sale{{Item: "1001", Activity: "9", Units: 200, Limit: 1}},
//		History: rec.Records(), Redis: kept, SQL: rows, Settled: true,
//	})
//
// A run is clean if there are no findings. Each finding names the invariant that it breaks:
//
//	1   sold <= initial + restocked - withdrawn; no counter and no stock below 0
//	2   what came in = counters + transfers + holds + live orders + withheld + returns to be done
//	2a  nothing is under way any more (Run.Settled), and what is held has a deadline at which it is swept
//	2b  the stock row = what came in - live orders - withheld
//	3   a user stays under the limit; a marker entry is there exactly while its order is held or live
//	4   one order a request; a repeat gets the first outcome, or a refusal that was true
//	5   a held unit ends at most once, and as somebody was told: paid or closed
//	6   every key has a TTL; no lock outlives its holder by more than its TTL (Sampler)
//	7   the ledger's movements add up, each with an operation of its own
//	8   goroutines and connections are back (Level)
//	9   nobody was told "sold out" while units were left, or "limit reached" below the limit
//	10  fences that were accepted never fall
//
// The stores must be at rest while they are read. A history need not be complete: what is unknown counts for whoever is
// judged, so that there are no false findings.
package checker
