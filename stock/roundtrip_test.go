package stock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// monitored is a real server with a monitor, and a prefix of its own.
func monitored(t *testing.T) (*env, *testserver.Monitor) {
	t.Helper()
	srv := testserver.Redis(t)
	e := &env{T: t, rdb: srv.Client(t, func(o *redis.Options) { o.ReadTimeout = patience }), prefix: srv.Prefix(t)}
	return e, srv.Monitor(t)
}

// B08: a deduction is one script and one round trip, of a quota as of a sale; of what is loaded nothing is sent again.
func TestDeductIsOneRoundTrip(t *testing.T) {
	e, monitor := monitored(t)
	quota, sale := e.quota(), e.counter(WithHold(time.Minute), WithStream())
	e.warm(quota, Sale{Item: "m1", Units: 100})
	e.warm(sale, Sale{Units: 100, Limit: Limit{Units: 1}})
	for name, deduct := range map[string]func(){
		"quota": func() { e.deduct(quota, Order{Item: "m1", Units: 1, RequestID: e.id()}) },
		"sale":  func() { e.deduct(sale, e.order(e.id())) },
	} {
		deduct() // the first one may have to load its script
		monitor.Reset(t)
		for range 10 {
			deduct()
		}
		var names []string
		for _, c := range monitor.Sent(t, e.prefix) {
			names = append(names, c.Name)
		}
		if got := strings.ToLower(strings.Join(names, " ")); got != strings.TrimSpace(strings.Repeat("evalsha ", 10)) {
			t.Errorf("%s: ten deductions sent %q, want ten evalsha", name, got)
		}
	}
}

// B09: "not enough" and "Redis is away" are different errors, and neither is the other.
func TestNotEnoughIsNotUnavailable(t *testing.T) {
	e := newReal(t)
	quota := e.quota()
	e.warm(quota, Sale{Item: "m1", Units: 1})
	order := Order{Item: "m1", Units: 2, RequestID: e.id()}
	_, short := quota.Deduct(t.Context(), order)
	if !errors.Is(short, ErrInsufficient) || errors.Is(short, ErrUnavailable) {
		t.Errorf("2 of 1: %v, want ErrInsufficient and not ErrUnavailable", short)
	}
	nobody := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = nobody.Close() })
	e.rdb = nobody
	_, away := e.quota().Deduct(t.Context(), order)
	if errors.Is(away, ErrInsufficient) || !errors.Is(away, ErrUnavailable) {
		t.Errorf("without Redis: %v, want ErrUnavailable and not ErrInsufficient", away)
	}
}

// F073: a display that reads the stock during a sale writes nothing and locks nothing.
func TestDisplayReadsWriteNothing(t *testing.T) {
	e, monitor := monitored(t)
	c := e.counter()
	e.warm(c, Sale{Units: 1000})
	monitor.Reset(t)
	for range 1000 {
		e.left(c, 1000)
	}
	reads := []string{"EVALSHA", "GET", "MGET", "HGET", "HMGET", "HGETALL", "TIME"} // what the script does stands there too
	commands := monitor.Commands(t, e.prefix)
	if len(commands) < 1000 {
		t.Errorf("%d commands for 1000 reads", len(commands))
	}
	for _, cmd := range commands {
		if !slices.Contains(reads, strings.ToUpper(cmd.Name)) {
			t.Fatalf("a display read sent %v", cmd)
		}
	}
}
