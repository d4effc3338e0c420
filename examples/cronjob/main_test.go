package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The processes that a test starts are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(command(os.Args[1:]))
	}
	testserver.Main(m)
}

// C02, C01, A04: over several processes each period is done once and no two runs overlap; a run that failed is repeated, and
// a process that dies with the lock blocks the others for its TTL at most.
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
			for _, want := range []string{"outcome", done, failed, died} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
		})
	}
}

// A checker that passes a fault proves nothing.
func TestCheckSeesFaults(t *testing.T) {
	s := schedule{start: time.Unix(1000, 0), period: time.Second, periods: 2, fail: -1, die: -1}
	run := func(period int, from, to float64) entry {
		at := func(s float64) time.Time { return time.Unix(1000, int64(s*1e9)) }
		return entry{Period: period, Began: at(from), Ended: at(to), Outcome: done}
	}
	good := []entry{run(0, 0, .5), run(1, 1, 1.5)}
	if err := (&history{entries: good}).check(s); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]history{
		"twice":         {entries: append(good[:2:2], run(1, 2, 2.5))},
		"not at all":    {entries: good[:1]},
		"overlap":       {entries: []entry{run(0, 0, 1.2), run(1, 1, 1.5)}},
		"too early":     {entries: []entry{run(0, 0, .3), run(1, .5, .7)}},
		"killed":        {entries: good, killed: 1},
		"died, somehow": {entries: append(good[:2:2], entry{Outcome: died})},
	} {
		if err := h.check(s); err == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-processes", "1"}, {"-periods", "0"}, {"-period", "1ms"}, {"start"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
