package stock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// An Option changes a [Counter]. New checks all of them.
type Option func(*config) error

type config struct {
	prefix string
	hold   time.Duration
	stream bool
	keep   time.Duration
}

const (
	leastKeep = 10 * time.Minute
	leastHold = time.Second
	mostTime  = 366 * 24 * time.Hour
	maxPrefix = 64
)

// Prefix is put in front of every key, for example "shop:". The default is none. Two applications on one Redis need
// two prefixes. At most 64 bytes, without braces and white space: a brace would move keys to another slot of a cluster.
func Prefix(prefix string) Option {
	return func(c *config) error {
		if len(prefix) > maxPrefix || strings.ContainsAny(prefix, "{} \t\r\n") {
			return fmt.Errorf("stock: Prefix(%q): at most %d bytes without braces and white space", prefix, maxPrefix)
		}
		c.prefix = prefix
		return nil
	}
}

// WithHold makes every deduct a hold, to be ended by Confirm (paid) or Release. One that nobody ends has a deadline, d
// after the deduct: from then on Expired returns it, and a sweeper gives its units back. For sales with payment. Off
// unless given: a hold that nobody confirms closes good orders. From 1 s to 366 days, in whole milliseconds.
func WithHold(d time.Duration) Option {
	return func(c *config) error {
		if d < leastHold || d > mostTime {
			return fmt.Errorf("stock: WithHold(%v): from %v to %v", d, leastHold, mostTime)
		}
		c.hold = d
		return nil
	}
}

// WithStream appends each accepted order to the stream stock:orders, in the step that takes its units, for a worker
// that lands it in SQL. Off unless given: a stream that nobody reads only grows.
func WithStream() Option {
	return func(c *config) error {
		c.stream = true
		return nil
	}
}

// WithRetryWindow is how long a client may repeat a request after its first try: so long lives the record that makes the
// repeat known. Default and least 10 min, at most 366 days. Without a hold it is also how long units can be confirmed or
// released; with one the record outlives the hold's deadline in any case. After that a repeat is a new request, and only
// the user's limit and SQL's unique indexes stop it.
func WithRetryWindow(d time.Duration) Option {
	return func(c *config) error {
		if d < leastKeep || d > mostTime {
			return fmt.Errorf("stock: WithRetryWindow(%v): from %v to %v", d, leastKeep, mostTime)
		}
		c.keep = d
		return nil
	}
}

func newConfig(opts []Option) (config, error) {
	c := config{keep: leastKeep}
	var faults []error
	for _, opt := range opts {
		faults = append(faults, opt(&c))
	}
	return c, errors.Join(faults...)
}
