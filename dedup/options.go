package dedup

import (
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option configures New and NewWithStore.
type Option func(*config) error

// config also holds what the package has decided, so that tests can make it short.
type config struct {
	prefix     string
	withPrefix bool
	tracer     trace.TracerProvider
	meter      metric.MeterProvider
	log        *slog.Logger

	lease   time.Duration // until a claim that is not renewed lapses; renewed at a third
	maxRun  time.Duration // after that the claim's context is cancelled
	wait    time.Duration // how long Begin waits for the other request
	call    time.Duration // for one call of the store
	persist time.Duration // how long Complete tries before it goes on in the background
	perKey  int           // how many may wait for one request in this process
	waiters int           // how many may wait in this process
	pending int           // how many results may be on their way to the store in the background
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		lease:   30 * time.Second,
		maxRun:  5 * time.Minute,
		wait:    2 * time.Second,
		call:    250 * time.Millisecond,
		persist: time.Second,
		perKey:  1_000,
		waiters: 10_000,
		pending: 1_000,
	}
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt(c))
		}
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	return c, errors.Join(errs...)
}

// Prefix stands in front of all keys in Redis: "shop:" gives "shop:idem:...". Default none; at most 128 bytes, no brace.
// It is refused by NewWithStore, since a store has its keys already.
func Prefix(p string) Option {
	return func(c *config) error {
		c.prefix, c.withPrefix = p, true
		return checkPrefix(p)
	}
}

// WithTracerProvider gives the provider of spans. Nil, and the default, is that of the span in the context, else the
// global one.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *config) error { c.tracer = tp; return nil }
}

// WithMeterProvider gives the provider of metrics. Nil, and the default, is the global one.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) error { c.meter = mp; return nil }
}

// WithLogger gives the logger. Nil, and the default, is slog.Default().
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error { c.log = l; return nil }
}
