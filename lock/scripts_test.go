package lock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// shaOf is the name under which Redis keeps a script.
func shaOf(src string) string {
	sum := sha1.Sum([]byte(src))
	return hex.EncodeToString(sum[:])
}

// Only KEYS are touched: the key of every command of every script is KEYS[n], or all of them. Managed and clustered
// servers refuse anything else.
func TestScriptsTouchTheirKeysOnly(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) != 6 {
		t.Fatalf("%v, %v; want six scripts", files, err)
	}
	call := regexp.MustCompile(`redis\.p?call\(([^()]*(?:\([^()]*\))?[^()]*)\)`)
	own := regexp.MustCompile(`^'(MGET|EXISTS|PTTL|PEXPIRE|SET|DEL)', (unpack\((KEYS|missing)\)|KEYS\[[^]]+\])`)
	other := regexp.MustCompile(`^('TIME'|ARGV\[\d\], ARGV\[\d( \+ i)?\], ARGV\[\d\])$`) // the clock, and PUBLISH
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls := call.FindAllStringSubmatch(string(src), -1)
		if len(calls) == 0 {
			t.Errorf("%s: no call was recognised", file)
		}
		for _, c := range calls {
			if !own.MatchString(c[1]) && !other.MatchString(c[1]) {
				t.Errorf("%s: %s: the key is not one of KEYS", file, c[0])
			}
		}
		for _, word := range []string{"KEYS  ", "Returns ", "O("} {
			if !strings.Contains(string(src), word) {
				t.Errorf("%s: its comment does not tell %q", file, word)
			}
		}
	}
}

func TestScriptsLoad(t *testing.T) {
	rdb := testserver.Redis(t).Client(t)
	for _, src := range []string{acquireLua, renewLua, releaseLua, handoverLua, forceLua, inspectLua} {
		sha, err := rdb.ScriptLoad(t.Context(), src).Result()
		if err != nil || sha != shaOf(src) {
			t.Errorf("%.40q: %v, %v", src, sha, err)
		}
	}
}

// Arguments are checked before the first write.
func TestScriptsRefuseBadArguments(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, p := srv.Client(t), srv.Prefix(t)
	k := p + "k"
	for name, tt := range map[string]struct {
		src  string
		keys []string
		args []any
	}{
		"acquire without keys":           {acquireLua, nil, []any{"T", 1000, 1000, 0}},
		"acquire without fence":          {acquireLua, keys(k), []any{"T", 1000, 1000, 0}},
		"acquire without token":          {acquireLua, keys(k, fenceKey(k)), []any{"", 1000, 1000, 0}},
		"acquire with TTL 0":             {acquireLua, keys(k, fenceKey(k)), []any{"T", 0, 1000, 0}},
		"acquire with TTL of words":      {acquireLua, keys(k, fenceKey(k)), []any{"T", "long", 1000, 0}},
		"acquire with negative TTL":      {acquireLua, keys(k, fenceKey(k)), []any{"T", -1, 1000, 0}},
		"acquire without counter TTL":    {acquireLua, keys(k, fenceKey(k)), []any{"T", 1000, 0, 0}},
		"acquire without floor":          {acquireLua, keys(k, fenceKey(k)), []any{"T", 1000, 1000}},
		"renew without keys":             {renewLua, nil, []any{"T", 1000}},
		"renew without token":            {renewLua, keys(k), []any{"", 1000}},
		"renew with TTL 0":               {renewLua, keys(k), []any{"T", 0}},
		"release without channels":       {releaseLua, keys(k), []any{"T", "PUBLISH", ""}},
		"release without token":          {releaseLua, keys(k), []any{"", "PUBLISH", "", "c"}},
		"hand over without new token":    {handoverLua, keys(k, fenceKey(k)), []any{"T", "", 1000, 1000}},
		"hand over to the same":          {handoverLua, keys(k, fenceKey(k)), []any{"T", "T", 1000, 1000}},
		"hand over with TTL 0":           {handoverLua, keys(k, fenceKey(k)), []any{"T", "U", 0, 1000}},
		"hand over without fence":        {handoverLua, keys(k), []any{"T", "U", 1000, 1000}},
		"force without token":            {forceLua, keys(k, fenceKey(k)), []any{"", 1000, "PUBLISH", "", "c"}},
		"force without channel":          {forceLua, keys(k, fenceKey(k)), []any{"T", 1000, "PUBLISH", ""}},
		"force with counter TTL of zero": {forceLua, keys(k, fenceKey(k)), []any{"T", 0, "PUBLISH", "", "c"}},
	} {
		err := rdb.Eval(t.Context(), tt.src, tt.keys, tt.args...).Err()
		if err == nil || !strings.Contains(err.Error(), "bad arguments") {
			t.Errorf("%s: %v, want an error about the arguments", name, err)
		}
	}
	if left := srv.Keys(t, p); len(left) > 0 {
		t.Errorf("something was written: %v", left)
	}
}

