package lock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A Redis that may evict locks is warned of at the start, one that may not is not.
func TestEvictionIsWarnedOf(t *testing.T) {
	for policy, warn := range map[string]bool{"noeviction": false, "allkeys-lru": true, "volatile-ttl": true} {
		var out syncBuffer
		srv := testserver.NewRedis(t, testserver.MaxMemory("100mb", policy))
		over(t, srv.Client(t), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		if got := strings.Contains(out.String(), "level=WARN") && strings.Contains(out.String(), policy); got != warn {
			t.Errorf("%s: logged %q, want a warning: %v", policy, out.String(), warn)
		}
	}
}

// A server that is away when the service starts is no reason not to start; it is used, and known for what it is, when it
// is there.
func TestServerThatComesLater(t *testing.T) {
	srv := testserver.NewRedis(t, testserver.RedisConfig("cluster-enabled", "yes"))
	rdb := srv.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	check(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	srv.Kill(t)
	l := over(t, rdb)
	if _, err := l.Acquire(t.Context(), keys("a")); !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("err = %v, want ErrUnavailable", err)
	}
	srv.Restart(t)
	check(t, ignoreSlots(rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err()))
	b := l.backend.(*redisBackend)
	testserver.Eventually(t, 2*soon, func() bool { return b.mode.Load() == modeCluster }, "the server is found to be a cluster")
	testserver.Eventually(t, soon, func() bool {
		return l.Do(t.Context(), keysOfManySlots(4), func(context.Context) error { return nil }) == nil
	}, "keys of several slots are locked")
}

// ignoreSlots passes over the error of a node that has kept its slots.
func ignoreSlots(err error) error {
	if err != nil && strings.Contains(err.Error(), "already busy") {
		return nil
	}
	return err
}

// A script that the server cannot run stops the start, with its name.
func TestServerThatCannotRunScripts(t *testing.T) {
	srv := testserver.NewRedis(t)
	check(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-script").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "poor", "secret" })
	l := over(t, rdb) // EVAL does without loading
	free(t, must(t, l, keys("a")))

	rdb.AddHook(noScripts{})
	if _, err := New(rdb, WithLogger(quietLogger())); err == nil || !strings.Contains(err.Error(), "acquire.lua") {
		t.Errorf("err = %v, want one that names the script", err)
	}
}

// noScripts is a server that cannot compile scripts.
type noScripts struct{ answering }

func (noScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "script" {
			return next(ctx, cmd)
		}
		err := serverError("ERR Error compiling script (new function)")
		cmd.SetErr(err)
		return err
	}
}

// Close waits for what is on the wire, and for nothing else.
func TestCloseWhileTheServerHangs(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
	l := over(t, rdb, TTL(time.Minute))
	lease := must(t, l, keys("a"))
	srv.Pause(t)
	_ = lease.Release(t.Context())
	start := time.Now()
	check(t, l.Close(t.Context()))
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	srv.Resume(t)
}
