package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// buffer is written by the shop and read by the test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// served is the shop as "go run" serves it.
type served struct {
	*testing.T
	base string
	out  *buffer
	stop func()
}

func serveShop(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{T: t, out: new(buffer)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runShop(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), s.out) }()
	s.stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	port := regexp.MustCompile(`localhost:(\d+)/items`)
	testserver.Eventually(t, 20*time.Second, func() bool { return port.MatchString(s.out.String()) }, "the shop to say where it is")
	s.base = "http://" + net.JoinHostPort("127.0.0.1", port.FindStringSubmatch(s.out.String())[1])
	return s
}

type reply struct {
	status   int
	replayed bool
	text     string

	Order, Request, Status, Reason, Payment string
	InsteadOf                               string `json:"instead_of"`
	Redis, SQL                              int64
}

func (s *served) do(method, path, user, key string) reply {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.base+path, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("X-User", user)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	r := reply{status: res.StatusCode, replayed: res.Header.Get("Idempotent-Replayed") == "true", text: string(body)}
	if res.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(body, &r); err != nil {
			s.Fatal(err)
		}
	}
	return r
}

func (s *served) buy(user, key string) reply {
	return s.do(http.MethodPost, "/items/1001/orders", user, key)
}

func (s *served) pay(order, user, key string) reply {
	return s.do(http.MethodPost, "/orders/"+order+"/payments", user, key)
}

func (s *served) wantStatus(request, user, want string) {
	s.Helper()
	var r reply
	testserver.Eventually(s, 20*time.Second, func() bool {
		r = s.do(http.MethodGet, "/orders/"+request, user, "")
		return r.Status == want
	}, "an order to be "+want)
}

func (s *served) wantLeft(want int64) {
	s.Helper()
	testserver.Eventually(s, 20*time.Second, func() bool {
		r := s.do(http.MethodGet, "/items/1001", "", "")
		return r.Redis == want && r.SQL == want
	}, fmt.Sprintf("%d units to be left in both", want))
}

// The shop does what its first curl lines promise, and the trace shows the steps of a purchase.
func TestShopAndItsTrace(t *testing.T) {
	provider := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(provider) })
	s := serveShop(t, "-trace", "tree")
	var first string
	for i, want := range []struct {
		key      string
		status   int
		replayed bool
	}{{"a-1", 201, false}, {"a-1", 201, true}, {"a-2", 409, false}} {
		r := s.buy("42", want.key)
		if r.status != want.status || r.replayed != want.replayed {
			t.Errorf("purchase %d: %+v", i+1, r)
		}
		if i == 0 {
			first = r.text
		}
		if i == 1 && r.text != first {
			t.Errorf("the replay is %q, the first answer was %q", r.text, first)
		}
	}
	s.wantLeft(4)
	s.stop()
	for _, want := range []string{
		"POST /items/{itemID}/orders", "holdfast.dedup.begin", "executed", "holdfast.stock.deduct", "deducted",
		"INSERT seckill_order", "UPDATE item_stock", "applied", "replayed", "limit_reached",
	} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("the traces do not show %q:\n%s", want, s.out.String())
		}
	}
}

// onBoth runs a test on the embedded stores and on real servers, with orders landed by the handler and by a worker.
func onBoth(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("embedded, with a worker", func(t *testing.T) { t.Parallel(); test(t, "-worker") })
	t.Run("real servers, with a worker", func(t *testing.T) {
		t.Parallel()
		test(t, "-worker", "-redis", testserver.NewRedis(t).Addr(), "-postgres", testserver.Postgres(t).DSN)
	})
}

// D12, O19: an order that is not paid is closed and its unit comes back once; a payment after that is refunded, and its user
// may buy again. One that is paid in time stays.
func TestUnpaidOrdersAreClosed(t *testing.T) {
	onBoth(t, func(t *testing.T, args ...string) {
		s := serveShop(t, append(args, "-hold", "4s")...)
		unpaid, inTime := s.buy("1", "a"), s.buy("2", "a")
		s.wantStatus(inTime.Request, "2", "unpaid")
		if r := s.pay(inTime.Order, "2", "p"); r.status != 201 || r.Status != "paid" {
			t.Errorf("the payment in time: %+v", r)
		}
		s.wantStatus(unpaid.Request, "1", "closed")
		s.wantLeft(4)
		if r := s.buy("1", "a"); r.status != 409 {
			t.Errorf("the repeat of a purchase that was closed since: %+v", r)
		}
		for range 2 { // the second one is a retry
			if r := s.pay(unpaid.Order, "1", "p"); r.status != 409 || r.Payment != "refunded" {
				t.Errorf("the late payment: %+v", r)
			}
		}
		if r := s.pay(inTime.Order, "2", "other"); r.status != 409 || r.Payment != "refunded" {
			t.Errorf("the second payment of one order: %+v", r)
		}
		again := s.buy("1", "b")
		s.wantStatus(again.Request, "1", "unpaid")
		s.wantStatus(inTime.Request, "2", "paid")
		s.wantLeft(3)
	})
}

