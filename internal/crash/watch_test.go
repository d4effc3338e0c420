package crash

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/checker"
)

// watcher looks all the time at both stores of a soak: for keys without a TTL, for units that have come back, and for orders
// that left the stream without a row.
type watcher struct {
	w     *world
	every time.Duration
	// whole has each look read every key; otherwise it takes some at random.
	whole   bool
	sampler *checker.Sampler

	mu       sync.Mutex
	sampled  int                     // keys, or looks at all of them
	eternal  map[string]bool         // keys without a TTL
	looks    []look                  // at the stream
	seen     map[string][]int        // order -> the looks that saw it in the stream
	read     int64                   // how far the journal has been read
	journal  map[int64]bool          // what of it was read
	waiting  map[string]seckillOrder // closed orders whose units were not seen to be back
	returned int
}

// look is a moment at which somebody read the whole stream.
type look struct{ began, ended time.Time }

// entered is a line of the journal: an order came to be in a state.
type entered struct {
	Seq        int64
	OrderNo    string
	WasStatus  *int16 // nil: the row is new
	Status     int16
	EnteredAt  time.Time
	Reason     *string
	AcceptedAt time.Time
}

// journal has PostgreSQL write down when an order comes into a state.
const journal = `
CREATE TABLE journal (seq bigserial PRIMARY KEY, order_no text, was_status smallint, status smallint, reason text,
	accepted_at timestamptz, entered_at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION enter() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO journal (order_no, was_status, status, reason, accepted_at) VALUES
		(NEW.order_no, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status, NEW.close_reason, NEW.create_time);
	RETURN NULL;
END $$;
CREATE TRIGGER enter AFTER INSERT OR UPDATE OF status ON seckill_order FOR EACH ROW EXECUTE FUNCTION enter()`

func newWatcher(w *world, every time.Duration, whole bool) *watcher {
	w.Helper()
	w.must(w.db.Exec(journal).Error)
	return &watcher{
		w: w, every: every, whole: whole, sampler: checker.NewSampler(w.rdb, w.setup.Prefix, lockTTL, nil), eternal: map[string]bool{},
		seen: map[string][]int{}, journal: map[int64]bool{}, waiting: map[string]seckillOrder{},
	}
}

// run looks until ctx ends. Either store may be away: then there is nothing to see.
func (o *watcher) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		o.stream(ctx)
		o.returns(ctx)
		if n%4 == 0 {
			o.sample(ctx)
		}
		pause(o.every)
	}
}

// sample looks for keys without a TTL.
func (o *watcher) sample(ctx context.Context) {
	if o.whole {
		if o.sampler.Sample(ctx) == nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.sampled++
		}
		return
	}
	var keys []*redis.StringCmd
	_, err := o.w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 100 {
			keys = append(keys, p.RandomKey(ctx))
		}
		return nil
	})
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		ttl, err := o.w.rdb.TTL(ctx, key.Val()).Result()
		if err != nil {
			continue
		}
		o.sampled++
		if ttl == -1 {
			o.eternal[key.Val()] = true
		}
	}
}

// stream notes which orders are in the stream, or with its dead letters.
func (o *watcher) stream(ctx context.Context) {
	var reads []*redis.XMessageSliceCmd
	began := time.Now()
	_, err := o.w.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range o.w.counter.Streams() {
			reads = append(reads, p.XRange(ctx, name, "-", "+"), p.XRange(ctx, name+":dead", "-", "+"))
		}
		return nil
	})
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks = append(o.looks, look{began, time.Now()})
	for _, read := range reads {
		for _, m := range read.Val() {
			if order, ok := m.Values["order"].(string); ok {
				o.seen[order] = append(o.seen[order], len(o.looks)-1)
			}
		}
	}
}

// returns writes into the history which closed orders' units are back, by what their holds say.
func (o *watcher) returns(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const overlap = 500 // transactions may end in another order than they took their numbers; what is missed is only not known
	var lines []entered
	if o.w.db.WithContext(ctx).Table("journal").Where("seq > ?", o.read-overlap).Order("seq").Find(&lines).Error == nil {
		for _, l := range lines {
			o.read = max(o.read, l.Seq)
			if o.journal[l.Seq] {
				continue
			}
			o.journal[l.Seq] = true
			if l.Status == closed && (l.Reason == nil || *l.Reason != "insufficient") {
				o.waiting[l.OrderNo] = seckillOrder{OrderNo: l.OrderNo}
			}
		}
	}
	var orders []string
	var reads []*redis.StringCmd
	_, _ = o.w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer is looked at
		for order := range o.waiting {
			orders = append(orders, order)
			reads = append(reads, p.HGet(ctx, o.w.setup.Prefix+"stock:hold:"+order, "released"))
		}
		return nil
	})
	seen := time.Now()
	for i, read := range reads {
		if units, err := read.Int64(); err == nil && units > 0 {
			o.w.market.rec.Add(checker.Record{Op: checker.Return, Order: orders[i], Units: units, End: seen})
			delete(o.waiting, orders[i])
			o.returned++
		}
	}
}

// judge reports what it has seen: keys without TTL, and orders that were acknowledged without a row. Such an order is closed at
// its deadline although the last look before had not found it in the stream any more. It returns how many were closed that
// were still to land.
func (o *watcher) judge() (never int) {
	w := o.w
	w.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.eternal {
		w.Errorf("invariant 6: no TTL: %s", key)
	}
	for _, f := range o.sampler.Findings() {
		w.Error(f)
	}
	if o.sampled == 0 || len(o.looks) == 0 {
		w.Error("nobody has looked at Redis during the run")
	}
	var lines []entered
	w.must(w.db.Table("journal").Where("was_status IS NULL AND status = ? AND reason = ?", closed, "unpaid").Find(&lines).Error)
	for _, l := range lines {
		never++
		n := sort.Search(len(o.looks), func(i int) bool { return !o.looks[i].ended.Before(l.EnteredAt) })
		if n == 0 || !o.looks[n-1].began.After(l.AcceptedAt.Add(time.Millisecond)) {
			continue // nobody has looked
		}
		if !slices.Contains(o.seen[l.OrderNo], n-1) {
			w.Errorf("invariant 4: order %s was accepted at %s, was not in the stream at %s, and had no row until it was closed at %s",
				l.OrderNo, l.AcceptedAt.Format("05.000"), o.looks[n-1].began.Format("05.000"), l.EnteredAt.Format("05.000"))
		}
	}
	return never
}
