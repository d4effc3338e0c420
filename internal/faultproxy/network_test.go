package faultproxy_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestHalfOpen_AcceptsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, impatient)
	f.proxy.HalfOpen()
	before := f.proxy.Accepted()
	// The first on the old connection, the second on a new one.
	for range 2 {
		if err := f.rdb.Incr(t.Context(), f.key).Err(); !isTimeout(err) {
			t.Errorf("INCR: got %v, want a timeout", err)
		}
	}
	if f.proxy.Accepted() == before {
		t.Error("no new connection was accepted")
	}
	f.wantValue(t, 0)
	f.proxy.Heal(t)
	f.ping(t)
	f.wantValue(t, 0)
}

func TestStall_EverythingArrivesWhenHealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, impatient)
	f.proxy.Stall()
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: got %v, want a timeout", err)
	}
	f.wantValue(t, 0)
	f.proxy.Heal(t)
	testserver.Eventually(t, 10*time.Second, func() bool { return f.value(t) == 1 }, "the stalled command arrives")
	f.ping(t)
}

func TestRefuse_OldConnectionsResetNewOnesRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.Refuse()
	if err := f.rdb.Incr(t.Context(), f.key).Err(); err == nil {
		t.Error("INCR has no error")
	}
	other := testserver.Redis(t).Client(t, func(o *redis.Options) {
		once(o)
		o.Addr, o.DialerRetries = f.proxy.Addr(), 1
	})
	if err := other.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING on a new connection: got %v, want connection refused", err)
	}
	f.wantValue(t, 0)
	f.proxy.Heal(t)
	testserver.Eventually(t, 10*time.Second, func() bool { return f.rdb.Ping(t.Context()).Err() == nil }, "the client recovers")
}

func TestCutAll_TheClientConnectsAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.proxy.Accepted()
	f.proxy.CutAll()
	if err := f.rdb.Incr(t.Context(), f.key).Err(); err != nil {
		t.Errorf("INCR: %v", err)
	}
	f.wantValue(t, 1)
	if f.proxy.Accepted() == before {
		t.Error("no new connection was accepted")
	}
}

func TestCutAfter_EitherDirection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		direction faultproxy.Direction
		bytes     int
		want      int64
	}{
		{"in the request", faultproxy.ToServer, 20, 0},
		{"in the reply", faultproxy.ToClient, 3, 1},
		{"before the reply", faultproxy.ToClient, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, once)
			f.proxy.CutAfter(row.direction, row.bytes)
			if err := f.rdb.Incr(t.Context(), f.key).Err(); !isCut(err) {
				t.Errorf("INCR: got %v, want a closed connection", err)
			}
			f.wantValue(t, row.want)
			f.proxy.Heal(t)
			f.ping(t)
		})
	}
}

func TestRedirect_OldConnectionsStayWithTheOldServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	next := testserver.NewRedis(t)
	f.proxy.Redirect(next.Addr())
	if err := f.rdb.Incr(t.Context(), f.key).Err(); err != nil {
		t.Fatal(err)
	}
	f.wantValue(t, 1)
	f.proxy.CutAll()
	testserver.Eventually(t, 10*time.Second, func() bool { return f.rdb.Ping(t.Context()).Err() == nil }, "the client connects to the new server")
	if n, err := f.rdb.Incr(t.Context(), f.key).Result(); err != nil || n != 1 {
		t.Errorf("INCR on the new server: got %d, %v; want 1", n, err)
	}
	f.wantValue(t, 1)
}

func TestHeal_EndsRulesAndReleasesWhatTheyHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	rule := f.proxy.On(faultproxy.Named("INCR").Always(), faultproxy.HoldRequest())
	result := make(chan error, 1)
	go func() { result <- f.rdb.Incr(t.Context(), f.key).Err() }()
	rule.Wait(t)
	f.proxy.Heal(t)
	if err := <-result; err != nil {
		t.Errorf("held INCR: %v", err)
	}
	if err := f.rdb.Incr(t.Context(), f.key).Err(); err != nil {
		t.Errorf("next INCR: %v", err)
	}
	if got := rule.Fired(); got != 1 {
		t.Errorf("rule fired %d times, want 1", got)
	}
}