// O19: with the other policy a late payment gets another unit, as long as there is one; never a unit with two owners.
func TestLatePaymentBuysAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, args ...string) {
		s := serveShop(t, append(args, "-hold", "3s", "-late", "again")...)
		first, second := s.buy("1", "a"), s.buy("2", "a")
		s.wantStatus(first.Request, "1", "closed")
		s.wantStatus(second.Request, "2", "closed")
		s.wantLeft(5)
		r := s.pay(first.Order, "1", "p")
		if r.status != 201 || r.InsteadOf != first.Order || r.Order == first.Order {
			t.Errorf("the late payment: %+v", r)
		}
		if again := s.pay(first.Order, "1", "p"); !again.replayed || again.text != r.text {
			t.Errorf("its repeat: %+v", again)
		}
		if again := s.pay(first.Order, "1", "q"); again.status != 409 || again.Payment != "refunded" {
			t.Errorf("another payment, of one who has a unit: %+v", again)
		}
		s.wantLeft(4)
		for user := range 4 { // buyers who pay at once take the rest
			no := fmt.Sprint(10 + user)
			bought := s.buy(no, "a")
			s.wantStatus(bought.Request, no, "unpaid")
			if r := s.pay(bought.Order, no, "p"); r.status != 201 {
				t.Errorf("buyer %s: %+v", no, r)
			}
		}
		if r := s.pay(second.Order, "2", "p"); r.status != 409 || r.Payment != "refunded" {
			t.Errorf("a late payment with nothing left: %+v", r)
		}
		s.wantLeft(0)
	})
}

// O18: with a limit of 3 and at most 2 an order, 2 and 1 are sold, 3 at once and a fourth are not; what is given up may be
// bought again, in SQL too.
func TestLimitAndOrderMaximum(t *testing.T) {
	onBoth(t, func(t *testing.T, args ...string) {
		s := serveShop(t, append(args, "-limit", "3", "-per-order", "2", "-units", "10")...)
		units := func(n int, key string) reply {
			return s.do(http.MethodPost, fmt.Sprintf("/items/1001/orders?units=%d", n), "1", key)
		}
		if r := units(3, "three"); r.status != 409 {
			t.Errorf("three in one order: %+v", r)
		}
		two, one := units(2, "two"), units(1, "one")
		s.wantStatus(two.Request, "1", "unpaid")
		s.wantStatus(one.Request, "1", "unpaid")
		if r := units(1, "fourth"); r.status != 409 {
			t.Errorf("a fourth unit: %+v", r)
		}
		s.wantLeft(7)
		if r := s.do(http.MethodDelete, "/orders/"+two.Order, "1", ""); r.status != 200 {
			t.Errorf("%+v", r)
		}
		s.wantLeft(9)
		again := units(2, "again")
		s.wantStatus(again.Request, "1", "unpaid")
		s.wantLeft(7)
		if r := units(-1, "none"); r.status != 400 {
			t.Errorf("less than nothing: %+v", r)
		}
	})
}

// A user may give up an order that is not paid, as often as they like, and nobody else's.
func TestCancel(t *testing.T) {
	onBoth(t, func(t *testing.T, args ...string) {
		s := serveShop(t, args...)
		order := s.buy("1", "a")
		s.wantStatus(order.Request, "1", "unpaid")
		if r := s.do(http.MethodDelete, "/orders/"+order.Order, "2", ""); r.status != 409 {
			t.Errorf("somebody else's order: %+v", r)
		}
		if r := s.do(http.MethodGet, "/orders/"+order.Request, "2", ""); r.status != 409 {
			t.Errorf("somebody else's order: %+v", r)
		}
		for range 2 {
			if r := s.do(http.MethodDelete, "/orders/"+order.Order, "1", ""); r.status != 200 || r.Status != "closed" {
				t.Errorf("%+v", r)
			}
		}
		s.wantLeft(5)
		other := s.buy("1", "b")
		s.wantStatus(other.Request, "1", "unpaid")
		if r := s.pay(other.Order, "1", "p"); r.status != 201 {
			t.Errorf("%+v", r)
		}
		if r := s.do(http.MethodDelete, "/orders/"+other.Order, "1", ""); r.status != 409 {
			t.Errorf("a paid order: %+v", r)
		}
		s.wantLeft(4)
	})
}
