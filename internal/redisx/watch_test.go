package redisx

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// heard collects what a Watch tells.
type heard struct {
	mu       sync.Mutex
	begun    map[string]int
	messages map[string][]string
	refused  []error
}

func (h *heard) listener() Listener {
	h.begun, h.messages = map[string]int{}, map[string][]string{}
	return Listener{
		Begun:   func(ch string) { h.mu.Lock(); defer h.mu.Unlock(); h.begun[ch]++ },
		Message: func(ch, m string) { h.mu.Lock(); defer h.mu.Unlock(); h.messages[ch] = append(h.messages[ch], m) },
		Refused: func(err error) { h.mu.Lock(); defer h.mu.Unlock(); h.refused = append(h.refused, err) },
	}
}

func (h *heard) times(ch string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun[ch]
}

func (h *heard) last(ch string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.messages[ch]; len(m) > 0 {
		return m[len(m)-1]
	}
	return ""
}

func single() bool { return false }

const soon = 10 * time.Second

func TestWatchHearsWhatItWantsAndNothingElse(t *testing.T) {
	c, _ := miniClient(t)
	var h heard
	w := NewWatch(c, single, h.listener())
	defer w.Close()
	for _, ch := range []string{"a", "b", "a"} {
		w.Add(ch)
	}
	testserver.Eventually(t, soon, func() bool { return w.Listens("a") && w.Listens("b") }, "both channels are listened to")
	for _, ch := range []string{"a", "b", "c"} {
		c.Publish(t.Context(), ch, "to "+ch)
	}
	testserver.Eventually(t, soon, func() bool { return h.last("a") == "to a" && h.last("b") == "to b" }, "both messages arrive")

	w.Remove("a")
	testserver.Eventually(t, soon, func() bool { return c.Publish(t.Context(), "a", "late").Val() == 0 }, "a is not listened to any more")
	if w.Listens("a") || h.last("c") != "" {
		t.Error("a is still said to be listened to, or c was heard")
	}
	w.Add("a")
	testserver.Eventually(t, soon, func() bool { return h.times("a") == 2 }, "a is listened to again")
}

// Each confirmation counts as a wake-up: while the connection was down something may have been missed.
func TestWatchBeginsAgainAfterAReconnect(t *testing.T) {
	c, srv := miniClient(t)
	var h heard
	w := NewWatch(c, single, h.listener())
	defer w.Close()
	w.Add("a")
	testserver.Eventually(t, soon, func() bool { return w.Listens("a") }, "a is listened to")
	addr := srv.Addr()
	srv.Close()
	testserver.Eventually(t, soon, func() bool { return !w.Listens("a") }, "the loss is noticed")
	testserver.Eventually(t, soon, func() bool { return srv.StartAddr(addr) == nil }, "the server is there again")
	testserver.Eventually(t, soon, func() bool { return h.times("a") == 2 }, "a is listened to again")
	c.Publish(t.Context(), "a", "hello")
	testserver.Eventually(t, soon, func() bool { return h.last("a") == "hello" }, "the message arrives")
}

func TestWatchWithoutChannelsHasNoConnection(t *testing.T) {
	c, srv := miniClient(t)
	c.Ping(t.Context())
	var h heard
	w := NewWatch(c, single, h.listener())
	defer w.Close()
	before := srv.CurrentConnectionCount()
	w.Add("a")
	testserver.Eventually(t, soon, func() bool { return w.Listens("a") && srv.CurrentConnectionCount() > before }, "a is listened to")
	w.Remove("a")
	testserver.Eventually(t, soon, func() bool { return srv.CurrentConnectionCount() == before }, "the connection is closed")
}

func TestWatchWhileTheServerIsAway(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	var h heard
	w := NewWatch(c, single, h.listener())
	w.Add("a")
	w.Remove("b")
	w.Close()
	w.Close()
	w.Add("a")
	if w.Listens("a") {
		t.Error("a is listened to after Close")
	}
}

// A service that may use keys and no channels still works: it is told once for each command, and goes on without.
func TestWatchThatIsRefusedSaysSo(t *testing.T) {
	srv := testserver.NewRedis(t)
	admin := srv.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "keys", "on", ">secret", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "keys", "secret" })
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	var h heard
	w := NewWatch(c, single, h.listener())
	defer w.Close()
	w.Add("a")
	testserver.Eventually(t, soon, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.refused) > 0 }, "the refusal is told")
	var answer redis.Error
	if !errors.As(h.refused[0], &answer) || w.Listens("a") {
		t.Errorf("refused with %v, listens = %v", h.refused[0], w.Listens("a"))
	}
}

func TestWatchOnAClusterUsesEachMaster(t *testing.T) {
	cl := testserver.Cluster(t)
	c, err := Wrap(cl.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	var h heard
	w := NewWatch(c, func() bool { return true }, h.listener())
	t.Cleanup(w.Close)
	channels := []string{"{a}:free", "{b}:free", "{c}:free", "{d}:free", "{e}:free", "{f}:free"}
	for _, ch := range channels {
		w.Add(ch)
	}
	for _, ch := range channels {
		testserver.Eventually(t, soon, func() bool { return w.Listens(ch) }, ch+" is listened to")
		if n, err := c.SPublish(t.Context(), ch, ch).Result(); n != 1 || err != nil {
			t.Errorf("%s reached %d listeners (%v), want 1", ch, n, err)
		}
		testserver.Eventually(t, soon, func() bool { return h.last(ch) == ch }, "the message arrives")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.conns); n < 2 {
		t.Errorf("%d connections for %d channels in several slots, want one for each master", n, len(channels))
	}
}
