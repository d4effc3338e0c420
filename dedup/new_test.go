package dedup_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	_, rdb := mini(t)
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, make := range map[string]func() (*dedup.Dedup, error){
		"no client":         func() (*dedup.Dedup, error) { return dedup.New(nil) },
		"a ring":            func() (*dedup.Dedup, error) { return dedup.New(ring) },
		"brace in a prefix": func() (*dedup.Dedup, error) { return dedup.New(rdb, dedup.Prefix("{a}")) },
		"long prefix":       func() (*dedup.Dedup, error) { return dedup.New(rdb, dedup.Prefix(strings.Repeat("a", 129))) },
		"no store":          func() (*dedup.Dedup, error) { return dedup.NewWithStore(nil) },
		"prefix of a store": func() (*dedup.Dedup, error) {
			return dedup.NewWithStore(deduptest.NewMemory(), dedup.Prefix("a:"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := make(); !errors.Is(err, dedup.ErrInvalid) || d != nil {
				t.Errorf("got %v, %v; want ErrInvalid", d, err)
			}
		})
	}
}

func TestNewDoesNotNeedTheServer(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	d := engine(t, rdb)
	if _, _, err := d.Begin(t.Context(), buy("k")); !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, dedup.ErrUnknownOutcome) {
		t.Errorf("Begin: %v, want ErrUnavailable", err)
	}
}

func TestNewWarnsOfAServerThatMayForget(t *testing.T) {
	for policy, warn := range map[string]int{"noeviction": 0, "allkeys-lru": 1, "volatile-ttl": 1} {
		srv := testserver.NewRedis(t, testserver.MaxMemory("100mb", policy))
		logs := &logbook{}
		engine(t, srv.Client(t), dedup.WithLogger(logs.logger()))
		if logs.count("maxmemory_policy", policy) != warn || logs.count("level", slog.LevelWarn) != warn {
			t.Errorf("%s: %v; want %d warnings", policy, logs.records, warn)
		}
	}
}

// A script that the server cannot compile stops the start, with its name.
func TestNewNeedsTheScripts(t *testing.T) {
	rdb := testserver.NewRedis(t).Client(t)
	rdb.AddHook(noScripts{})
	if _, err := dedup.New(rdb); err == nil || !strings.Contains(err.Error(), "dedup/begin.lua") {
		t.Errorf("got %v, want an error that names the script", err)
	}
}

// noScripts is a server that cannot compile scripts.
type noScripts struct{}

func (noScripts) DialHook(next redis.DialHook) redis.DialHook { return next }
func (noScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (noScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "script" {
			return next(ctx, cmd)
		}
		cmd.SetErr(cannotCompile{})
		return cannotCompile{}
	}
}

type cannotCompile struct{}

func (cannotCompile) Error() string { return "ERR Error compiling script (new function)" }
func (cannotCompile) RedisError()   {}
