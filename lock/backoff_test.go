package lock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The ranges are 20 % to both sides of 50, 100, 200, 400 and 500 ms.
var backoffTable = []struct {
	attempt        int
	base, low, top time.Duration
}{
	{1, 50 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond},
	{2, 100 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond},
	{3, 200 * time.Millisecond, 160 * time.Millisecond, 240 * time.Millisecond},
	{4, 400 * time.Millisecond, 320 * time.Millisecond, 480 * time.Millisecond},
	{5, 500 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond},
	{6, 500 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond},
	{100, 500 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond},
}

// D41: jitter of 20 % to both sides of the base. Adding 0 to 20 % only would not spread the load, it would shift it.
// F011: fixed or unjittered waits let contenders knock in step.
func TestBackoffJittersToBothSides(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, row := range backoffTable {
		below, above := 0, 0
		for range 10_000 {
			d := backoff(row.attempt, rnd.Float64)
			if d < row.low || d > row.top {
				t.Fatalf("attempt %d: waits %v, want %v to %v", row.attempt, d, row.low, row.top)
			}
			if d < row.base {
				below++
			} else {
				above++
			}
		}
		if below < 4_000 || above < 4_000 {
			t.Errorf("attempt %d: %d below and %d above the base of %v, want both halves used alike", row.attempt, below, above, row.base)
		}
	}
}

// D42: about 8.2 s over 19 waits, which is the default wait budget.
func TestBackoffSumOfTheBasesIsTheDefaultBudget(t *testing.T) {
	middle := func() float64 { return 0.5 }
	var sum time.Duration
	for attempt := 1; attempt <= 19; attempt++ {
		sum += backoff(attempt, middle)
	}
	if sum != 8250*time.Millisecond {
		t.Errorf("19 waits without jitter are %v, want 8.25s", sum)
	}
	if c := defaults(); c.wait != sum {
		t.Errorf("the default budget is %v, want %v", c.wait, sum)
	}
}

// D43: a thousand contenders without a common queue that come in the same millisecond do not stay together: of the
// second attempts no 5 ms hold more than 35 % (25 % is expected), of the third no more than 20 %.
func TestBackoffBreaksUpAStampede(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	at := make([]time.Duration, 1000)
	for attempt, most := range map[int]int{1: 350, 2: 200} {
		buckets := map[time.Duration]int{}
		for i := range at {
			at[i] = 0
			for n := 1; n <= attempt; n++ {
				at[i] += backoff(n, rnd.Float64)
			}
			buckets[at[i]/(5*time.Millisecond)]++
		}
		for bucket, n := range buckets {
			if n > most {
				t.Errorf("%d of 1000 attempts no. %d are in the 5 ms from %v, want at most %d", n, attempt+1, 5*bucket*time.Millisecond, most)
			}
		}
	}
}

// What a user's function returns is never less than a millisecond: no option makes a Locker spin.
func TestBackoffOfTheUserCannotSpin(t *testing.T) {
	c, err := newConfig([]Option{Backoff(func(int, func() float64) time.Duration { return -1 })})
	if err != nil {
		t.Fatal(err)
	}
	if d := c.pauseAfter(3); d != time.Millisecond {
		t.Errorf("waits %v, want 1ms", d)
	}
}
