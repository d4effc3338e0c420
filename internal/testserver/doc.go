// Package testserver starts real servers for the tests: private processes on free
// loopback ports with folders of their own, which a test may pause, kill and
// restart. It is imported by tests only.
//
// # Shared servers, for most tests
//
// They are started by the first test that asks for one and serve all tests of the
// process; tests are kept apart by name, so they may run in parallel.
//
//	func TestMain(m *testing.M) { testserver.Main(m) } // stops them, looks for leaked goroutines
//
//	srv := testserver.Redis(t)
//	rdb := srv.Client(t)     // *redis.Client, closed by the end of the test
//	prefix := srv.Prefix(t)  // "t17_acquire_waits:", for all keys of this test
//
//	c := testserver.Cluster(t)   // three nodes; c.Client(t) is a *redis.ClusterClient
//	s := testserver.Sentinel(t)  // primary, replica, Sentinel; s.Client(t) finds the primary
//	for _, d := range testserver.Deployments() { // all three shapes, as redis.UniversalClient
//		t.Run(d.Name, func(t *testing.T) { rdb, prefix := d.Open(t) ... })
//	}
//
//	db := testserver.Postgres(t) // an empty schema, dropped by the end of the test
//	gorm.Open(postgres.Open(db.DSN))
//	db := testserver.MariaDB(t)  // an empty database, likewise
//	gorm.Open(mysql.Open(db.DSN))
//	db.Via(proxy.Addr())         // the DSN with a proxy's address in it
//
// What was sent, and what was left behind, can be asked:
//
//	m := srv.Monitor(t)            // records commands from now on
//	m.Count(t, "EVALSHA", prefix)  // sent by clients, with prefix in some argument
//	m.Commands(t, prefix)          // also those called by scripts
//	srv.Eternal(t, prefix)         // keys that never expire: there must be none
//
// # Private servers, for faults
//
//	srv := testserver.NewRedis(t, testserver.AppendOnly())
//	srv.Pause(t)        // SIGSTOP: connections stay open, nobody answers
//	srv.Resume(t)
//	srv.Kill(t)         // SIGKILL
//	srv.Restart(t)      // same port, same data (Redis: with AppendOnly)
//	srv.RestartEmpty(t) // same port, no data
//
// NewPostgres(t) and NewMariaDB(t) have the same methods, and Database(t). So have
// the nodes of NewCluster(t, Replicas()) and the servers of NewSentinel(t), which
// can also be failed over:
//
//	c.Node(t, key).Kill(t); c.Failover(t, key); c.Node(t, key)
//	s.Primary(t).Pause(t); s.Failover(t); s.Replica(t).Resume(t)
//	s.FailoverLosing(t, func() { ... }) // what it writes is acknowledged, and lost
//
// Faults of the network are made by package faultproxy, in front of any of them.
//
// # Missing programs
//
// scripts/servers.sh installs the programs. The environment variable HOLDFAST_REAL
// says what to do when one is missing:
//
//	(unset)   tests that need it are skipped, and say what to run
//	require   tests that need it fail: nothing is ever skipped
//	off       no server is started at all: tests that need one are skipped
//
// A server that is installed and does not start fails the test, always, with the
// server's log in the message.
//
// # Waiting
//
// Eventually polls a condition until a deadline; no test sleeps.
//
// # What is left behind
//
// Nothing: a small shell watches over each test process and, once that has ended
// in whatever way, kills its servers and removes their folder. What an initialised
// database looks like is kept in the user's cache folder, so that the next start
// takes a fraction of a second.
package testserver
