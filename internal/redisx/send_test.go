package redisx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

var echo = NewScript("echo.lua", `return {KEYS[1], ARGV[1]}`)

func miniClient(t *testing.T) (*Client, *miniredis.Miniredis) {
	t.Helper()
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: time.Minute}) // a busy machine is no lost reply
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return c, srv
}

func TestEachCallerGetsItsOwnReply(t *testing.T) {
	c, _ := miniClient(t)
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			got, err := c.Run(t.Context(), echo, []string{key}, i)
			if want := fmt.Sprint([]any{key, fmt.Sprint(i)}); err != nil || fmt.Sprint(got.Val) != want || got.Sent != 1 {
				t.Errorf("call %d: got %v, %v; want %v sent once", i, got, err, want)
			}
		})
	}
	wg.Wait()
}

// wrapped is a client of the user's own making, of a type that cannot be compared.
type wrapped struct {
	redis.UniversalClient
	_ []string
}

func TestClientOfATypeThatCannotBeCompared(t *testing.T) {
	inner, _ := miniClient(t)
	c, err := Wrap(wrapped{UniversalClient: inner.UniversalClient})
	if err != nil {
		t.Fatal(err)
	}
	var q callQueue
	for range 2 {
		node, _, err := c.route(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		q.push(&call{node: node})
	}
	if lead := q.cut(); lead.next == nil {
		t.Error("two calls are no batch")
	}
}

func TestMissingScriptIsSentWithItsSource(t *testing.T) {
	c, srv := miniClient(t)
	for range 2 {
		if _, err := c.Once(t.Context(), echo, []string{"k"}, 1); err != nil {
			t.Fatal(err)
		}
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_ = srv
}

func TestContextOverBeforeSendingSendsNothing(t *testing.T) {
	c, srv := miniClient(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	before := srv.CommandCount()
	_, err := c.Run(ctx, echo, []string{"k"}, 1)
	if KindOf(err) != Unavailable || !errors.Is(err, cause) {
		t.Errorf("err = %v (kind %d), want Unavailable with the context's cause", err, KindOf(err))
	}
	if srv.CommandCount() != before {
		t.Error("a command was sent")
	}
}

func TestServerAwayIsUnavailable(t *testing.T) {
	c, srv := miniClient(t)
	srv.Close()
	if _, err := c.Run(t.Context(), echo, []string{"k"}, 1); KindOf(err) != Unavailable {
		t.Errorf("err = %v (kind %d), want Unavailable: nothing was sent", err, KindOf(err))
	}
}

func TestKinds(t *testing.T) {
	c, _ := miniClient(t)
	answered := func(text string) error {
		s := NewScript("fail.lua", `return redis.error_reply(ARGV[1])`)
		_, err := c.Once(t.Context(), s, []string{"k"}, text)
		return err
	}
	for text, want := range map[string]Kind{
		"READONLY You can't write against a read only replica.":                                        Unavailable,
		"LOADING Redis is loading the dataset in memory":                                               Unavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":                                      Unavailable,
		"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't": Unavailable,
		"ERR something of ours is wrong":                                                               Failed,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                            Failed,
	} {
		if got := KindOf(answered(text)); got != want {
			t.Errorf("answer %q: kind %d, want %d", text, got, want)
		}
	}
	for name, tt := range map[string]struct {
		err  error
		want Kind
	}{
		"dial":     {&net.OpError{Op: "dial", Err: errors.New("refused")}, Unavailable},
		"pool":     {redis.ErrPoolTimeout, Unavailable},
		"read":     {&net.OpError{Op: "read", Err: errors.New("reset")}, Unknown},
		"deadline": {context.DeadlineExceeded, Unknown},
	} {
		if got := KindOf(classify(tt.err)); got != tt.want {
			t.Errorf("%s: kind %d, want %d", name, got, tt.want)
		}
	}
}

func TestPreloadNamesTheScriptThatDoesNotCompile(t *testing.T) {
	c, srv := miniClient(t)
	if err := c.Preload(echo); err != nil {
		t.Fatal(err)
	}
	err := c.Preload(echo, NewScript("broken.lua", "this is no Lua"))
	if err == nil || !strings.Contains(err.Error(), "broken.lua") {
		t.Errorf("err = %v, want one that names broken.lua", err)
	}
	srv.Close()
	if err := c.Preload(echo); err != nil {
		t.Errorf("a server that is away stopped the start: %v", err)
	}
}

func TestWrap(t *testing.T) {
	c, _ := miniClient(t)
	if again, err := Wrap(c); err != nil || again != c {
		t.Errorf("Wrap of a Client = %p, %v; want the same %p", again, err, c)
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{"nil": nil, "ring": ring} {
		if _, err := Wrap(rdb); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestSlotIsThatOfTheSpecification(t *testing.T) {
	for key, want := range map[string]int{"123456789": 0x31C3, "foo": 12182, "{foo}:fence": 12182, "{}foo": Slot("{}foo"), "": 0} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
	if Slot("lock:stock:1001") != Slot("{lock:stock:1001}:fence") {
		t.Error("a lock and its fence lie in different slots")
	}
}
