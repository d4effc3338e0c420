package stock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Option changes how New and NewQuota make a Counter; they check all of them. A nil Option is ignored.
type Option func(*config) error

type config struct {
	prefix  string
	parts   int
	hold    time.Duration
	keep    time.Duration
	stream  bool
	backlog int64
	filter  time.Duration
	items   []string

	tracers trace.TracerProvider
	meters  metric.MeterProvider
	logger  *slog.Logger
}

const (
	leastKeep    = 10 * time.Minute
	streamKeep   = 24 * time.Hour // without holds the record is the proof of what lands late, or is a dead letter, and may have to be given back
	leastHold    = time.Second
	mostTime     = 366 * 24 * time.Hour
	maxPrefix    = 64
	mostParts    = 100
	usualBacklog = 100_000
	mostBacklog  = 10_000_000
	leastFilter  = 10 * time.Millisecond
	mostFilter   = time.Minute
	mostItems    = 100
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
		if d < leastHold || d > mostTime || d%time.Millisecond != 0 {
			return fmt.Errorf("stock: WithHold(%v): whole milliseconds from %v to %v", d, leastHold, mostTime)
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
// is taken for it. In partitions each one has a stream; orders over several of them that are taken at the same moment may
// together go above. It needs WithStream. Default 100 000, from 1 to 10 000 000.
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
// repeat known. Least 10 min, at most 366 days, in whole milliseconds. Without a hold it is also how long units can be confirmed or
// released; with one the record outlives the hold's deadline in any case. Default 10 min, and a day with [WithStream] alone: an order
// that lands late, or lies with the dead letters, may have to be given back. After that a repeat is a new request, and only
// the user's limit and SQL's unique indexes stop it.
func WithRetryWindow(d time.Duration) Option {
	return func(c *config) error {
		if d < leastKeep || d > mostTime || d%time.Millisecond != 0 {
			return fmt.Errorf("stock: WithRetryWindow(%v): whole milliseconds from %v to %v", d, leastKeep, mostTime)
		}
		c.keep = d
		return nil
	}
}

// WithSoldOutFilter lets an instance refuse orders for an item by itself, for d after Redis has told it that nothing is
// left: a crowd that comes too late then costs Redis next to nothing. A return or a restock ends that at once in every
// instance, by a message; should the message be lost, after d. It never says that something is there. Off unless given;
// from 10 ms to 1 min; 1 s is a good choice. Counters with it are ended by Close.
//
// What it costs: while it lasts, the repeat of an order that was taken hears ErrInsufficient instead of its first outcome,
// unless the middleware knows that it is a repeat.
func WithSoldOutFilter(d time.Duration) Option {
	return func(c *config) error {
		if d < leastFilter || d > mostFilter {
			return fmt.Errorf("stock: WithSoldOutFilter(%v): from %v to %v", d, leastFilter, mostFilter)
		}
		c.filter = d
		return nil
	}
}

// WithItemMetrics shows what is left of these items, at most 100, in the gauge holdfast.stock.remaining. They are asked
// for whenever metrics are collected. Counters with it are ended by Close.
func WithItemMetrics(items ...ID) Option {
	return func(c *config) error {
		if len(items) > mostItems {
			return fmt.Errorf("stock: WithItemMetrics with %d items: at most %d, as each one is a series of its own", len(items), mostItems)
		}
		for _, item := range items {
			var text string
			if err := checkID("an item of WithItemMetrics", item, &text, true); err != nil {
				return err
			}
			c.items = append(c.items, text)
		}
		return nil
	}
}

// WithTracerProvider sets the provider of spans. By default it is that of the span in the context of a call, else the
// global one. Nil is ignored.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *config) error {
		if tp != nil {
			c.tracers = tp
		}
		return nil
	}
}

// WithMeterProvider sets the provider of metrics, by default the global one. Nil is ignored.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) error {
		if mp != nil {
			c.meters = mp
		}
		return nil
	}
}

// WithLogger sets the logger, by default slog.Default() at the time of New. Nil is ignored.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l != nil {
			c.logger = l
		}
		return nil
	}
}

func newConfig(opts []Option) (config, error) {
	var c config
	var faults []error
	for _, opt := range opts {
		if opt != nil {
			faults = append(faults, opt(&c))
		}
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	if c.backlog > 0 && !c.stream {
		faults = append(faults, errors.New("stock: WithMaxBacklog without WithStream: add WithStream, or leave it out"))
	}
	if c.backlog == 0 {
		c.backlog = usualBacklog
	}
	switch {
	case c.keep != 0:
	case c.stream && c.hold == 0:
		c.keep = streamKeep
	default:
		c.keep = leastKeep
	}
	return c, errors.Join(faults...)
}
