package lock

import (
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Limits and defaults of the options.
const (
	// DefaultTTL is the time to live of a lease that is not renewed.
	DefaultTTL = 30 * time.Second

	// DefaultWait is the wait budget: what the back-off, without its jitter, waits before the 20th attempt.
	DefaultWait = 8250 * time.Millisecond

	// DefaultMaxHold is how long a lease is renewed at most.
	DefaultMaxHold = 5 * time.Minute

	minTTL     = 10 * time.Millisecond
	maxTTL     = 5 * time.Minute
	maxLongTTL = 24 * time.Hour
)

// An Option changes how New makes a Locker. A nil Option is ignored.
type Option interface{ configure(*config) error }

// An AcquireOption is an Option that may also be given to one acquire, where it overrides that of the Locker.
type AcquireOption interface {
	Option
	adjust(*settings) error
}

// settings are what may differ from one acquire to the next.
type settings struct {
	ttl     time.Duration
	longTTL bool
	wait    time.Duration
	maxHold time.Duration
}

// config is what a Locker is made from.
type config struct {
	settings
	prefix   string
	noPrefix bool // written out as empty: keys are the caller's, without "lock:"
	backoff  func(attempt int, rnd func() float64) time.Duration

	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	logger     *slog.Logger
	noHoldSpan bool
	attempts   bool // an event for each attempt
	rawKeys    bool // keys in the clear on spans
}

func defaults() config {
	return config{
		settings: settings{ttl: DefaultTTL, wait: DefaultWait, maxHold: DefaultMaxHold},
		backoff:  backoff,
	}
}

func newConfig(opts []Option) (config, error) {
	c := defaults()
	var faults []error
	for _, o := range opts {
		if o != nil {
			faults = append(faults, o.configure(&c))
		}
	}
	faults = append(faults, c.check())
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c, errors.Join(faults...)
}

// check judges what only the options together can tell.
func (s *settings) check() error {
	if s.ttl > maxTTL && !s.longTTL {
		return invalid("TTL(%v) is above %v, and a crash blocks the key for that long: use less, or AllowLongTTL() too", s.ttl, maxTTL)
	}
	return nil
}

type option func(*config) error

func (o option) configure(c *config) error { return o(c) }

type acquireOption func(*settings) error

func (o acquireOption) configure(c *config) error { return o(&c.settings) }
func (o acquireOption) adjust(s *settings) error  { return o(s) }

// TTL sets how long a lease lives without renewal: how long a crash blocks the key. Default 30 s, 10 ms to 5 min, in
// whole milliseconds; more, up to 24 h, with AllowLongTTL. It does not limit how long the lock is held, since it is
// renewed at a third of it, nor how long others wait.
func TTL(d time.Duration) AcquireOption {
	return acquireOption(func(s *settings) error {
		if d < minTTL || d > maxLongTTL || d%time.Millisecond != 0 {
			return invalid("TTL(%v) must be whole milliseconds from %v to %v", d, minTTL, maxTTL)
		}
		s.ttl = d
		return nil
	})
}

// AllowLongTTL allows a TTL of more than 5 minutes. After a crash the key is blocked for that long, or until it is
// freed by [Locker.ForceRelease].
func AllowLongTTL() AcquireOption {
	return acquireOption(func(s *settings) error {
		s.longTTL = true
		return nil
	})
}

// Wait sets the wait budget, which counts from the call. Default 8.25 s, enough for 20 attempts. 0 means one attempt
// and no waiting. It has nothing to do with the TTL.
func Wait(d time.Duration) AcquireOption {
	return acquireOption(func(s *settings) error {
		if d < 0 {
			return invalid("Wait(%v) is negative: 0 means not to wait", d)
		}
		s.wait = d
		return nil
	})
}

// MaxHold sets for how long a lease is renewed at most. After it, its contexts are cancelled with [HeldTooLong] and the
// key runs out by itself, so that the work has about two thirds of the TTL to stop. Default 5 min; 0 means no limit.
func MaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(s *settings) error {
		if d < 0 {
			return invalid("MaxHold(%v) is negative: 0 means no limit", d)
		}
		s.maxHold = d
		return nil
	})
}

// Prefix sets what each key in Redis begins with: Prefix("shop:") makes stock:1001 to shop:lock:stock:1001. By default
// keys begin with lock:. An empty one, written out, drops lock: too, so that a service can share its locks with another
// library while it moves from it; these keys must then differ from all others in the database.
func Prefix(p string) Option {
	return option(func(c *config) error {
		if err := checkKey(p); err != nil && p != "" {
			return invalid("Prefix(%q) %v", p, err)
		}
		c.prefix, c.noPrefix = p, p == ""
		return nil
	})
}

// Backoff sets how long is waited after an attempt, counted from 1, that found the lock taken; rnd returns a random
// number in [0,1). It replaces the table of 50, 100, 200, 400 and then 500 ms, each with 20 % of jitter to both sides.
// It must be safe for concurrent use. What it returns counts as 1 ms at least.
func Backoff(f func(attempt int, rnd func() float64) time.Duration) Option {
	return option(func(c *config) error {
		if f == nil {
			return invalid("Backoff(nil): leave it out for the default")
		}
		c.backoff = f
		return nil
	})
}

// WithTracerProvider sets the provider of spans. By default it is that of the span in the context of a call, else the
// global one. Nil is ignored.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return option(func(c *config) error {
		if tp != nil {
			c.tracers = tp
		}
		return nil
	})
}

// WithMeterProvider sets the provider of metrics, by default the global one. Nil is ignored.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return option(func(c *config) error {
		if mp != nil {
			c.meters = mp
		}
		return nil
	})
}

// WithLogger sets the logger, by default slog.Default() at the time of New. Nil is ignored.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if l != nil {
			c.logger = l
		}
		return nil
	})
}

// WithoutHoldSpan leaves out the span from the grant to the end of the release.
func WithoutHoldSpan() Option {
	return option(func(c *config) error {
		c.noHoldSpan = true
		return nil
	})
}

// WithAttemptEvents adds an event to the span of an acquire for each attempt that found the lock taken, with the delay
// planned and the real one.
func WithAttemptEvents() Option {
	return option(func(c *config) error {
		c.attempts = true
		return nil
	})
}

// WithRawKeysInTraces shows the keys on spans in the clear, beside their hashes. Metrics and logs never have them.
func WithRawKeysInTraces() Option {
	return option(func(c *config) error {
		c.rawKeys = true
		return nil
	})
}

var (
	_ AcquireOption = acquireOption(nil)
	_ Option        = option(nil)
)
