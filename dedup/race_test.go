package dedup_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The invariant over a record whose first owner has just died: of 100 that come at once, in two processes, one runs and
// all get its answer.
func TestHundredDuplicatesOverAJustLapsedRecord(t *testing.T) {
	const rounds, duplicates = 1000, 100
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	s := store(t, rdb, prefix)
	engines := []*dedup.Dedup{engine(t, rdb, dedup.Prefix(prefix)), engine(t, rdb, dedup.Prefix(prefix))}
	next := make(chan int)
	var rounders sync.WaitGroup
	for range 8 {
		rounders.Go(func() {
			for round := range next {
				lapsedRound(t, s, engines, buy("round "+strconv.Itoa(round)), duplicates)
			}
		})
	}
	for round := range rounds {
		next <- round
	}
	close(next)
	rounders.Wait()
}

func lapsedRound(t *testing.T, s dedup.Store, engines []*dedup.Dedup, req dedup.Request, duplicates int) {
	dead := dedup.BeginRequest{Owner: dedup.Owner{ID: req.ID(), Token: "dead", Fingerprint: req.Fingerprint}, Lease: time.Millisecond, TTL: time.Minute}
	if a, err := s.Begin(t.Context(), dead); err != nil || a.Verdict != dedup.VerdictRun {
		t.Errorf("%s: %+v, %v", req.Key, a, err)
		return
	}
	var runs atomic.Int32
	var wg sync.WaitGroup
	for n := range duplicates {
		wg.Go(func() {
			res, replay, err := engines[n%2].Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
				runs.Add(1)
				if e := dedup.FromContext(ctx); e.Attempt() != 2 || !e.Takeover() {
					t.Errorf("%s runs as attempt %d, takeover %v", req.Key, e.Attempt(), e.Takeover())
				}
				return []byte(req.Key), nil
			})
			if err != nil || string(res) != req.Key {
				t.Errorf("%s: got %q, replayed %v, %v", req.Key, res, replay, err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("%s: the work ran %d times, want 1", req.Key, runs.Load())
	}
}

// A mix of success, failure and panic under many keys at once: a key that has once answered with success never runs
// again, and no two runs of one key overlap.
func TestNoKeyRunsTwiceAtOnceOrAfterASuccess(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	engines := []*dedup.Dedup{engine(t, rdb, dedup.Prefix(prefix)), engine(t, rdb, dedup.Prefix(prefix))}
	const keys, callers, calls = 8, 16, 60
	var running, succeeded [keys]atomic.Int32
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := range calls {
				key := (c + n) % keys
				func() {
					defer func() { _ = recover() }()
					_, _, _ = engines[c%2].Do(context.Background(), buy(strconv.Itoa(key)), func(context.Context) ([]byte, error) {
						if running[key].Add(1) != 1 {
							t.Errorf("key %d runs twice at once", key)
						}
						defer running[key].Add(-1)
						if succeeded[key].Load() != 0 {
							t.Errorf("key %d runs after a success", key)
						}
						switch (c*7 + n*3) % 10 {
						case 0:
							panic("boom")
						case 1:
							succeeded[key].Add(1)
							return nil, nil
						}
						return nil, context.Canceled
					})
				}()
			}
		})
	}
	wg.Wait()
	for key := range keys {
		if n := succeeded[key].Load(); n > 1 {
			t.Errorf("key %d has succeeded %d times", key, n)
		}
	}
}
