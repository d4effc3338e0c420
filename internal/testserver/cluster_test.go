package testserver_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestDeployments_AllServeAndShowWhatNeverExpires(t *testing.T) {
	t.Parallel()
	for _, d := range testserver.Deployments() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			rdb, prefix := d.Open(t)
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				must(t, rdb.Set(t.Context(), prefix+name, "1", time.Minute).Err())
			}
			if got := d.Eternal(t, prefix); len(got) != 0 {
				t.Errorf("eternal keys: got %v, want none", got)
			}
			must(t, rdb.Persist(t.Context(), prefix+"c").Err())
			if got := d.Eternal(t, prefix); len(got) != 1 || got[0] != prefix+"c" {
				t.Errorf("eternal keys: got %v, want %v", got, prefix+"c")
			}
			must(t, rdb.Del(t.Context(), prefix+"c").Err())
		})
	}
}

func TestRedis_KeysTakeThePrefixLiterally(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	prefix := srv.Prefix(t)
	must(t, rdb.Set(t.Context(), prefix+"[a*]?x", "1", time.Minute).Err())
	must(t, rdb.Set(t.Context(), prefix+"aaax", "1", time.Minute).Err())
	if got := srv.Keys(t, prefix+"[a*]?"); len(got) != 1 || got[0] != prefix+"[a*]?x" {
		t.Errorf("got %v, want the one key that begins with it", got)
	}
	if got := srv.Keys(t, prefix); len(got) != 2 {
		t.Errorf("got %v, want both", got)
	}
}

// Keys are spread over the three nodes, and each node is asked for its own.
func TestCluster_SpreadsKeysOverItsNodes(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	rdb := c.Client(t)
	prefix := c.Prefix(t)
	used := map[string]bool{}
	for _, name := range "abcdefghijklmnopqrst" {
		key := prefix + string(name)
		must(t, rdb.Set(t.Context(), key, "1", time.Minute).Err())
		n := c.Node(t, key)
		used[n.Addr()] = true
		// The node itself has it; another would answer MOVED.
		must(t, n.Client(t).Get(t.Context(), key).Err())
	}
	if len(used) != 3 {
		t.Errorf("20 keys lie on %d nodes, want 3", len(used))
	}
	if got := len(c.Keys(t, prefix)); got != 20 {
		t.Errorf("found %d keys, want 20", got)
	}
}

func TestCluster_FailedOverInOrderAndAfterAKill(t *testing.T) {
	t.Parallel()
	c := testserver.NewCluster(t, testserver.Replicas(), testserver.EachNode(testserver.RedisConfig("maxmemory-policy", "noeviction")))
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.MaxRedirects = 1 })
	const key = "a"
	must(t, rdb.Set(t.Context(), key, "1", time.Minute).Err())
	first := c.Node(t, key)

	c.Failover(t, key)
	second := c.Node(t, key)
	if second == first {
		t.Fatal("the same node serves the key")
	}
	if got, err := second.Client(t).Get(t.Context(), key).Result(); err != nil || got != "1" {
		t.Errorf("on the new primary: got %q, %v; want 1", got, err)
	}

	second.Kill(t)
	c.Failover(t, key)
	if got := c.Node(t, key); got != first {
		t.Errorf("served by %s, want %s again", got.Addr(), first.Addr())
	}
	testserver.Eventually(t, 30*time.Second, func() bool { return rdb.Set(t.Context(), key, "2", time.Minute).Err() == nil },
		"the client finds the new primary")

	second.Restart(t)
	c.Wait(t)
	if got := c.Node(t, key); got != first {
		t.Errorf("after the restart served by %s, want %s", got.Addr(), first.Addr())
	}
}

func TestSentinel_FailedOverOnCommand(t *testing.T) {
	t.Parallel()
	s := testserver.NewSentinel(t)
	rdb := s.Client(t)
	must(t, rdb.Set(t.Context(), "a", "1", time.Minute).Err())
	old, next := s.Primary(t), s.Replica(t)

	s.Failover(t)

	if got := s.Primary(t); got != next {
		t.Errorf("primary is %s, want %s", got.Addr(), next.Addr())
	}
	// Until it hears of the failover the client writes to the old primary, which does not know.
	testserver.Eventually(t, 30*time.Second, func() bool {
		return rdb.Set(t.Context(), "b", "1", time.Minute).Err() == nil && len(next.Keys(t, "b")) == 1
	}, "the client finds the new primary")
	if got := s.Keys(t, ""); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("keys: got %v, want a and b", got)
	}
	testserver.Eventually(t, 3*time.Minute, func() bool { return role(t, old) == "slave" }, "the old primary becomes a replica")

	s.Failover(t)
	if got := s.Primary(t); got != old {
		t.Errorf("after the second failover the primary is %s, want %s", got.Addr(), old.Addr())
	}
}

// The write that a failover loses was acknowledged; what was written before is kept.
func TestSentinel_FailoverLosesWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	s := testserver.NewSentinel(t)
	rdb := s.Client(t)
	must(t, rdb.Set(t.Context(), "kept", "1", time.Minute).Err())

	s.FailoverLosing(t, func() { must(t, rdb.Set(t.Context(), "lost", "1", time.Minute).Err()) })

	if got := s.Keys(t, ""); len(got) != 1 || got[0] != "kept" {
		t.Errorf("keys: got %v, want only the one that was replicated", got)
	}
	testserver.Eventually(t, 30*time.Second, func() bool { return rdb.Set(t.Context(), "b", "1", time.Minute).Err() == nil },
		"the client finds the new primary")
}

// role is "master" or "slave".
func role(t *testing.T, s *testserver.RedisServer) string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	answer, err := rdb.Do(t.Context(), "ROLE").Slice()
	must(t, err)
	name, _ := answer[0].(string)
	return name
}

func TestSentinel_FailsOverByItself(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testserver.RedisServer, testing.TB){
		"killed": func(s *testserver.RedisServer, t testing.TB) { s.Kill(t) },
		"paused": func(s *testserver.RedisServer, t testing.TB) { s.Pause(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.NewSentinel(t)
			old, next := s.Primary(t), s.Replica(t)
			fault(old, t)
			testserver.Eventually(t, 60*time.Second, func() bool { return s.Primary(t) == next }, "Sentinel names the replica")
			if name == "paused" {
				old.Resume(t)
			} else {
				old.Restart(t)
			}
			// A Sentinel that was stalled for 2 s does nothing for the next 30.
			testserver.Eventually(t, 3*time.Minute, func() bool { return role(t, old) == "slave" }, "the old primary becomes a replica")
		})
	}
}
