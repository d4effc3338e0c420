package lock

import (
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 50 * time.Millisecond
	backoffCap  = 500 * time.Millisecond
)

// backoff is the default table: 50, 100, 200, 400 and then 500 ms, from 20 % below to 20 % above. Jitter to one side
// only would shift the load instead of spreading it.
func backoff(attempt int, rnd func() float64) time.Duration {
	d := backoffCap
	if attempt <= 4 {
		d = backoffBase << (max(attempt, 1) - 1)
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rnd()))
}

// wait returns how long to wait after the n-th attempt.
func (c *config) pauseAfter(n int) time.Duration {
	return max(c.backoff(n, rand.Float64), time.Millisecond)
}
