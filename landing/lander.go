package landing

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/stock"
)

// Lander lands the orders of one Counter in one database, as rows of Order, from the stock that rows of Item have. It is
// made by [New] and safe for concurrent use; Counter and database stay the caller's, and nothing need be closed.
type Lander[Order, Item any] struct {
	*engine
}

// engine is what the parts of a Lander share. It knows the models by reflection only.
type engine struct {
	counter  *stock.Counter
	settings stock.Settings
	rdb      *redisx.Client
	db       *gorm.DB
	cfg      config
	orders   *orderModel
	items    *itemModel
	newOrder func(stock.Entry) reflect.Value                 // *Order
	handler  func(tx *gorm.DB, landed []reflect.Value) error // nil: none
	scripts  *scripts
	tel      *instruments

	pace pace
}

// pace is what tests make faster.
type pace struct {
	gather     time.Duration // how long a batch waits for more orders
	claimAfter time.Duration // how long an entry may lie with a worker before another takes it
	idleMost   time.Duration // longest pause between two looks at an empty stream
	retryFirst time.Duration // first pause before an entry that failed is tried again; each further one is fourfold
	awayMost   time.Duration // longest pause while SQL or Redis is away
	sweep      time.Duration // between two rounds of the sweeper
	transact   time.Duration // how long one transaction may take
}

// usualPace polls rather than blocks: a blocking read would keep a connection of the service's pool for each stream.
func usualPace() pace {
	return pace{
		gather: 20 * time.Millisecond, claimAfter: 30 * time.Second, idleMost: 100 * time.Millisecond,
		retryFirst: 250 * time.Millisecond, awayMost: 5 * time.Second, sweep: time.Second, transact: 30 * time.Second,
	}
}

// New returns a Lander. order makes the row of an accepted order: the ids of an Entry are texts, so it reads the numbers
// that its columns want. It has no effect and is called more than once. What it leaves zero of the columns that landing knows
// (request, order number, item, variant, activity, user, units, nth) is filled in, BeforeSave and BeforeCreate run on the row,
// and one whose request, order number, item or units are then not the order's is refused. Other hooks do not run: WithHandler is
// for what they would do. The row is unpaid unless it says paid, which is for sales without payment: the order is then
// confirmed as soon as it has landed.
//
// The error names everything that is wrong at once: options, a database without the plugin, a model without a column that is
// needed, and what to write instead. It asks neither Redis nor SQL.
func New[Order, Item any](counter *stock.Counter, db *gorm.DB, order func(stock.Entry) Order, opts ...Option) (*Lander[Order, Item], error) {
	cfg, err := newConfig(opts)
	faults := []error{err}
	if counter == nil || db == nil || order == nil {
		return nil, errors.Join(err, fail(ErrInvalid, "New wants a counter, a database and a function"))
	}
	e := &engine{counter: counter, settings: counter.Settings(), db: db, cfg: cfg, pace: usualPace()}
	if e.settings.Quota {
		faults = append(faults, errors.New("landing: a quota has no orders to land"))
	}
	e.newOrder = func(entry stock.Entry) reflect.Value {
		row := order(entry)
		return reflect.ValueOf(&row)
	}
	if cfg.handler != nil {
		fn, ok := cfg.handler.(func(*gorm.DB, []*Order) error)
		if !ok {
			faults = append(faults, fmt.Errorf("landing: WithHandler has a function of another model: want func(*gorm.DB, []*%s) error", reflect.TypeFor[Order]()))
		}
		e.handler = func(tx *gorm.DB, landed []reflect.Value) error {
			rows := make([]*Order, len(landed))
			for i, row := range landed {
				rows[i] = row.Interface().(*Order)
			}
			return fn(tx, rows)
		}
	}
	e.orders, err = newOrderModel(db, reflect.TypeFor[Order](), &e.cfg)
	faults = append(faults, err)
	e.items, err = newItemModel(db, reflect.TypeFor[Item]())
	faults = append(faults, err)
	e.rdb, err = redisx.Wrap(counter.Redis())
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, &Error{sentinel: ErrInvalid, reason: err.Error(), cause: err}
	}
	e.scripts = newScripts()
	e.tel = newInstruments(&e.cfg)
	return &Lander[Order, Item]{e}, nil
}

// Worker returns the worker, which lands what is in the Counter's streams.
func (l *Lander[Order, Item]) Worker() *Worker { return &Worker{l.engine} }

// Sweeper returns the sweeper, which ends holds past their deadline.
func (l *Lander[Order, Item]) Sweeper() *Sweeper { return &Sweeper{l.engine} }

// DeadLetters returns the orders that could not be landed.
func (l *Lander[Order, Item]) DeadLetters() *DeadLetters { return &DeadLetters{l.engine} }

// Reconciler returns the reconciler, which compares Redis with SQL.
func (l *Lander[Order, Item]) Reconciler() *Reconciler { return newReconciler(l.engine) }
