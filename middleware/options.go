package middleware

import (
	"errors"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/lockkey"
)

// Option changes what [New] makes.
type Option func(*config) error

type config struct {
	prefix  *string
	values  []lockkey.Option
	locker  *lock.Locker
	store   dedup.Store
	tracer  trace.TracerProvider
	meter   metric.MeterProvider
	log     *slog.Logger
	onError func(http.ResponseWriter, *http.Request, error)
}

func newConfig(opts []Option) (*config, error) {
	c := &config{log: slog.Default()}
	var faults []error
	for _, opt := range opts {
		if opt == nil {
			faults = append(faults, errors.New("middleware: an option is nil; leave it out"))
			continue
		}
		if err := opt(c); err != nil {
			faults = append(faults, err)
		}
	}
	// Each value is registered with a template of its own, so that a bad name shows here and not at the first rule.
	if _, err := lockkey.Parse("all", c.values...); err != nil {
		faults = append(faults, err)
	}
	c.log = slog.New(withRequestID{c.log.Handler()})
	return c, errors.Join(faults...)
}

// Prefix puts p in front of all keys in Redis: "shop:" gives shop:lock:... and shop:idem:... Default none. It must not
// have a brace. It does not reach a locker or a store that is given with [WithLocker] or [WithStore].
func Prefix(p string) Option {
	return func(c *config) error {
		c.prefix = &p
		return nil
	}
}

// WithValue registers a value for templates: {name} stands for what value returns. It is the way to what the client must
// not choose, such as the authenticated user. An error of value answers the request with the status of the error's
// method HTTPStatus() int, where that is 400 to 599, else with 500; an empty value is 500. See [lockkey.WithValue].
//
// A name must not be registered twice; a name that is also a param of a route is refused by [Guard.Validate].
func WithValue(name string, value func(*http.Request) (string, error)) Option {
	return func(c *config) error {
		c.values = append(c.values, lockkey.WithValue(name, value))
		return nil
	}
}

// WithLocker gives a locker of your own: with other limits, on another Redis, on another back-end. Default: one on the
// guard's client. [Guard.Close] does not close it.
func WithLocker(l *lock.Locker) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("middleware: WithLocker(nil); give a locker or leave the option out")
		}
		c.locker = l
		return nil
	}
}

// WithStore gives a store of your own for the records of Dedup. Default: one on the guard's client.
func WithStore(s dedup.Store) Option {
	return func(c *config) error {
		if s == nil {
			return errors.New("middleware: WithStore(nil); give a store or leave the option out")
		}
		c.store = s
		return nil
	}
}

// WithTracerProvider is handed on to the locker and the dedup that [New] makes. Default, also for nil: the provider of
// the span in the request's context, else the global one.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *config) error {
		c.tracer = tp
		return nil
	}
}

// WithMeterProvider is handed on to the locker and the dedup that [New] makes. Default, also for nil: the global one.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) error {
		c.meter = mp
		return nil
	}
}

// WithLogger sets the logger of the guard and of the locker and the dedup that [New] makes. Default, also for nil:
// slog.Default() at the time of New. Where chi's RequestID is mounted outside, each line of a request has its id as
// request_id, cut to 64 printable bytes.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l != nil {
			c.log = l
		}
		return nil
	}
}

// WithErrorHandler replaces [WriteProblem] for the refusals of this guard. The function writes the whole answer; what
// [Describe] returns for the error has status, code and wait. It is called at most once a request, before anything is
// written, in the goroutine that serves the request. Its text is never that of err: errors may wrap those of Redis.
// Default, also for nil: WriteProblem.
func WithErrorHandler(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(c *config) error {
		c.onError = f
		return nil
	}
}
