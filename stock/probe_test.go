package stock

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Invariants 2 and 6: a user to whom the server's access rules allow only some of the commands would stop each script between
// its writes. New, NewQuota and NewTokens refuse him, and name what is missing; with these commands alone everything works.
func TestRefusedCommandsAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t)
	admin := srv.Client(t)
	makers := map[string]func(rdb redis.UniversalClient) error{
		"New":       func(rdb redis.UniversalClient) error { _, err := New(rdb, WithStream()); return err },
		"NewQuota":  func(rdb redis.UniversalClient) error { _, err := NewQuota(rdb); return err },
		"NewTokens": func(rdb redis.UniversalClient) error { _, err := NewTokens(rdb); return err },
	}
	as := func(user string, rules ...any) redis.UniversalClient {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "reset", "on", ">pw", "~*", "&*"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		return srv.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "pw" })
	}
	types := []any{"+@string", "+@hash", "+@sortedset", "+@list", "+@stream", "+@scripting", "+@connection", "+info", "+cluster"}
	for name, make := range makers {
		err := make(as("types", types...))
		e := &env{T: t}
		typed := e.wants(err, ErrInvalid, "%s by a user without commands for keys", name)
		for _, command := range []string{"PTTL", "PEXPIREAT", "DEL", "TIME"} {
			if !strings.Contains(typed.Error(), command) {
				t.Errorf("%s: %q does not name %s", name, typed, command)
			}
		}
		if strings.Contains(typed.Error(), "HSET") {
			t.Errorf("%s: %q names what is allowed", name, typed)
		}
	}

	allowed := []any{"+eval", "+evalsha", "+script", "+info", "+cluster", "+@connection"}
	for _, command := range probed(t) {
		allowed = append(allowed, "+"+strings.ToLower(command))
	}
	rdb := as("exact", allowed...)
	for name, make := range makers {
		if err := make(rdb); err != nil {
			t.Errorf("%s by a user with exactly these commands: %v", name, err)
		}
	}
	e := &env{T: t, rdb: rdb, prefix: "t:"}
	c := e.counter(WithHold(leastHold), WithStream())
	e.warm(c, Sale{Units: 3, Limit: Limit{Units: 2}})
	o := e.order(1)
	res := e.deduct(c, o)
	e.deduct(c, e.order(1))
	e.ended(c.Release(t.Context(), res.Order, Failed))(Ended{Outcome: OutcomeReleased, Units: 1})
	tokens := e.tokens()
	e.load(tokens, e.batch(2, 1))
	if _, err := tokens.Take(t.Context(), e.ask(1)); err != nil {
		t.Error(err)
	}
}

// The looking leaves nothing behind.
func TestLookingAtTheStartLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		e.unchanged("the start", func() {
			e.counter(WithHold(time.Minute), WithStream())
			e.quota(WithStream())
			e.tokens()
		})
	})
}

// probed returns the commands that probe.lua looks at.
func probed(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, call := range redisCall.FindAllStringSubmatch(luaFiles(t)["probe.lua"], -1) {
		names = append(names, call[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Whoever gives a script another command finds it here: it is probed, and documented.
func TestEveryCommandIsProbed(t *testing.T) {
	names := probed(t)
	page, err := os.ReadFile("../docs/stock.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range luaFiles(t) {
		for _, call := range redisCall.FindAllStringSubmatch(text, -1) {
			if call[1] != "PUBLISH" && !slices.Contains(names, call[1]) { // who is refused that does not hear of returns, see tell
				t.Errorf("%s: %s is not probed", file, call[1])
			}
			if !strings.Contains(string(page), "`"+call[1]+"`") {
				t.Errorf("%s: %s is not on the page of what is called", file, call[1])
			}
		}
	}
}
