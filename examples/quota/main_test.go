package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func runs(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// B02, B03, B16: three doors to one quota share its lock, the sum of the payments never exceeds it, and the total of the
// shards is right at every read.
func TestRun(t *testing.T) {
	out := runs(t)
	for _, want := range []string{"web", "app", "batch", "left in SQL", "lock true"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// B14: the lock is for speed and order, not for correctness; one shard or ten, the sums are right without it.
func TestWithoutLock(t *testing.T) {
	for _, shards := range []string{"1", "10"} {
		runs(t, "-lock=false", "-shards", shards, "-payments", "6", "-quota", "9000")
	}
}

func TestOnRealServers(t *testing.T) {
	srv, db := testserver.NewRedis(t), testserver.Postgres(t)
	for _, lock := range []string{"-lock=true", "-lock=false"} { // the second run finds what the first has left
		runs(t, lock, "-payments", "8", "-quota", "12000", "-redis", srv.Addr(), "-postgres", db.DSN)
	}
}

// A checker that passes a fault proves nothing.
func TestCheckSeesFaults(t *testing.T) {
	c := config{quota: 100, lock: true}
	good := sum{merchant: 7, paid: 90, left: 10, sql: 10, shards: []int64{4, 6}, atOnce: 1}
	told := func() *history {
		return &history{reads: 1, paid: map[int64]int64{7: 90}, least: map[int64]int64{7: 11}}
	}
	if err := check(c, told(), []sum{good}, nil); err != nil {
		t.Fatal(err)
	}
	if err := check(c, told(), []sum{good}, []string{"quota:7"}); err == nil {
		t.Error("a key without a TTL was not seen")
	}
	for name, spoil := range map[string]func(*sum, *history){
		"spent more than there was": func(s *sum, _ *history) { s.paid, s.sql = 110, -10 },
		"Redis and SQL differ":      func(s *sum, _ *history) { s.left = 9 },
		"a shard is wrong":          func(s *sum, _ *history) { s.shards[0]++ },
		"a client was told wrong":   func(_ *sum, h *history) { h.paid[7]++ },
		"refused although it fits":  func(_ *sum, h *history) { h.least[7] = 10 },
		"two under the lock":        func(s *sum, _ *history) { s.atOnce = 2 },
		"a total that rose":         func(_ *sum, h *history) { h.wrong("rose") },
	} {
		s, h := good, told()
		s.shards = []int64{4, 6}
		spoil(&s, h)
		if err := check(c, h, []sum{s}, nil); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-clients", "0"}, {"-shards", "101"}, {"spend"}, {"-quota", "-1"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
