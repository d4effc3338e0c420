package dedup_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/dedup"
)

func TestARepeatGetsTheFirstResult(t *testing.T) {
	srv, rdb := mini(t)
	d := engine(t, rdb)
	runs := 0
	work := func(context.Context) ([]byte, error) { runs++; return []byte("order 1"), nil }
	for i := range 3 {
		res, replayed, err := d.Do(t.Context(), buy("k"), work)
		if err != nil || string(res) != "order 1" || replayed != (i > 0) {
			t.Fatalf("send %d: got %q, replayed %v, %v", i+1, res, replayed, err)
		}
	}
	if runs != 1 {
		t.Errorf("the work ran %d times, want 1", runs)
	}
	if ttl := srv.TTL("idem:" + buy("k").ID()); ttl != dedup.DefaultTTL {
		t.Errorf("the record lives for %v, want %v", ttl, dedup.DefaultTTL)
	}
}

func TestFailureFreesTheKeyAtOnce(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	boom := errors.New("boom")
	if _, _, err := d.Do(t.Context(), buy("k"), func(context.Context) ([]byte, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Fatalf("got %v, want the error of the work", err)
	}
	res, replayed, err := d.Do(t.Context(), buy("k"), func(ctx context.Context) ([]byte, error) {
		if e := dedup.FromContext(ctx); e.Attempt() != 2 || e.Takeover() {
			t.Errorf("attempt %d, takeover %v; want 2, false", e.Attempt(), e.Takeover())
		}
		return []byte("ok"), nil
	})
	if err != nil || replayed || string(res) != "ok" {
		t.Errorf("got %q, %v, %v", res, replayed, err)
	}
}

func TestOneKeyForTwoBodiesIsAMismatch(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	claim, _, err := d.Begin(t.Context(), buy("k"))
	if err != nil {
		t.Fatal(err)
	}
	other := buy("k")
	other.Fingerprint = []byte("another body")
	for _, state := range []string{"running", "done"} {
		if _, _, err := d.Begin(t.Context(), other); !errors.Is(err, dedup.ErrMismatch) {
			t.Errorf("%s: got %v, want ErrMismatch", state, err)
		}
		if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHundredAtOnceRunOnce(t *testing.T) {
	_, rdb := mini(t)
	engines := []*dedup.Dedup{engine(t, rdb), engine(t, rdb)}
	var runs atomic.Int32
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			res, _, err := engines[i%2].Do(context.Background(), buy("k"), func(context.Context) ([]byte, error) {
				runs.Add(1)
				return []byte("order 1"), nil
			})
			if err != nil || string(res) != "order 1" {
				t.Errorf("got %q, %v", res, err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("the work ran %d times, want 1", runs.Load())
	}
}
