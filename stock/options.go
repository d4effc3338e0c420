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
	prefix  string
	parts   int
	hold    time.Duration
	keep    time.Duration
	stream  bool
	backlog int64
}

const (
	leastKeep    = 10 * time.Minute
	leastHold    = time.Second
	mostTime     = 366 * 24 * time.Hour
	maxPrefix    = 64
	mostParts    = 100
	usualBacklog = 100_000
	mostBacklog  = 10_000_000
	// streamLife is how long a stream lives after its last entry, at least.
	streamLife = 7 * 24 * time.Hour
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

// WithPartitions spreads the keys over n partitions, each in one slot: needed on Redis Cluster, and for segments. From 1
// to 100; the default is the flat keyspace, which is for a single primary. Every instance must be given the same n:
// Warm refuses another one as long as a sale of the prefix is remembered.
//
// What it costs: a request id is known in the partition of its item and user, so the same id for another item may be
// taken twice where no dedup stands in front.
func WithPartitions(n int) Option {
	return func(c *config) error {
		if n < 1 || n > mostParts {
			return fmt.Errorf("stock: WithPartitions(%d): from 1 to %d", n, mostParts)
		}
		c.parts = n
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
// that lands it in SQL. Off unless given: a stream that nobody reads only grows, until Deduct refuses (WithMaxBacklog).
func WithStream() Option {
	return func(c *config) error {
		c.stream = true
		return nil
	}
}

// WithMaxBacklog is how many entries a stream may have: what would go above is refused with ErrOverloaded, and nothing
// is taken for it. In partitions each one has a stream. It needs WithStream. Default 100 000, from 1 to 10 000 000.
func WithMaxBacklog(n int64) Option {
	return func(c *config) error {
		if n < 1 || n > mostBacklog {
			return fmt.Errorf("stock: WithMaxBacklog(%d): from 1 to %d", n, mostBacklog)
		}
		c.backlog = n
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
	if c.backlog > 0 && !c.stream {
		faults = append(faults, errors.New("stock: WithMaxBacklog without WithStream: add WithStream, or leave it out"))
	}
	if c.backlog == 0 {
		c.backlog = usualBacklog
	}
	return c, errors.Join(faults...)
}
