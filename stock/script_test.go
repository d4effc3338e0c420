package stock

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(sources, "lua", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		files[d.Name()] = string(text)
		return err
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	return files
}

func everyScript() []*redisx.Script {
	all := newScripts(&keyspace{}, &config{hold: time.Minute, stream: true, backlog: 10}).all()
	all = append(all, newScripts(&keyspace{quota: true}, &config{keep: time.Hour}).all()...)
	return append(all, newScripts(&keyspace{tokens: true}, &config{}).all()...)
}

var (
	redisCall = regexp.MustCompile(`redis\.p?call\('(\w+)'(?:,\s*([^,)]+))?`)
	tellCall  = regexp.MustCompile(`(?m)^\s*tell\(([^,)]+)`)
)

// F054, F055: the key of every command in every script is an element of KEYS; nothing builds one. TIME names nothing, and
// PUBLISH, which only the function tell sends, a channel that is an argument.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	calls := 0
	for name, text := range luaFiles(t) {
		for _, call := range redisCall.FindAllStringSubmatch(text, -1) {
			calls++
			command, first := call[1], strings.TrimSpace(call[2])
			switch {
			case command == "TIME", command == "PUBLISH" && name == "common.lua" && first == "channel":
			case !strings.HasPrefix(first, "KEYS["):
				t.Errorf("%s: %s: its key is not an element of KEYS", name, call[0])
			}
		}
		for _, call := range tellCall.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(call[1], "ARGV[") {
				t.Errorf("%s: %s: its channel is not an element of ARGV", name, strings.TrimSpace(call[0]))
			}
		}
		if n := strings.Count(text, "redis.call(") + strings.Count(text, "redis.pcall("); n != len(redisCall.FindAllString(text, -1)) {
			t.Errorf("%s: a command that this test cannot read", name)
		}
	}
	if calls < 50 {
		t.Errorf("only %d commands were found", calls)
	}
}

// Each script says what its KEYS and ARGV are, what it returns and what it costs, and that it checks before it writes.
func TestScriptsAreDocumented(t *testing.T) {
	writes := regexp.MustCompile(`'(SET|HSET|DEL|HDEL|RPUSH|LPOP|RENAME|ZADD|ZREM|XADD|INCRBY|DECRBY|HINCRBY|PEXPIRE|PEXPIREAT)'`)
	shared := []string{"common.lua", "counter_string.lua", "counter_hash.lua", "proof.lua"}
	for name, text := range luaFiles(t) {
		if slices.Contains(shared, name) {
			continue
		}
		head, _, _ := strings.Cut(text, "\n\n")
		for _, want := range []string{"-- KEYS  ", "-- ARGV  ", "-- Returns ", "Complexity: "} {
			if !strings.Contains(head, want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		if writes.MatchString(text) && !strings.Contains(head, "checked before the first write") && name != "held.lua" && name != "whole_close.lua" {
			t.Errorf("%s writes and does not say what it checks before", name)
		}
	}
}

// F060: every script is loaded at the start and in this test; one that does not compile stops the start.
func TestScriptsLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for _, s := range everyScript() {
			if s == nil {
				t.Fatal("a script is not made")
			}
		}
		if c := e.counter(); c.rdb.Preload(c.scripts.all()...) != nil {
			t.Error("a script does not load")
		}
		if c := e.quota(); c.rdb.Preload(c.scripts.all()...) != nil {
			t.Error("a script of quotas does not load")
		}
	})
}

// F051: with every key missing, each script gives a typed answer and makes nothing that should not be there.
func TestEveryKeyMissing(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		o := Order{ID: newOrderID() + "-00", RequestID: "q", Item: 1001, User: 1, Units: 1}
		for kind, c := range map[string]*Counter{"stock": e.counter(WithHold(time.Minute), WithStream()), "quota": e.quota(WithHold(time.Minute))} {
			e.unchanged(kind, func() {
				e.refused(c, o, ErrNotWarmed)
				_, err := c.Confirm(t.Context(), o.ID, Of(o))
				e.wants(err, ErrNotHeld, "Confirm")
				_, err = c.Release(t.Context(), o.ID, Failed, Of(o))
				e.wants(err, ErrNotHeld, "Release")
				_, err = c.Release(t.Context(), o.ID, Failed)
				e.wants(err, ErrNotHeld, "Release without Of")
				_, err = c.Remaining(t.Context(), 1001)
				e.wants(err, ErrNotWarmed, "Remaining")
				_, err = c.Status(t.Context(), 1001)
				e.wants(err, ErrNotWarmed, "Status")
				e.wants(c.Pause(t.Context(), 1001), ErrNotWarmed, "Pause")
				e.wants(c.Resume(t.Context(), 1001), ErrNotWarmed, "Resume")
				_, err = c.Thaw(t.Context(), 1001, "op", "me")
				e.wants(err, ErrNotWarmed, "Thaw")
				for _, delta := range []int64{1, -1} {
					_, err = c.Adjust(t.Context(), 1001, delta, "op", "me")
					e.wants(err, ErrNotWarmed, "Adjust by %d", delta)
				}
				_, err = c.Restore(t.Context(), 1001, 1, "op", "me")
				e.wants(err, ErrNotWarmed, "Restore")
				if holds, err := c.Expired(t.Context(), 10); err != nil || len(holds) != 0 {
					t.Errorf("Expired = %v, %v", holds, err)
				}
			})
		}
	})
}

