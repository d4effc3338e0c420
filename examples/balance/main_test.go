package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/gormplugin"
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

// A10, D71, F097: transfers in both directions do not deadlock, no balance falls below zero, the ledger says what the
// balances say, and who has lost the lock cannot write.
func TestRun(t *testing.T) {
	out := runs(t)
	for _, want := range []string{"balance", "wrote too late: gormplugin: a newer holder has written"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// Two accounts only: every transfer meets an opposite one.
func TestOpposite(t *testing.T) { runs(t, "-accounts", "2", "-transfers", "10") }

func TestOnRealServers(t *testing.T) {
	srv, db := testserver.NewRedis(t), testserver.Postgres(t)
	for _, transfers := range []string{"20", "5"} { // the second run finds what the first has left
		runs(t, "-transfers", transfers, "-redis", srv.Addr(), "-postgres", db.DSN)
	}
}

// A checker that passes a fault proves nothing.
func TestCheckSeesFaults(t *testing.T) {
	c := config{opening: 100, limit: 50}
	good := func() *books {
		return &books{
			accounts: []Account{{ID: 1, Cents: 60}, {ID: 2, Cents: 140}},
			sent:     map[int64]int64{1: 40}, received: map[int64]int64{2: 40},
			transfers: 2, entries: 4, operations: 4,
		}
	}
	if err := check(c, &history{made: 1}, good(), gormplugin.ErrStaleFence, nil); err != nil {
		t.Fatal(err)
	}
	if err := check(c, &history{made: 1}, good(), nil, nil); err == nil {
		t.Error("a late write that was not refused was not seen")
	}
	if err := check(c, &history{made: 1}, good(), gormplugin.ErrStaleFence, []string{"lock:account:1"}); err == nil {
		t.Error("a key without a TTL was not seen")
	}
	for name, spoil := range map[string]func(*books, *history){
		"a cent was made":           func(b *books, _ *history) { b.accounts[1].Cents++; b.received[2]++ },
		"a cent was lost":           func(b *books, _ *history) { b.accounts[0].Cents--; b.sent[1]++ },
		"ledger and balance differ": func(b *books, _ *history) { b.accounts[0].Cents--; b.accounts[1].Cents++ },
		"below zero": func(b *books, _ *history) {
			b.accounts = []Account{{ID: 1, Cents: -1}, {ID: 2, Cents: 201}}
			b.sent[1], b.received[2] = 101, 101
		},
		"over the limit":          func(b *books, _ *history) { b.sent[1], b.received[1] = 51, 11 },
		"an operation twice":      func(b *books, _ *history) { b.operations-- },
		"a transfer without rows": func(b *books, h *history) { b.transfers++; h.made++ },
		"a client was told wrong": func(_ *books, h *history) { h.made++ },
		"a strange answer":        func(_ *books, h *history) { h.wrong("500") },
	} {
		b, h := good(), &history{made: 1}
		spoil(b, h)
		if err := check(c, h, b, gormplugin.ErrStaleFence, nil); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-accounts", "1"}, {"-clients", "0"}, {"move"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
