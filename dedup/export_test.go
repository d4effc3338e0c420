package dedup

import "time"

// Shorten changes what the package has decided, for tests that would otherwise wait for seconds. A zero changes nothing.
type Shorten struct {
	Lease, MaxRun, Wait, Call, Persist time.Duration
	PerKey, Waiters, Pending           int
}

// Option returns the change as an option.
func (s Shorten) Option() Option {
	return func(c *config) error {
		set(&c.lease, s.Lease)
		set(&c.maxRun, s.MaxRun)
		set(&c.wait, s.Wait)
		set(&c.call, s.Call)
		set(&c.persist, s.Persist)
		set(&c.perKey, s.PerKey)
		set(&c.waiters, s.Waiters)
		set(&c.pending, s.Pending)
		return nil
	}
}

func set[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

// Waiting returns how many calls wait for another of this process.
func (d *Dedup) Waiting() int {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	return d.flights.waiting
}

// Busy returns how many requests this process knows of.
func (d *Dedup) Busy() int {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	return len(d.flights.byID) + len(d.flights.apart)
}

// PollPause is the pause between two questions about a request that runs elsewhere.
func PollPause(n int, random float64) time.Duration { return pollPause(n, random) }