// Whatever the arguments are, a script answers, never fails, and writes nothing when it says that an argument is wrong.
func TestScriptsAnswerToAnyArguments(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		all := everyScript()
		files := luaFiles(t)
		values := []string{"", "0", "1", "1", "2", "-1", "1.5", "1e0", "abc", "9007199254740992", "1 0", "4000000000000"}
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		for range e.crowd(2000) {
			s := all[rnd.IntN(len(all))]
			shape := shapeOf(s.Name(), files[s.Name()], rnd)
			names := make([]string, shape[0])
			for i := range names {
				names[i] = e.key(fmt.Sprintf("stock:fuzz:%d", i))
			}
			args := make([]any, shape[1])
			for i := range args {
				args[i] = values[rnd.IntN(len(values))]
			}
			reply, err := c.rdb.Run(t.Context(), s, names, args...)
			a, ok := reply.Val.([]any)
			if err != nil || !ok || len(a) == 0 {
				t.Fatalf("%s with %d keys and %q answers %v, %v (seed %d)", s.Name(), len(names), args, reply.Val, err, seed)
			}
			if n := e.rdb.Del(t.Context(), names...).Val(); n > 0 && answer(a).code() == codeInvalid {
				t.Fatalf("%s with %d keys and %q says %v and has written (seed %d)", s.Name(), len(names), args, a, seed)
			}
		}
	})
}

// shapeOf returns a number of keys and of arguments: mostly those that the script wants, so that it looks at their values.
func shapeOf(name, text string, rnd *rand.Rand) [2]int {
	shape := [2]int{1 + rnd.IntN(8), rnd.IntN(24)}
	if rnd.IntN(4) == 0 {
		return shape
	}
	for i, pattern := range []string{`#KEYS ~= (\d+)`, `#ARGV ~= (\d+)`} {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
			shape[i], _ = strconv.Atoi(m[1])
		}
	}
	switch name {
	case "deduct.lua":
		shape = [2]int{5 + rnd.IntN(3), 9 + 3*rnd.IntN(2)}
	case "release.lua", "undo.lua":
		shape[0] = 5 + rnd.IntN(2)
	}
	return shape
}

// F056: scripts that the server has forgotten are sent again by themselves.
func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { forget(t, newMini(t, 0), func() {}) })
	t.Run("redis", func(t *testing.T) {
		srv := testserver.NewRedis(t, testserver.AppendOnly())
		e := &env{T: t, rdb: srv.Client(t), prefix: "t:"}
		forget(t, e, func() { srv.Restart(t) })
	})
}

func forget(t *testing.T, e *env, restart func()) {
	c := e.counter(WithHold(time.Minute))
	e.warm(c, Sale{Units: 10})
	for i, lose := range []func(){func() {}, func() { e.rdb.ScriptFlush(t.Context()) }, restart} {
		lose()
		res := e.deduct(c, e.order(i))
		if _, err := c.Release(t.Context(), res.Order, Failed); err != nil {
			t.Error(err)
		}
	}
	e.left(c, 10)
}

