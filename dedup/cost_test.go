//go:build !race

package dedup_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// instant is a store that answers without doing anything, so that what is counted is the engine's own.
type instant struct{ verdict dedup.Verdict }

func (s instant) Begin(context.Context, dedup.BeginRequest) (dedup.Answer, error) {
	return dedup.Answer{Verdict: s.verdict, Attempt: 1}, nil
}

func (instant) Renew(context.Context, dedup.Owner, time.Duration) error { return nil }
func (instant) Fail(context.Context, dedup.Owner) error                 { return nil }
func (instant) Forget(context.Context, dedup.Owner) error               { return nil }
func (instant) Complete(context.Context, dedup.Owner, dedup.Result, time.Duration) error {
	return nil
}

// Ceilings are lowered when the code gets better, never raised.
func TestAllocations(t *testing.T) {
	rdb := testserver.Redis(t).Client(t)
	prefix := testserver.Redis(t).Prefix(t)
	quiet := dedup.WithLogger(slog.New(slog.DiscardHandler))
	work := func(context.Context) ([]byte, error) { return nil, nil }
	onRedis := engine(t, rdb, dedup.Prefix(prefix), quiet)
	keys := make(chan string, 1000)
	for n := range cap(keys) {
		keys <- string(rune('a'+n%26)) + time.Duration(n).String()
	}
	do := func(d *dedup.Dedup, req dedup.Request) func() {
		return func() {
			if _, _, err := d.Do(context.Background(), req, work); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		run     func()
		ceiling float64
	}{
		"first, engine alone":  {do(engineOn(t, instant{dedup.VerdictRun}, quiet), buy("k")), 28},
		"replay, engine alone": {do(engineOn(t, instant{dedup.VerdictReplay}, quiet), buy("k")), 11},
		"first, over Redis":    {func() { do(onRedis, buy(<-keys))() }, 60},
		"replay, over Redis":   {do(onRedis, buy("replay")), 33},
		"record id":            {func() { _ = buy("k").ID() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := testing.AllocsPerRun(100, tt.run); got > tt.ceiling {
				t.Errorf("%v allocations, at most %v", got, tt.ceiling)
			}
		})
	}
}
