package landing

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"
)

// An Option changes how New makes a Lander; New checks all of them. A nil Option is ignored.
type Option func(*config) error

type config struct {
	status    Status
	columns   Columns
	handler   any // func(*gorm.DB, []*Order) error
	deadline  time.Duration
	threshold int64

	tracers trace.TracerProvider
	meters  metric.MeterProvider
	logger  *slog.Logger
}

const (
	usualDeadline = time.Minute
	leastDeadline = time.Second
	mostDeadline  = 24 * time.Hour
	mostThreshold = 1<<53 - 1
)

// Status says where an order's state is kept, and how. Fields that are left zero keep their defaults.
type Status struct {
	// Column holds the state, default "status". Reason holds why an order was closed, default "close_reason" where the
	// model has such a column; without one a return that is repeated says "operator".
	Column, Reason string
	// Unpaid, Paid and Closed are the three states, defaults 0, 1 and 2. Give all three or none. Rows with any other
	// state are left alone.
	Unpaid, Paid, Closed any
}

// Columns names the columns of the order model whose names are not the usual ones, in the database's names. Fields that are
// left empty keep their defaults. Only Order is required; Item is too for Close; for a [Reconciler] Item and User are, and Activity
// and Variant where the sales have activities, or limits that count over variants.
type Columns struct {
	// Order is the order number: stock.Result.Order. Default "order_no".
	Order string
	// Item, Variant, Activity and User are those of the order. Defaults "item_id", "variant_id", "activity_id", "user_id".
	Item, Variant, Activity, User string
	// Units is how many units the order has, default "units". A model without it takes orders of one unit.
	Units string
	// Nth is which of the user's orders it is, default "nth".
	Nth string
}

// WithStatus sets where the order's state is, and its values. Default: column "status" with 0 unpaid, 1 paid and 2 closed.
func WithStatus(s Status) Option {
	return func(c *config) error {
		given := 0
		for _, v := range []any{s.Unpaid, s.Paid, s.Closed} {
			if v != nil {
				given++
			}
		}
		if given != 0 && given != 3 {
			return errors.New("landing: WithStatus with some of the values: give Unpaid, Paid and Closed, or none of them")
		}
		c.status = s
		return nil
	}
}

// WithColumns names columns of the order model that are not called as usual, see [Columns].
func WithColumns(names Columns) Option {
	return func(c *config) error {
		c.columns = names
		return nil
	}
}

// WithHandler runs fn in the transaction that lands orders, with the rows that it inserts as live ones: for an outbox, or
// a second table. Orders that were there already, and those that are kept as closed, are not among them. What fn returns
// rolls the transaction back; the orders are then landed one by one, so that fn fails for the one that it must fail for,
// which after a few tries goes to the dead letters. fn may run several times for an order: it must have no effect outside
// tx. Order is the model that New was given. Default: none.
func WithHandler[Order any](fn func(tx *gorm.DB, landed []*Order) error) Option {
	return func(c *config) error {
		if fn == nil {
			return errors.New("landing: WithHandler(nil): leave it out")
		}
		c.handler = fn
		return nil
	}
}

// WithDeadline is how long an accepted order may take to land: younger differences between Redis and SQL are no
// differences. Default 1 min, from 1 s to 24 h.
func WithDeadline(d time.Duration) Option {
	return func(c *config) error {
		if d < leastDeadline || d > mostDeadline {
			return fmt.Errorf("landing: WithDeadline(%v): from %v to %v", d, leastDeadline, mostDeadline)
		}
		c.deadline = d
		return nil
	}
}

// WithThreshold is by how many units Redis and SQL may differ over an item for a plan to correct it; above, a person has to
// decide. Default 0: a person decides always. At most 2^53-1.
func WithThreshold(units int64) Option {
	return func(c *config) error {
		if units < 0 || units > mostThreshold {
			return fmt.Errorf("landing: WithThreshold(%d): from 0 to 2^53-1", units)
		}
		c.threshold = units
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
	c := config{deadline: usualDeadline}
	var faults []error
	for _, opt := range opts {
		if opt != nil {
			faults = append(faults, opt(&c))
		}
	}
	if c.status.Unpaid == nil {
		c.status.Unpaid, c.status.Paid, c.status.Closed = 0, 1, 2
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c, errors.Join(faults...)
}
