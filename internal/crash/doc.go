// Package crash breaks a whole shop, step by step, and checks what is left. It has tests only.
//
// The shop is complete: HTTP with dedup and a lock, the deduct with hold and stream, worker, SQL, pay, close, sweeper. It
// runs in child processes of the test binary, so that it can be killed as a process is killed. Its connections to Redis
// and PostgreSQL go through proxies in the parent, which lose a chosen command or its reply, or hold it while something
// else happens: the shop dies, a server restarts, a lock goes away. Nothing in the public packages knows of this.
//
// After the fault everything is delivered three times, time passes, the sweeper runs, and package checker judges the
// answers and both stores.
//
//	go test ./internal/crash                       the short form: each point once
//	go test ./internal/crash -long -seed 7         all points with all faults
//	go test ./internal/crash -run Soak -soak 20000 many requests, faults at random
package crash
