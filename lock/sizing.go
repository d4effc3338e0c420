package lock

import "time"

// Margins that TripleP99 takes.
const (
	minMargin = 200 * time.Millisecond
	maxMargin = 500 * time.Millisecond
)

// DoubleP99 is the TTL for work whose 99th percentile is p99 and whose pauses are known to be short: 2 x p99, rounded up
// to whole milliseconds. A p99 of 0 or less is ErrInvalid, and so is one whose double is outside what [TTL] takes.
func DoubleP99(p99 time.Duration) (time.Duration, error) {
	return fromP99(p99, 2, 0)
}

// TripleP99 is the TTL for all other work: 3 x p99 + margin, rounded up to whole milliseconds. The factor covers pauses,
// jitter and bursts, the margin (200 to 500 ms, else ErrInvalid) the way to Redis and back. A p99 of 0 or less is
// ErrInvalid, and so is one that leads outside what [TTL] takes.
func TripleP99(p99, margin time.Duration) (time.Duration, error) {
	if margin < minMargin || margin > maxMargin {
		return 0, invalid("the margin %v must be from %v to %v", margin, minMargin, maxMargin)
	}
	return fromP99(p99, 3, margin)
}

func fromP99(p99 time.Duration, factor int64, margin time.Duration) (time.Duration, error) {
	if p99 <= 0 || p99 > maxTTL {
		return 0, invalid("the P99 %v must be above 0 and at most %v", p99, maxTTL)
	}
	ttl := (time.Duration(factor)*p99 + margin + time.Millisecond - 1).Truncate(time.Millisecond)
	if ttl < minTTL || ttl > maxTTL {
		return 0, invalid("the P99 %v asks for a TTL of %v, and a TTL must be from %v to %v", p99, ttl, minTTL, maxTTL)
	}
	return ttl, nil
}

// MaxRate is how often a second one key can be locked when each holder keeps it for hold: 1 / hold. It is the ceiling of
// the route, however many instances there are. A hold of 0 or less has no ceiling: +Inf.
func MaxRate(hold time.Duration) float64 {
	return 1 / max(0, hold.Seconds())
}
