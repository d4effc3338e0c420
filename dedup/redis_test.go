package dedup_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func store(t testing.TB, rdb redis.UniversalClient, prefix string) *dedup.RedisStore {
	t.Helper()
	s, err := dedup.NewRedisStore(rdb, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract_Embedded(t *testing.T) {
	t.Parallel()
	srv, rdb := mini(t)
	ageing(t, srv)
	deduptest.Run(t, func(t *testing.T) dedup.Store { return store(t, rdb, "") })
}

// ageing has the keys of an embedded server age, which they do not by themselves.
func ageing(t *testing.T, srv *miniredis.Miniredis) {
	const step = 5 * time.Millisecond
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case now := <-tick.C:
				srv.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
}

func TestContract_Real(t *testing.T) {
	t.Parallel()
	for _, dep := range testserver.Deployments() {
		t.Run(dep.Name, func(t *testing.T) {
			t.Parallel()
			rdb, prefix := dep.Open(t)
			deduptest.Run(t, func(t *testing.T) dedup.Store { return store(t, rdb, prefix) })
			if keys := dep.Eternal(t, prefix); len(keys) > 0 {
				t.Errorf("%d keys without a TTL, such as %q", len(keys), keys[0])
			}
		})
	}
}

func TestKeyIsPrefixIdemAndRecordID(t *testing.T) {
	srv, rdb := mini(t)
	d := engine(t, rdb, dedup.Prefix("shop:"))
	claim := begun(t, d, buy("secret-key"))
	defer claim.Forget(t.Context(), nil, nil)
	if keys := srv.Keys(); len(keys) != 1 || keys[0] != "shop:idem:"+claim.RequestID() {
		t.Errorf("keys %q, want shop:idem:%s", keys, claim.RequestID())
	}
	if strings.Contains(srv.Dump(), "secret-key") || strings.Contains(srv.Dump(), "user-7") {
		t.Error("the client's key or the scope is in Redis")
	}
}

// What is not a record of this format is never run over, and left as it was.
func TestForeignValuesAreLeftAlone(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	fill := map[string]struct {
		put      func(key string) error
		wantCode int // readable, so replayed as a tombstone
	}{
		"a string":                {func(key string) error { return rdb.Set(t.Context(), key, "x", time.Minute).Err() }, 0},
		"a list":                  {func(key string) error { return rdb.RPush(t.Context(), key, "x").Err() }, 0},
		"a hash of somebody else": {func(key string) error { return rdb.HSet(t.Context(), key, "name", "x").Err() }, 0},
		"a newer format":          {func(key string) error { return rdb.HSet(t.Context(), key, "v", "2", "st", "running").Err() }, 0},
		"a newer format, done":    {func(key string) error { return rdb.HSet(t.Context(), key, "v", "2", "st", "done", "code", "201").Err() }, 201},
		"a state nobody knows":    {func(key string) error { return rdb.HSet(t.Context(), key, whole("st", "asleep")).Err() }, 0},
		"an attempt of 0":         {func(key string) error { return rdb.HSet(t.Context(), key, whole("att", "0")).Err() }, 0},
		"an attempt that is text": {func(key string) error { return rdb.HSet(t.Context(), key, whole("att", "one")).Err() }, 0},
		"an attempt beyond 10^15": {func(key string) error { return rdb.HSet(t.Context(), key, whole("att", "1000000000000000")).Err() }, 0},
		"a lease that is text":    {func(key string) error { return rdb.HSet(t.Context(), key, whole("lease", "soon")).Err() }, 0},
		"no token":                {func(key string) error { return rdb.HSet(t.Context(), key, without("tok")).Err() }, 0},
		"no fingerprint field":    {func(key string) error { return rdb.HSet(t.Context(), key, without("fp")).Err() }, 0},
		"done without a result":   {func(key string) error { return rdb.HSet(t.Context(), key, whole("st", "done", "code", "201")).Err() }, 201},
		"done with code and no sum": {func(key string) error {
			return rdb.HSet(t.Context(), key, whole("st", "done", "code", "OK", "omit", "0", "res", "")).Err()
		}, 0},
	}
	for name, c := range fill {
		t.Run(name, func(t *testing.T) {
			prefix := srv.Prefix(t)
			s := store(t, rdb, prefix)
			d := engineOn(t, s)
			req := dedup.Request{Scope: "s", Key: "k"}
			key := prefix + "idem:" + req.ID()
			if err := c.put(key); err != nil {
				t.Fatal(err)
			}
			if err := rdb.Expire(t.Context(), key, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			before := rdb.Dump(t.Context(), key).Val()
			claim, rec, err := d.Begin(t.Context(), req)
			switch {
			case claim != nil:
				t.Error("it runs")
			case c.wantCode == 0 && !errors.Is(err, dedup.ErrCorrupt):
				t.Errorf("got %+v, %v; want ErrCorrupt", rec, err)
			case c.wantCode != 0 && (rec == nil || rec.Code != c.wantCode || !rec.Omitted):
				t.Errorf("got %+v, %v; want a tombstone with %d", rec, err, c.wantCode)
			}
			o := dedup.Owner{ID: req.ID(), Token: "t", Attempt: 1}
			for call, err := range map[string]error{
				"Renew": s.Renew(t.Context(), o, time.Second), "Complete": s.Complete(t.Context(), o, dedup.Result{}, time.Minute),
				"Fail": s.Fail(t.Context(), o), "Forget": s.Forget(t.Context(), o),
			} {
				if !errors.Is(err, dedup.ErrCorrupt) && !errors.Is(err, dedup.ErrLeaseLost) {
					t.Errorf("%s returned %v, want ErrCorrupt or ErrLeaseLost", call, err)
				}
			}
			if after := rdb.Dump(t.Context(), key).Val(); after != before {
				t.Error("the value was changed")
			}
		})
	}
}

// whole returns the fields of a good record with some of them changed.
func whole(changes ...string) map[string]any {
	fields := map[string]any{
		"v": "1", "st": "running", "tok": "somebody", "att": "1", "fp": "", "lease": "9999999999999", "to": "0", "tp": "", "born": "1",
	}
	for i := 0; i < len(changes); i += 2 {
		fields[changes[i]] = changes[i+1]
	}
	return fields
}

func without(field string) map[string]any {
	fields := whole()
	delete(fields, field)
	return fields
}
