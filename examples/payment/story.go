package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/client"
	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

// story is what some customers do. Each step is printed, and checked.
type story struct {
	stores.Check
	ctx  context.Context // of the one run that it tells of
	base string
	http *http.Client
	out  io.Writer
}

// tell has four customers buy three items of one activity, one order each.
func (s *shop) tell(ctx context.Context, base string, out io.Writer) error {
	t := &story{ctx: ctx, base: base, http: new(http.Client), out: out}
	defer t.http.CloseIdleConnections()

	first := t.buy(42, 1001, "a-1", 202, "accepted")
	t.buy(42, 1001, "a-1", 202, "accepted, again")
	t.buy(42, 1002, "a-2", 409, "limit_reached") // one order over all items of the activity
	t.ask(42, first, "unpaid")
	t.pay(42, first, "p-1", 201, "paid")
	t.pay(42, first, "p-2", 409, "refunded") // a second payment
	t.ask(42, first, "paid")

	second := t.buy(43, 1002, "b-1", 202, "accepted")
	t.buy(44, 1002, "c-0", 409, "insufficient") // there was one
	third := t.buy(44, 1003, "c-1", 202, "accepted")
	t.ask(44, third, "unpaid")
	t.cancel(44, third, 200, "closed")
	t.buy(44, 1003, "c-1", 409, "withdrawn") // the first success is none any more
	fourth := t.buy(44, 1001, "c-2", 202, "accepted")
	t.ask(44, fourth, "unpaid")
	t.pay(44, fourth, "p-3", 201, "paid")

	t.ask(43, second, "closed") // nobody has paid: the sweeper
	t.until("the unit back in Redis", func() bool { left, err := s.stock.Remaining(ctx, 1002); return err == nil && left == 1 })
	t.pay(43, second, "p-4", 409, "refunded") // too late
	t.buy(43, 1002, "b-1", 409, "withdrawn")
	fifth := t.buy(43, 1002, "b-2", 202, "accepted")
	t.ask(43, fifth, "unpaid")
	t.pay(43, fifth, "p-5", 201, "paid")
	t.buy(45, 1001, "d-1", 409, "insufficient")
	return t.Err()
}

func (t *story) buy(user, item int, key string, status int, says string) (order string) {
	return t.send(http.MethodPost, fmt.Sprintf("/items/%d/orders", item), user, key, status, says)
}

func (t *story) pay(user int, order, key string, status int, says string) {
	t.send(http.MethodPost, "/orders/"+order+"/payments", user, key, status, says)
}

func (t *story) cancel(user int, order string, status int, says string) {
	t.send(http.MethodDelete, "/orders/"+order, user, "", status, says)
}

func (t *story) send(method, path string, user int, key string, status int, says string) (order string) {
	got, order, said := t.request(method, path, user, key)
	t.Must(got == status && said == says, "%s %s by %d under %q: %d %s, want %d %s", method, path, user, key, got, said, status, says)
	t.print(method, path, order, user, key, got, said)
	return order
}

// ask asks what became of an order until it is as it should be.
func (t *story) ask(user int, order, want string) {
	var said string
	var got int
	t.until("order "+want, func() bool {
		got, _, said = t.request(http.MethodGet, "/orders/"+order, user, "")
		return said == want
	})
	t.print(http.MethodGet, "/orders/"+order, order, user, "", got, said)
}

func (t *story) until(what string, done func() bool) {
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	for !done() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Must(false, "waited in vain: %s", what)
			return
		}
	}
}

// request sends a request as a client does, again as long as the answer says Retry-After.
func (t *story) request(method, path string, user int, key string) (status int, order, said string) {
	a, err := client.Send(t.ctx, t.http, method, t.base+path, key, map[string]string{"X-User": fmt.Sprint(user)}, "")
	t.Must(err == nil, "%s %s: %v", method, path, err)
	var body struct{ Order, Status, Code string }
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil && a.Body != "" {
		var problem struct{ Code string } // its status is a number
		t.Must(json.Unmarshal([]byte(a.Body), &problem) == nil, "%s %s: not JSON: %q", method, path, a.Body)
		body.Status = problem.Code
	}
	if a.Replayed {
		body.Status += ", again"
	}
	return a.Status, body.Order, body.Status
}

func (t *story) print(method, path, order string, user int, key string, status int, said string) {
	if order != "" {
		path = strings.Replace(path, order, "{order}", 1)
	}
	fmt.Fprintf(t.out, "user %d  %-4s  %-6s %-26s %d %s\n", user, key, method, path, status, said)
}
