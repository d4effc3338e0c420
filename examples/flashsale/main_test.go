package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func table(t *testing.T, args ...string) []row {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{"-json", "-buyers", "40", "-stock", "15", "-duration", "80ms", "-modes", "all"}, args...)
	if err := runTable(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var rows []row
	for dec := json.NewDecoder(&out); dec.More(); {
		var r row
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// D01, D67, D68, O30, O31: the row without control is found guilty, all others sell exactly what there is; also when one
// user or a few of them do all the buying, and when clients send again, under the same id or under new ones.
func TestTable(t *testing.T) {
	for _, users := range userModes {
		t.Run(string(users), func(t *testing.T) {
			modes, want := "all", 11
			if users == one || users == zipf {
				modes, want = "none,db,decr,script+dedup,script+landing", 5
			}
			rows := table(t, "-users", string(users), "-modes", modes)
			if len(rows) != want {
				t.Errorf("%d rows, want %d", len(rows), want)
			}
			for _, r := range rows {
				if r.Clean == (r.Mode == "none") {
					t.Errorf("row %+v has the wrong verdict", r)
				}
				if r.Mode != "none" && (r.Duplicates != 0 || r.FinalStock != 15-int64(r.Successes) || r.P99 < r.P50 || r.Requests < r.Successes) {
					t.Errorf("row %+v does not add up", r)
				}
				if users == one && r.Mode != "none" && r.Successes != 1 {
					t.Errorf("one user bought %d times in row %s", r.Successes, r.Mode)
				}
			}
		})
	}
}

func TestTableOnRealServers(t *testing.T) {
	srv, db := testserver.NewRedis(t), testserver.Postgres(t)
	for _, modes := range []string{"all", "none,db,script+dedup,script+landing"} { // the second run finds what the first has left
		for _, r := range table(t, "-modes", modes, "-redis", srv.Addr(), "-postgres", db.DSN) {
			if r.Clean == (r.Mode == "none") {
				t.Errorf("row %+v has the wrong verdict", r)
			}
		}
	}
}

func TestTableForPeople(t *testing.T) {
	var out bytes.Buffer
	if err := runTable(t.Context(), []string{"-buyers", "40", "-stock", "10", "-duration", "100ms"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"duplicate orders", "GUILTY", "clean", "none: oversold", "users: all different"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// C16: a checker that passes the bug proves nothing.
func TestVerdict(t *testing.T) {
	guilty, clean := row{Mode: "none"}, row{Mode: "lock", Clean: true}
	for name, rows := range map[string][]row{
		"none is clean": {{Mode: "none", Clean: true}, clean},
		"lock is not":   {guilty, {Mode: "lock"}},
	} {
		if err := verdict(rows); !errors.Is(err, errNotClean) {
			t.Errorf("%s: verdict %v, want errNotClean", name, err)
		}
	}
	if err := verdict([]row{guilty, clean}); err != nil {
		t.Error(err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"table", "-users", "many"}, {"table", "-modes", "none,fast"}, {"-late", "keep"}, {"table", "-stock", "0"}, {"table", "x"}, {"sell"}, {"-trace", "loud"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// O32: the same seed plans the same requests, another one others.
func TestPlan(t *testing.T) {
	plan := func(m userMode, seed uint64) (all []request) {
		for buyer := range 3 {
			next := m.plan(seed, buyer, 3)
			for range 30 {
				all = append(all, next())
			}
		}
		return all
	}
	for _, m := range userModes {
		if !slices.Equal(plan(m, 7), plan(m, 7)) || slices.Equal(plan(m, 7), plan(m, 8)) {
			t.Errorf("%s: the plan does not depend on the seed alone", m)
		}
		users, ids := map[int64]int{}, map[string]int{}
		for _, r := range plan(m, 7) {
			users[r.user]++
			ids[r.id]++
		}
		want := map[userMode][2]int{distinct: {90, 90}, one: {1, 90}, sameID: {30, 30}, newID: {30, 90}}[m]
		if m != zipf && (len(users) != want[0] || len(ids) != want[1]) {
			t.Errorf("%s: %d users with %d ids, want %v", m, len(users), len(ids), want)
		}
	}
}

// D17: what a crash between the steps of DECR with compensation leaves, the checker finds.
func TestDecrDrifts(t *testing.T) {
	s, err := openStores(t.Context(), stores.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	shop := &decrShop{&shop{Stores: s}}
	b := &bench{tableConfig: tableConfig{stock: 3}, hall: &hall{shop: shop.shop}}
	w := &way{status: 201, open: shop.open, left: shop.left}
	if _, err := shop.buy(t.Context(), purchase{1, 1, 1}); !errors.Is(err, stock.ErrNotWarmed) {
		t.Errorf("without a counter: %v, want not warmed", err)
	}
	if err := w.open(t.Context(), 1, 3); err != nil {
		t.Fatal(err)
	}
	l := newLoad()
	for user := range int64(3) {
		no, err := shop.buy(t.Context(), purchase{user, 1, 1})
		if err != nil {
			t.Fatal(err)
		}
		l.orders[no] = no
		l.demand++
	}
	if _, err := shop.buy(t.Context(), purchase{9, 1, 1}); !errors.Is(err, errSoldOut) {
		t.Errorf("the fourth of three: %v", err)
	}
	judge := func() row {
		r := l.row("decr")
		if err := b.check(t.Context(), w, 1, l, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := judge(); !r.Clean || r.FinalStock != 0 {
		t.Errorf("%+v %v", r, r.notes)
	}
	if err := s.Redis.Decr(t.Context(), shop.key(1)).Err(); err != nil { // and then the process dies
		t.Fatal(err)
	}
	if r := judge(); r.Clean || !slices.Contains(r.notes, "-1 left in Redis, 0 in SQL") {
		t.Errorf("the drift was not found: %v", r.notes)
	}
}

// What a client hears must not contradict what it has heard before.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		repeats bool
		answers []string // "" is a refusal
		faults  int
	}{
		"the same order again":           {true, []string{"", "a", "a"}, 0},
		"another order":                  {true, []string{"a", "b"}, 1},
		"refused after a success":        {true, []string{"a", ""}, 1},
		"refused where nobody remembers": {false, []string{"a", ""}, 0},
		"sold twice":                     {false, []string{"a", "b"}, 1},
	} {
		l := newLoad()
		for _, order := range c.answers {
			l.judge(&way{repeats: c.repeats}, "id", order != "", order)
		}
		if len(l.faults) != c.faults {
			t.Errorf("%s: %v", name, l.faults)
		}
	}
}
