package lock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// B17, D32, D33, X26: two formulas lead from the P99 to the TTL, each with its name.
func TestTTLFromP99(t *testing.T) {
	const ms = time.Millisecond
	triple := func(margin time.Duration) func(time.Duration) (time.Duration, error) {
		return func(p99 time.Duration) (time.Duration, error) { return TripleP99(p99, margin) }
	}
	for _, c := range []struct {
		name    string
		formula func(time.Duration) (time.Duration, error)
		p99     time.Duration
		want    time.Duration // 0: refused
	}{
		{"2 x P99", DoubleP99, 120 * ms, 240 * ms},
		{"rounded up to whole milliseconds", DoubleP99, 120*ms + 100*time.Microsecond, 241 * ms},
		{"3 x P99 + 300 ms", triple(300 * ms), 120 * ms, 660 * ms},
		{"least margin", triple(200 * ms), 120 * ms, 560 * ms},
		{"most margin", triple(500 * ms), 120 * ms, 860 * ms},
		{"margin too small", triple(100 * ms), 120 * ms, 0},
		{"margin too large", triple(600 * ms), 120 * ms, 0},
		{"no P99", DoubleP99, 0, 0},
		{"negative", triple(300 * ms), -ms, 0},
		{"below the least TTL", DoubleP99, time.Microsecond, 0},
		{"above the ceiling", DoubleP99, 4 * time.Minute, 0},
		{"no overflow", DoubleP99, math.MaxInt64, 0},
	} {
		got, err := c.formula(c.p99)
		if got != c.want || (c.want == 0) != errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
		if c.want != 0 && TTL(got).adjust(&settings{}) != nil {
			t.Errorf("%s: %v is no TTL", c.name, got)
		}
	}
}

// D74: a key does 1000 / hold time in ms a second.
func TestMaxRate(t *testing.T) {
	for hold, want := range map[time.Duration]float64{50 * time.Millisecond: 20, 5 * time.Millisecond: 200, 20 * time.Millisecond: 50, 0: math.Inf(1), -1: math.Inf(1)} {
		if got := MaxRate(hold); got != want {
			t.Errorf("MaxRate(%v) = %v, want %v", hold, got, want)
		}
	}
}

// BenchmarkRateOfOneKey shows D74 measured: 50 holders that keep one key for 5 ms each; "of the ceiling" should be above 0.8.
func BenchmarkRateOfOneKey(b *testing.B) {
	const hold = 5 * time.Millisecond
	srv := testserver.Redis(b)
	l, err := New(srv.Client(b), Prefix(srv.Prefix(b)))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	b.SetParallelism(25)
	start := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lease, err := l.Acquire(b.Context(), []string{"one"}, Wait(time.Minute))
			if err != nil {
				b.Error(err)
				return
			}
			<-time.After(hold)
			if err := lease.Release(b.Context()); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds()/MaxRate(hold), "of_the_ceiling")
}
