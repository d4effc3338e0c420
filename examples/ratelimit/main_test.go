package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// C21b: above capacity requests are dropped before Redis is asked; the drop is an answer, and counted.
func TestRun(t *testing.T) {
	for name, redis := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return testserver.NewRedis(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), []string{"-redis", redis(t)}, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if !strings.Contains(out.String(), "over capacity") {
				t.Errorf("no table:\n%s", out.String())
			}
		})
	}
}

// The stock, not the rate, is what runs out.
func TestMoreCapacityThanStock(t *testing.T) {
	args := []string{"-users", "5", "-requests", "10", "-per-user", "10", "-capacity", "50", "-stock", "7"}
	if err := run(t.Context(), args, new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
}

// A checker that passes a fault proves nothing.
func TestCheckSeesFaults(t *testing.T) {
	c := config{users: 2, requests: 5, perUser: 3, capacity: 4, stock: 4}
	good := tally{requests: 10, sold: 4, perUser: 4, capacity: 2}
	later := tally{requests: 10, perUser: 6, capacity: 4}
	counted := func() *service {
		s := new(service)
		s.perUser.Store(10)
		s.capacity.Store(6)
		return s
	}
	if err := check(c, counted(), &good, &later, 0, 0); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(s *service, burst, later *tally, left *int64){
		"too many let through":    func(_ *service, burst, _ *tally, _ *int64) { burst.soldOut++ },
		"oversold":                func(_ *service, burst, _ *tally, left *int64) { burst.sold++; *left = -1 },
		"let through later":       func(_ *service, _, later *tally, _ *int64) { later.soldOut++ },
		"Redis asked for a drop":  func(s *service, _, _ *tally, _ *int64) { s.asked.Store(2) },
		"a drop that was not one": func(s *service, _, _ *tally, _ *int64) { s.capacity.Add(1) },
		"units gone":              func(_ *service, _, _ *tally, left *int64) { *left = 1 },
	} {
		s, b, l, left := counted(), good, later, int64(0)
		spoil(s, &b, &l, &left)
		if err := check(c, s, &b, &l, 0, left); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-users", "0"}, {"-stock", "0"}, {"sell"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