// D71, X33: after the counter is lost (expiry, eviction, FLUSHALL, failover) the next number is above every earlier one;
// if the server's clock steps back, the counter keeps it growing.
func TestFenceSurvivesTheLossOfItsCounter(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, p := srv.Client(t), srv.Prefix(t)
	l := over(t, rdb, Prefix(p))
	last := int64(0)
	take := func(what string) int64 {
		t.Helper()
		lease := must(t, l, keys("a"))
		defer free(t, lease)
		if lease.Fence() <= last {
			t.Errorf("%s: fence %d after %d", what, lease.Fence(), last)
		}
		last = lease.Fence()
		return last
	}
	take("first")
	check(t, rdb.Del(t.Context(), fenceKey(p+"lock:a")).Err())
	take("counter lost")
	now := take("again")
	if d := time.Since(time.UnixMicro(now)); d > time.Minute || d < -time.Minute {
		t.Errorf("number %d is %v from the clock", now, d)
	}
	future := time.Now().Add(time.Hour).UnixMicro()
	check(t, rdb.Set(t.Context(), fenceKey(p+"lock:a"), future, time.Hour).Err())
	if got := take("clock stepped back"); got != future+1 {
		t.Errorf("with a counter ahead of the clock: %d, want %d", got, future+1)
	}
	check(t, rdb.Set(t.Context(), fenceKey(p+"lock:a"), int64(1)<<53-2, time.Hour).Err())
	if got := take("large"); got != 1<<53-1 {
		t.Errorf("number %d, want %d: exact up to 2^53-1", got, int64(1)<<53-1)
	}
}

// A repeated acquire whose counter was lost meanwhile still has a number above those given out.
func TestRepeatAfterTheLossOfTheCounter(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, p := srv.Client(t), srv.Prefix(t)
	k := p + "lock:a"
	number := func(src string, args ...any) int64 {
		t.Helper()
		val, err := rdb.Eval(t.Context(), src, keys(k, fenceKey(k)), args...).Slice()
		if err != nil || len(val) != 2 || val[0] != int64(1) {
			t.Fatal(val, err)
		}
		n, err := strconv.ParseInt(val[1].(string), 10, 64)
		check(t, err)
		return n
	}
	first := number(acquireLua, "T", 60000, 60000, 0)
	check(t, rdb.Del(t.Context(), fenceKey(k)).Err())
	if again := number(acquireLua, "T", 60000, 60000, 0); again <= first {
		t.Errorf("number %d after %d", again, first)
	}
	passed := number(handoverLua, "T", "U", 60000, 60000)
	check(t, rdb.Del(t.Context(), fenceKey(k)).Err())
	if again := number(handoverLua, "T", "U", 60000, 60000); again <= passed {
		t.Errorf("hand-over: number %d after %d", again, passed)
	}
}

// F014, C05: each key has a TTL: 10 000 names locked twice leave 10 000 counters, each with a day at most, and no lock.
func TestEveryKeyHasATTL(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, p := srv.Client(t), srv.Prefix(t)
	l := over(t, rdb, Prefix(p))
	names := 10_000
	if testing.Short() {
		names = 100
	}
	stop, sampled := make(chan struct{}), make(chan int)
	go func() { // while it runs, too: no lock is ever without a TTL
		n := 0
		for {
			select {
			case <-stop:
				sampled <- n
				return
			default:
			}
			n++
			if eternal, err := eternalKeys(rdb, p); err != nil || len(eternal) > 0 {
				t.Errorf("without TTL: %v, %v", eternal, err)
			}
		}
	}()
	parallel(64, 2*names, func(i int) {
		lease, err := l.Acquire(t.Context(), keys(fmt.Sprint(i%names)))
		if err != nil {
			t.Error(err)
			return
		}
		free(t, lease)
	})
	close(stop)
	if n := <-sampled; n == 0 {
		t.Error("nothing was sampled")
	}
	if left := srv.Keys(t, p); len(left) > 0 {
		t.Errorf("%d locks left, among them %s", len(left), left[0])
	}
	if n := len(srv.Keys(t, "{"+p)); n != names {
		t.Errorf("%d counters, want %d", n, names)
	}
	if eternal := srv.Eternal(t, "{"+p); len(eternal) > 0 {
		t.Errorf("%d counters without TTL, among them %s", len(eternal), eternal[0])
	}
	if ttl := rdb.PTTL(t.Context(), fenceKey(p+"lock:1")).Val(); ttl <= 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("a counter lives for %v, want a day", ttl)
	}
}