// The server dies behind the proxy: clients see closed connections, and the proxy
// serves again with the server.
func TestServerRestarts_TheProxyStays(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t, testserver.AppendOnly())
	p := faultproxy.Redis(t, srv.Addr())
	rdb := srv.Client(t, once, func(o *redis.Options) { o.Addr = p.Addr() })
	if err := rdb.Set(t.Context(), "a", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	srv.Kill(t)
	if err := rdb.Get(t.Context(), "a").Err(); err == nil {
		t.Error("GET from a dead server has no error")
	}
	srv.Restart(t)
	testserver.Eventually(t, 10*time.Second, func() bool { return rdb.Get(t.Context(), "a").Val() == "1" }, "the value is back")
}

// Whatever go-redis sends and Redis answers passes unchanged, in RESP2 and RESP3.
func TestPassesEverything(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		protocol int
	}{{"RESP2", 2}, {"RESP3", 3}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *redis.Options) { o.Protocol = row.protocol })
			ctx := t.Context()
			large := strings.Repeat("0123456789\r\n", 100_000)
			if err := f.rdb.Set(ctx, f.key, large, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if got := f.rdb.Get(ctx, f.key).Val(); got != large {
				t.Errorf("large value: got %d bytes, want %d", len(got), len(large))
			}
			if err := f.rdb.HSet(ctx, f.key+"h", "a", "1", "b", "2").Err(); err != nil {
				t.Fatal(err)
			}
			if err := f.rdb.Expire(ctx, f.key+"h", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if got := f.rdb.HGetAll(ctx, f.key+"h").Val(); got["b"] != "2" {
				t.Errorf("map: got %v", got)
			}
			if err := f.rdb.Get(ctx, f.key+"none").Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("null: got %v", err)
			}
			got, err := f.rdb.Eval(ctx, "return {1, 'x', {ARGV[1]}, false}", nil, "y").Slice()
			if err != nil || len(got) != 4 {
				t.Errorf("nested: got %v, %v", got, err)
			}
			if _, err := f.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Get(ctx, f.key+"none")
				pipe.HLen(ctx, f.key+"h")
				return nil
			}); !errors.Is(err, redis.Nil) {
				t.Errorf("transaction: got %v, want the null in it", err)
			}

			sub := f.rdb.Subscribe(ctx, f.key+"c1", f.key+"c2")
			defer sub.Close()
			for range 2 {
				if _, err := sub.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.direct.Publish(ctx, f.key+"c2", "hello").Err(); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
				t.Errorf("message: got %v, %v", m, err)
			}
		})
	}
}

// Confirmations, messages and replies share a connection: a fault of the reply to a
// later command must not take a message for it.
func TestLoseReply_OnASubscribedConnection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		protocol int
	}{{"RESP2", 2}, {"RESP3", 3}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *redis.Options) { o.Protocol = row.protocol })
			ctx := t.Context()
			rule := f.proxy.On(faultproxy.Named("PING"), faultproxy.HoldReply())
			sub := f.rdb.Subscribe(ctx, f.key+"a", f.key+"b")
			defer sub.Close()
			for range 2 {
				if _, err := sub.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.direct.Publish(ctx, f.key+"a", "1").Err(); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "1" {
				t.Fatalf("message before PING: got %v, %v", m, err)
			}
			if err := sub.Ping(ctx); err != nil {
				t.Fatal(err)
			}
			rule.Wait(t)
			rule.Release()
			msg, err := sub.Receive(ctx)
			if _, ok := msg.(*redis.Pong); !ok || err != nil {
				t.Errorf("got %v, %v; want the reply to PING", msg, err)
			}
		})
	}
}

func TestDialer_GoesThroughTheProxyOfEachNode(t *testing.T) {
	t.Parallel()
	c := testserver.Cluster(t)
	var proxies []*faultproxy.Proxy
	for _, n := range c.Nodes() {
		proxies = append(proxies, faultproxy.Redis(t, n.Addr()))
	}
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = faultproxy.Dialer(proxies...) })
	prefix := c.Prefix(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := rdb.Set(t.Context(), prefix+name, "1", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for _, p := range proxies {
		total += p.Count(faultproxy.Named("SET").Containing(prefix))
	}
	if total != 8 {
		t.Errorf("%d SET went through the proxies, want 8", total)
	}
}
