package main

import (
	"math"
	"os"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	if child() { // the cases of several processes start this binary again
		return
	}
	testserver.Main(m)
}

// Every case of every suite runs, and has a figure for each of its claims: the figures of so short a round mean nothing.
func TestEveryCaseGivesItsFigures(t *testing.T) {
	quickDeadlocks(t)
	names := map[string]bool{}
	for _, s := range suites() {
		for _, c := range s.Cases {
			t.Run(s.Name+"/"+c.Name, func(t *testing.T) {
				rows, err := c.measure(s.Name, &Env{TB: t}, 1, 20*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) != len(c.Claims) || len(rows) == 0 {
					t.Errorf("%d rows for %d claims", len(rows), len(c.Claims))
				}
				for _, r := range rows {
					if id := r.Suite + "/" + r.Case + " " + r.Baseline + " " + r.Unit; names[id] {
						t.Errorf("two rows are %s", id)
					} else {
						names[id] = true
					}
					if r.Unit == "" || r.Baseline == "" {
						t.Errorf("%+v: a figure without unit or baseline", r)
					}
				}
			})
		}
	}
}

// quickDeadlocks has PostgreSQL look for a deadlock sooner than after a second, so that a round is as short as it was
// asked to be. The server is that of all cases.
func quickDeadlocks(t *testing.T) {
	t.Helper()
	db := openPostgres(&Env{TB: t}, &gorm.Config{})
	for _, statement := range []string{"ALTER SYSTEM SET deadlock_timeout = '10ms'", "SELECT pg_reload_conf()"} {
		if err := db.Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
}

// The row of a claim is the round with the median ratio, and of two middle ones the worse.
func TestMedianRound(t *testing.T) {
	rounds := []Figures{{holdfast: 30, "b": 10}, {holdfast: 10, "b": 10}, {holdfast: 20, "b": 10}, {holdfast: 40, "b": 10}}
	for _, tc := range []struct {
		name   string
		claim  Claim
		rounds []Figures
		ours   float64
		met    bool
	}{
		{"odd", Claim{Baseline: "b", Target: 2}, rounds[:3], 20, true},
		{"even, more is better", Claim{Baseline: "b", Target: 2.5}, rounds, 20, false},
		{"even, less is better", Claim{Baseline: "b", Target: 2.5, LowerIsBetter: true}, rounds, 30, false},
		{"no target", Claim{Baseline: "b"}, rounds[:1], 30, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			row, err := tc.claim.row(tc.rounds)
			if err != nil || row.Ours != tc.ours || row.Ratio != tc.ours/10 || row.Met() != tc.met {
				t.Errorf("got %+v, met %v, %v; want ours %v, met %v", row, row.Met(), err, tc.ours, tc.met)
			}
		})
	}
}

// A figure that is missing, or no number, is an error and not a ratio.
func TestMissingFiguresAreErrors(t *testing.T) {
	for _, f := range []Figures{{holdfast: 1}, {"b": 1}, {holdfast: 0, "b": 1}, {holdfast: 1, "b": math.Inf(1)}, {holdfast: math.NaN(), "b": 1}} {
		if row, err := (Claim{Baseline: "b"}).row([]Figures{f}); err == nil {
			t.Errorf("%v gave %+v", f, row)
		}
	}
}

// A wrong name or value on the command line is told, and nothing is measured.
func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"-suite", "locks"}, {"-case", "("}, {"-rounds", "0"}, {"-time", "-1s"}, {"lock"}} {
		if err := run(args, os.Stderr); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