// eternalKeys looks once at some keys with the prefix and returns those that never expire.
func eternalKeys(rdb *redis.Client, prefix string) (eternal []string, err error) {
	ctx := context.Background()
	found, _, err := rdb.Scan(ctx, 0, prefix+"*", 1000).Result()
	if err != nil {
		return nil, err
	}
	for _, key := range found {
		ttl, err := rdb.PTTL(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		if ttl == -1 {
			eternal = append(eternal, key)
		}
	}
	return eternal, nil
}

// No code path sets a key without an expiry: of all commands seen, each SET has a PX, and nothing else sets anything.
func TestEverySetHasAnExpiry(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	a, b := over(t, rdb, TTL(500*time.Millisecond)), over(t, rdb, TTL(500*time.Millisecond))
	mon := srv.Monitor(t)
	parallel(16, 300, func(i int) {
		l := []*Locker{a, b}[i%2]
		err := l.Do(t.Context(), [][]string{keys("x"), keys("y"), keys("x", "y", "z")}[i%3], func(context.Context) error { return nil }, Wait(time.Minute))
		if err != nil && !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
	lease := must(t, a, keys("forced"))
	testserver.Eventually(t, soon, func() bool { return renewalsOf(lease) > 0 }, "a renewal is confirmed")
	if _, ok, err := b.ForceRelease(t.Context(), "forced", "test"); !ok || err != nil {
		t.Error(ok, err)
	}
	_ = lease.Release(t.Context())
	sets, handed := 0, false
	for _, c := range mon.Commands(t) {
		switch c.Name {
		case "SET":
			sets++
			if !slices.Contains(c.Args, "PX") {
				t.Errorf("%v has no expiry", c)
			}
			handed = handed || c.Script && !slices.Contains(c.Args, "NX") && !strings.Contains(c.Args[0], "fence")
		case "SETNX", "MSET", "GETSET", "APPEND", "INCR", "INCRBY", "PERSIST", "RENAME", "RESTORE":
			t.Errorf("%v", c)
		}
	}
	if sets < 600 || !handed {
		t.Errorf("%d times SET, a hand-over among them: %v; this shows little", sets, handed)
	}
}

// A03: value and expiry are set in one command, in one round trip, with NX and PX; there is no EXPIRE.
// And what each step costs inside the server: acquire 6, taken 3, release 4, hand-over 5 commands.
func TestWhatIsSentToTheServer(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	l := over(t, rdb)
	free(t, must(t, l, keys("warm"))) // connections, scripts
	mon := srv.Monitor(t)

	lease := must(t, l, keys("a"), TTL(30*time.Second))
	step(t, mon, "acquire", 6)
	sets := mon.Commands(t, "lock:a")
	sets = slices.DeleteFunc(sets, func(c testserver.Command) bool { return c.Name != "SET" || c.Args[0] != "lock:a" })
	if len(sets) != 1 || !slices.Equal(sets[0].Args[2:], []string{"NX", "PX", "30000"}) {
		t.Errorf("the lock was set by %v, want one SET with NX and PX 30000", sets)
	}
	for _, name := range []string{"EXPIRE", "PEXPIRE", "SETEX", "SETNX"} {
		if n := mon.Count(t, name); n > 0 {
			t.Errorf("%d times %s", n, name)
		}
	}
	if ttl := rdb.PTTL(t.Context(), "lock:a").Val(); ttl <= 0 || ttl > 30*time.Second {
		t.Errorf("TTL %v, want up to 30s", ttl)
	}
	if kind := rdb.Type(t.Context(), "lock:a").Val(); kind != "string" {
		t.Errorf("the lock is a %s, want a string", kind)
	}
	other := over(t, rdb)
	mon.Reset(t)
	if _, ok, err := other.TryAcquire(t.Context(), keys("a")); ok || err != nil {
		t.Fatal(ok, err)
	}
	step(t, mon, "taken", 3)

	mon.Reset(t)
	done := make(chan *Lease)
	go func() { done <- must(t, l, keys("a")) }()
	testserver.Eventually(t, soon, func() bool { return l.queue.waitingFor("lock:a") == 1 }, "a waiter stands in line")
	free(t, lease)
	lease = <-done
	step(t, mon, "hand-over", 5)

	mon.Reset(t)
	free(t, lease)
	step(t, mon, "release", 4)
}

// step checks that one round trip was sent, and how many commands the server has executed for it.
func step(t *testing.T, mon *testserver.Monitor, name string, most int) {
	t.Helper()
	all, sent := mon.Commands(t), mon.Sent(t, "lock:a")
	all = slices.DeleteFunc(all, func(c testserver.Command) bool { // a new connection, the question what the server is
		return slices.Contains([]string{"HELLO", "CLIENT", "INFO", "CLUSTER", "COMMAND"}, c.Name)
	})
	if len(sent) != 1 || len(all) > most {
		t.Errorf("%s: %d round trips and %d commands, want 1 and at most %d:\n%v", name, len(sent), len(all), most, all)
	}
}

// The TTL that a script is given is exact: a sub-second one is not rounded.
func TestSubSecondTTLs(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, p := srv.Client(t), srv.Prefix(t)
	l := over(t, rdb, Prefix(p))
	for _, ttl := range []time.Duration{800 * time.Millisecond, 1900 * time.Millisecond, time.Second} {
		lease := must(t, l, keys("a"), TTL(ttl))
		if left := rdb.PTTL(t.Context(), p+"lock:a").Val(); left > ttl || left < ttl-500*time.Millisecond {
			t.Errorf("TTL %v: %v at once", ttl, left)
		}
		free(t, lease)
	}
}

// parallel runs fn(0) to fn(n-1) on that many goroutines.
func parallel(goroutines, n int, fn func(i int)) {
	next := make(chan int)
	done := make(chan struct{})
	for range goroutines {
		go func() {
			for i := range next {
				fn(i)
			}
			done <- struct{}{}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range goroutines {
		<-done
	}
}