// F112: miniredis and a real server answer the same and store the same, step by step.
func TestMiniredisAndRedisAgree(t *testing.T) {
	t.Parallel()
	real := newReal(t)
	mini := newMini(t, 0)
	mini.prefix = real.prefix
	steps := []func(e *env, c *Counter, quota *Counter) []any{
		func(e *env, c, quota *Counter) []any {
			w, err := c.Warm(e.Context(), usual(Sale{Units: 7, Limit: Limit{Units: 3}, Ends: time.UnixMilli(4e12)}))
			return []any{w, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := c.Deduct(e.Context(), Order{ID: "a", RequestID: "a", Item: 1001, User: 1, Units: 2})
			return []any{res, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := c.Deduct(e.Context(), Order{ID: "a", RequestID: "a", Item: 1001, User: 1, Units: 2})
			return []any{res, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := c.Deduct(e.Context(), Order{ID: "b", RequestID: "b", Item: 1001, User: 1, Units: 2})
			return []any{res, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := c.Deduct(e.Context(), Order{ID: "c", RequestID: "c", User: 1, Lines: []Line{{1001, "x", 1}, {1002, nil, 1}}})
			return []any{res, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := c.Deduct(e.Context(), Order{ID: "d", RequestID: "d", User: 2, Lines: []Line{{1001, "x", 1}, {1001, "y", 1}}})
			return []any{res, err}
		},
		func(e *env, c, quota *Counter) []any {
			got, err := c.Release(e.Context(), "a", Failed, Units(1), Operation("op"))
			return []any{got, err}
		},
		func(e *env, c, quota *Counter) []any { got, err := c.Confirm(e.Context(), "a"); return []any{got, err} },
		func(e *env, c, quota *Counter) []any {
			got, err := c.Release(e.Context(), "d", Insufficient)
			return []any{got, err}
		},
		func(e *env, c, quota *Counter) []any { s, err := c.Status(e.Context(), 1001); return []any{s, err} },
		func(e *env, c, quota *Counter) []any {
			n, err := c.Adjust(e.Context(), 1001, 50, "op", "me")
			return []any{n, err}
		},
		func(e *env, c, quota *Counter) []any {
			w, err := quota.Warm(e.Context(), usual(Sale{Units: 1003, Segments: 10, Ends: time.UnixMilli(4e12)}))
			return []any{w, err}
		},
		func(e *env, c, quota *Counter) []any {
			res, err := quota.Deduct(e.Context(), Order{ID: "q", RequestID: "q", Item: 1001, Units: 555})
			return []any{res, err}
		},
	}
	counters := func(e *env) (*Counter, *Counter) { return e.counter(WithHold(time.Minute), WithStream()), e.quota() }
	realStock, realQuota := counters(real)
	miniStock, miniQuota := counters(mini)
	for i, step := range steps {
		a, b := fmt.Sprint(step(real, realStock, realQuota)...), fmt.Sprint(step(mini, miniStock, miniQuota)...)
		if a != b {
			t.Errorf("step %d: redis answers %s, miniredis %s", i, a, b)
		}
		if a, b := withoutTimes(real.dump()), withoutTimes(mini.dump()); !maps.Equal(a, b) {
			t.Errorf("step %d: redis has\n%v\nminiredis has\n%v", i, a, b)
		}
	}
}

// withoutTimes leaves out what differs between two runs: Unix milliseconds and the ids of stream entries.
func withoutTimes(dump map[string]string) map[string]string {
	times := regexp.MustCompile(`1\d{12}(-\d+)?|1\.\d+e\+12`)
	for key, value := range dump {
		dump[key] = times.ReplaceAllString(value, "T")
	}
	return dump
}

var randomID = regexp.MustCompile(`[A-Z2-7]{26}`)

// X23: a flat keyspace on a cluster is refused by New, with the remedy.
func TestFlatKeyspaceOnAClusterIsRefused(t *testing.T) {
	e := newCluster(t)
	_, err := New(e.rdb, Prefix(e.prefix))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WithPartitions") {
		t.Errorf("New = %v, want an error that names WithPartitions", err)
	}
	// The server is asked, not the client's type.
	single := redis.NewClient(&redis.Options{Addr: testserver.Cluster(t).Addrs()[0]})
	defer single.Close()
	if _, err := New(single, Prefix(e.prefix)); !errors.Is(err, ErrInvalid) {
		t.Errorf("New with a plain client = %v, want the same refusal", err)
	}
}

// A server that is away at the start stops nobody; the cluster is noticed by the first warm-up.
func TestServerAwayAtTheStart(t *testing.T) {
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	srv.Close()
	c, err := New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t}
	_, err = c.Warm(t.Context(), usual(Sale{Units: 1}))
	e.wants(err, ErrUnavailable, "Warm with the server away")
	e.refused(c, e.order(1), ErrUnavailable)
	_, err = c.Remaining(t.Context(), 1001)
	e.wants(err, ErrUnavailable, "Remaining with the server away")
}
