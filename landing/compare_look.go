package landing

import (
	"context"
	"slices"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// look is both sides at one time: SQL as one snapshot, and Redis no earlier than that.
type look struct {
	*stock.Survey
	e     *engine
	items map[string]*stock.SurveyedItem
	sought

	stock     map[string]int64
	live      []orderRow          // of these items, in the order of their primary key
	byRequest map[string]orderRow // live ones
	byNumber  map[string]orderRow
	elsewhere map[string]bool     // orders that a limit counts, and that are live though nothing else in Redis tells of them
	closed    map[string]orderRow // by request, of orders that Redis still holds or has to land
}

// sought is what is to be compared.
type sought struct {
	asked  []string // items that the caller wants compared; nil: all that Redis knows
	wanted map[string]bool
	also   []string // items whose orders are read although Redis may know nothing of them
}

func seek(asked []string) sought {
	s := sought{asked: asked, wanted: make(map[string]bool, len(asked))}
	for _, item := range asked {
		s.wanted[item] = true
	}
	return s
}

func (s *sought) wants(item string) bool { return s.asked == nil || s.wanted[item] }

// look reads both sides. The snapshot of SQL is taken before a counter is read, so that an order which is deducted or lands
// meanwhile is counted once: it is held in Redis, and has no row yet. Of units that come back meanwhile the survey tells.
func (e *engine) look(ctx context.Context, what sought) (*look, error) {
	l := &look{
		e: e, sought: what, items: map[string]*stock.SurveyedItem{}, stock: map[string]int64{},
		byRequest: map[string]orderRow{}, byNumber: map[string]orderRow{}, elsewhere: map[string]bool{}, closed: map[string]orderRow{},
	}
	err := e.db.WithContext(ctx).Set("gorm:db_resolver:write", struct{}{}).Transaction(func(tx *gorm.DB) error {
		var err error
		l.Survey, err = e.counter.Survey(ctx, func(items []string) error {
			return l.readStock(tx, append(slices.Clone(items), l.asked...))
		})
		if err != nil {
			return err
		}
		l.keepAsked()
		if err := l.needsColumns(); err != nil {
			return err
		}
		for _, read := range []func(*gorm.DB) error{l.readStrays, l.readLive, l.readElsewhere, l.readClosed} {
			if err := read(tx); err != nil {
				return err
			}
		}
		return nil
	}, snapshot(e.db))
	return l, err
}

// keepAsked leaves out what the caller did not ask for.
func (l *look) keepAsked() {
	for i := range l.Items {
		if it := &l.Items[i]; l.wants(it.Item) {
			l.items[it.Item] = it
		}
	}
	if l.asked == nil {
		return
	}
	l.Held = slices.DeleteFunc(l.Held, func(o stock.SurveyedOrder) bool { return !l.wants(o.Item) })
	l.Marks = slices.DeleteFunc(l.Marks, func(m stock.Mark) bool { return m.Item != "" && !l.wants(m.Item) })
}

// needsColumns reports that the rows do not tell which limits their orders count for, so that what is lost of them could
// neither be found nor be written again.
func (l *look) needsColumns() error {
	for _, it := range l.items {
		for activity, limit := range it.Limits {
			switch {
			case activity != "" && l.e.orders.activity == nil:
				return fail(ErrInvalid, "the sales have activities, and the order model has no column for them: add one, or name yours with WithColumns")
			case limit.Over == stock.Variant && l.e.orders.variant == nil:
				return fail(ErrInvalid, "a limit counts over variants, and the order model has no column for them: add one, or name yours with WithColumns")
			}
		}
	}
	return nil
}

// has reports whether an order is live in SQL.
func (l *look) has(e *stock.Entry) bool {
	if r, ok := l.byRequest[e.RequestID]; ok && r.number() == e.Order {
		return true
	}
	_, ok := l.byNumber[e.Order]
	return ok
}

// isClosed reports whether an order is closed in SQL.
func (l *look) isClosed(e *stock.Entry) bool {
	r, ok := l.closed[e.RequestID]
	return ok && r.number() == e.Order
}

// kept is how many units of an order Redis keeps for it. Of one that was closed in SQL after it had been paid for there is
// nothing to wait for: that is a refund, and its units come back by a step of an operator.
func (l *look) kept(o *stock.SurveyedOrder) int64 {
	if l.isClosed(&o.Entry) {
		return o.Open()
	}
	return o.Kept()
}
