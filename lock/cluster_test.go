package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// (18): a lock, its fence and its channel lie in one slot, whatever the key is made of; braces are refused.
func TestCompanionsShareTheSlotOfTheirLock(t *testing.T) {
	for _, key := range []string{"lock:stock:1001", "shop:lock:a", "größe:ß", "a b", "lock:" + strings.Repeat("x", 1000), "\x00\xff"} {
		slot := redisx.Slot(key)
		if redisx.Slot(fenceKey(key)) != slot || redisx.Slot(freeChannel(key)) != slot {
			t.Errorf("%q lies in slot %d, its companions in %d and %d", key, slot, redisx.Slot(fenceKey(key)), redisx.Slot(freeChannel(key)))
		}
		if got := watchedKey(freeChannel(key)); got != key {
			t.Errorf("the channel of %q is read back as that of %q", key, got)
		}
	}
}

// keysOfManySlots returns n keys that lie in different slots, of all masters.
func keysOfManySlots(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("k", i))
	}
	return all
}

// F015, (18): on a cluster, keys of several slots have one number, which only grows for each of them; re-entry does not
// raise it.
func TestKeysOfSeveralSlotsHaveOneNumber(t *testing.T) {
	srv := testserver.Cluster(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	l := over(t, rdb, Prefix(prefix))
	all := keysOfManySlots(12)
	last := map[string]int64{}
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for i := range rounds {
		k := all[i%12 : min(12, i%12+1+i%5)]
		lease := must(t, l, k)
		for _, key := range k {
			if lease.Fence() <= last[key] {
				t.Fatalf("%s: fence %d after %d", key, lease.Fence(), last[key])
			}
			last[key] = lease.Fence()
			if i%100 == 0 {
				if got := rdb.Get(t.Context(), fenceKey(prefix+"lock:"+key)).Val(); got != fmt.Sprint(lease.Fence()) {
					t.Errorf("%s: fence %s in Redis, the lease has %d", key, got, lease.Fence())
				}
			}
		}
		if i%100 == 0 {
			inner, err := l.Acquire(lease.Context(t.Context()), k)
			if err != nil || inner.Fence() != lease.Fence() {
				t.Errorf("nested: %v, want the same fence", err)
			}
		}
		free(t, lease)
	}
	if left := srv.Keys(t, prefix); len(left) > 0 {
		t.Errorf("locks left: %v", left)
	}
	if eternal := srv.Eternal(t, "{"+prefix); len(eternal) > 0 {
		t.Errorf("counters without TTL: %v", eternal)
	}
}

// Opposite orders of keys in several slots, by several processes, a hundred times: nobody waits for ever, nobody shares.
func TestOppositeOrdersOnACluster(t *testing.T) {
	srv := testserver.Cluster(t)
	prefix := srv.Prefix(t)
	a, b := over(t, srv.Client(t), Prefix(prefix), Wait(time.Minute)), over(t, srv.Client(t), Prefix(prefix), Wait(time.Minute))
	var mu sync.Mutex
	parallel(8, 100, func(i int) {
		k := keys("x", "y", "z")
		if i%2 == 1 {
			k = keys("z", "y", "x")
		}
		err := []*Locker{a, b}[i/2%2].Do(t.Context(), k, func(context.Context) error {
			if !mu.TryLock() {
				t.Error("two inside")
				return nil
			}
			defer mu.Unlock()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// When one of several slots is taken nothing is held while waiting for it, and its release wakes the waiter.
func TestWaitingForOneOfSeveralSlots(t *testing.T) {
	srv := testserver.Cluster(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	a, b := over(t, rdb, Prefix(prefix), Wait(time.Minute)), over(t, srv.Client(t), Prefix(prefix), Wait(time.Minute))
	all := keysOfManySlots(6)
	theirs := must(t, b, all[3:4])
	done := make(chan *Lease)
	go func() { done <- must(t, a, all) }()
	channel := freeChannel(prefix + "lock:" + all[3])
	testserver.Eventually(t, soon, func() bool {
		return a.backend.(*redisBackend).watch.Load().channel.Listens(channel)
	}, "it listens for the taken key")
	for i, key := range all {
		if i != 3 {
			gone(t, rdb, prefix+"lock:"+key)
		}
	}
	free(t, theirs)
	free(t, <-done)
}

// (18): one master hangs: the keys of the others go on as if nothing were.
func TestOneMasterHangs(t *testing.T) {
	// With the default, the others would decline to serve once they hold this one for dead.
	srv := testserver.NewCluster(t, testserver.EachNode(testserver.RedisConfig("cluster-require-full-coverage", "no")))
	rdb := srv.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout = time.Second })
	l := over(t, rdb, TTL(3*time.Second))
	all := keysOfManySlots(40)
	node := srv.Node(t, "lock:"+all[0])
	var well, ill []string
	for _, key := range all {
		if srv.Node(t, "lock:"+key).Addr() == node.Addr() {
			ill = append(ill, key)
		} else {
			well = append(well, key)
		}
	}
	held := must(t, l, well[:1])
	for _, key := range all { // connections to all
		free2(t, l, key)
	}
	node.Pause(t)
	var wg sync.WaitGroup
	for _, key := range ill {
		wg.Go(func() {
			if lease, err := l.Acquire(t.Context(), keys(key), Wait(0)); err == nil {
				_ = lease.Release(t.Context())
				t.Errorf("%s: a lock on a master that hangs", key)
			}
		})
	}
	start := time.Now()
	for i := range 300 {
		free2(t, l, well[1+i%(len(well)-1)])
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("300 pairs beside a master that hangs took %v", d)
	}
	testserver.Eventually(t, soon, func() bool { return renewalsOf(held) >= 2 }, "leases on other masters are renewed")
	wg.Wait()
	if err := held.Err(); err != nil {
		t.Errorf("a lease on another master: %v", err)
	}
	free(t, held)
	node.Resume(t)
	testserver.Eventually(t, soon, func() bool {
		return l.Do(t.Context(), ill[:1], func(context.Context) error { return nil }) == nil
	}, "the keys of that master work again")
}

// One master is down: an acquire that wants keys of it and of others too holds nothing on the others afterwards.
func TestOneMasterIsDown(t *testing.T) {
	srv := testserver.NewCluster(t, testserver.EachNode(testserver.RedisConfig("cluster-require-full-coverage", "no")))
	rdb := srv.Client(t)
	l := over(t, rdb, TTL(5*time.Minute), Wait(0))
	all := keysOfManySlots(30)
	last := 0 // the key that is taken last lies on the node that is down, so that others are held by then
	for i := range all {
		if redisx.Slot("lock:"+all[i]) > redisx.Slot("lock:"+all[last]) {
			last = i
		}
	}
	free(t, must(t, l, all)) // connections to all
	srv.Node(t, "lock:"+all[last]).Kill(t)
	_, err := l.Acquire(t.Context(), all)
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrBusy) {
		t.Errorf("err = %v, want ErrUnavailable or ErrUnknownOutcome", err)
	}
	testserver.Eventually(t, soon, func() bool { return len(srv.Keys(t, "lock:")) == 0 }, "nothing is held on the masters that are up")
}

func free2(t *testing.T, l *Locker, key string) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), keys(key), Wait(0))
	if errors.Is(err, ErrBusy) {
		return // the one that is held
	}
	check(t, err)
	free(t, lease)
}

// Every script runs on a cluster-enabled server, through a client that is not one for clusters too: whether keys of
// several slots go into one script is asked of the server, not judged by the client's type.
func TestClusterBehindAPlainClient(t *testing.T) {
	srv := testserver.NewRedis(t, testserver.RedisConfig("cluster-enabled", "yes"))
	rdb := srv.Client(t)
	check(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testserver.Eventually(t, soon, func() bool { return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok") }, "the cluster is formed")
	l := over(t, rdb, TTL(time.Second))
	lease := must(t, l, keysOfManySlots(5))
	testserver.Eventually(t, soon, func() bool { return renewalsOf(lease) > 0 }, "a renewal is confirmed")
	done := make(chan *Lease)
	go func() { done <- must(t, over(t, srv.Client(t)), keysOfManySlots(3)) }()
	free(t, lease)
	free(t, <-done)
}

// A repeat that finds one of its keys taken keeps none of the others, which an earlier send without an answer may have got:
// nothing is held while its caller waits.
func TestARepeatThatFindsAKeyTakenHoldsNothing(t *testing.T) {
	boards(t, func(t *testing.T, rdb redis.UniversalClient, prefix string) {
		b := newRedisBackend(mustWrap(t, rdb), "x", quietLogger())
		b.detect(t.Context())
		all := keys(prefix+"a", prefix+"b", prefix+"c", prefix+"d")
		for _, taken := range all {
			for _, key := range all {
				token := "ours"
				if key == taken {
					token = "theirs"
				}
				check(t, rdb.Set(t.Context(), key, token, time.Minute).Err())
			}
			g, err := b.Acquire(t.Context(), Request{Keys: all, Token: "ours", TTL: time.Minute, Repeat: true})
			if err != nil || g.Held || all[g.Taken] != taken {
				t.Fatalf("%+v, %v; want %s taken", g, err, taken)
			}
			for _, key := range all {
				if left := rdb.Exists(t.Context(), key).Val() == 1; left != (key == taken) {
					t.Errorf("%s taken: %s is there: %v", taken, key, left)
				}
			}
		}
	})
}
