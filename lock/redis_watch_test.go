package lock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// How many other processes wait is told from how many listen; where listening is refused that says nothing, since others
// may wait by their back-off alone.
func TestWhoElseWaits(t *testing.T) {
	srv := testserver.NewRedis(t)
	check(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-subscribe").Err())
	b := newRedisBackend(mustWrap(t, srv.Client(t)), "b", quietLogger())
	deaf := newRedisBackend(mustWrap(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })), "deaf", quietLogger())
	other := newRedisBackend(mustWrap(t, srv.Client(t)), "other", quietLogger())
	for _, b := range []*redisBackend{b, deaf, other} {
		watch := b.Watch(func(string) {})
		t.Cleanup(func() { watch.Close() })
	}
	others := func(b *redisBackend) int {
		t.Helper()
		if _, err := b.Acquire(t.Context(), Request{Keys: keys("k"), Token: b.sender.(string), TTL: DefaultTTL}); err != nil {
			t.Fatal(err)
		}
		rel, err := b.Release(t.Context(), Held{Keys: keys("k"), Token: b.sender.(string), TTL: DefaultTTL})
		check(t, err)
		return rel.Others
	}
	listens := func(b *redisBackend) {
		w := b.watch.Load()
		w.Add("k")
		testserver.Eventually(t, soon, func() bool { return w.refused.Load() || w.channel.Listens(freeChannel("k")) }, "it listens, or may not")
	}
	if n := others(b); n != 0 {
		t.Errorf("nobody listens: %d others", n)
	}
	listens(b)
	if n := others(b); n != 0 {
		t.Errorf("it alone listens: %d others", n)
	}
	if n := others(other); n != 1 {
		t.Errorf("somebody else listens: %d others", n)
	}
	listens(other)
	if n := others(b); n != 1 {
		t.Errorf("both listen: %d others", n)
	}
	listens(deaf)
	if n := others(deaf); n != -1 {
		t.Errorf("it may not listen: %d others, want -1 for not known", n)
	}
}
