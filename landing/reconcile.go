package landing

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

const (
	// betweenLooks is how long two looks at both sides are apart: longer than it takes to get from a COMMIT to Redis.
	betweenLooks = time.Second
	// mostLooks bounds a comparison of items whose units go back and forth.
	mostLooks = 6
)

// Reconciler compares Redis with SQL, and corrects Redis, and orders that never came to an end, by a plan that somebody has
// reviewed. It is safe for concurrent use, also by several processes.
type Reconciler struct {
	e       *engine
	tel     *reconcileInstruments
	between time.Duration
}

func newReconciler(e *engine) *Reconciler {
	return &Reconciler{e: e, tel: newReconcileInstruments(&e.cfg), between: betweenLooks}
}

// Compare reads both sides and returns where they differ. It changes nothing, and the sale may go on: what is younger than
// the landing deadline, in a stream, among the dead letters or between two segments is in flight and no difference, and what
// it returns was seen by two looks in a row, a second apart. Items that have units going back and forth are looked at a few
// times more; if that does not help, they are in Report.Unsettled.
//
// Without items it compares all that Redis knows. With items it compares those, and one that Redis knows nothing of is a
// difference too: give it what is on sale, and a Redis that has lost everything is noticed.
//
// It reads every key of the Counter and every live order of the items, and keeps them in memory meanwhile: it is for a daily
// job, not for a request. Its errors: [ErrInvalid] for a model without the columns for item and user, and for activity and
// variant where the items' sales have them; those of stock.Counter.Survey, and those of the database.
func (r *Reconciler) Compare(ctx context.Context, items ...stock.ID) (*Report, error) {
	asked, err := r.check(items)
	if err != nil {
		return nil, err
	}
	ctx, done := r.tel.compare(ctx)
	rep, err := r.compare(ctx, seek(asked))
	done(ctx, rep, err)
	return rep, err
}

func (r *Reconciler) check(items []stock.ID) ([]string, error) {
	if r.e.orders.item == nil || r.e.orders.user == nil {
		return nil, fail(ErrInvalid, "the order model has no column that names its item, or its user: name yours with WithColumns")
	}
	var asked []string
	for _, item := range items {
		text := textOf(item)
		if text == "" {
			return nil, fail(ErrInvalid, "an item is empty")
		}
		asked = append(asked, text)
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

func (r *Reconciler) compare(ctx context.Context, what sought) (*Report, error) {
	seen := sightings{last: map[subject]Difference{}, sure: map[subject]Difference{}, settled: map[string]int{}}
	for n := 1; ; n++ {
		l, err := r.e.look(ctx, what)
		if err != nil {
			return nil, err
		}
		j := l.judge()
		open := seen.add(j)
		if !open || n == mostLooks {
			return seen.report(j), nil
		}
		if !sleep(ctx, r.between) {
			return nil, context.Cause(ctx)
		}
	}
}

// sightings keeps what was seen by two looks in a row.
type sightings struct {
	last, sure map[subject]Difference
	settled    map[string]int // item -> looks in which it could be added up
}

// add adds a look, and reports whether another one is needed.
func (s *sightings) add(j *judging) (open bool) {
	unsettled := map[string]bool{}
	for name, it := range j.items {
		if it.Unsettled {
			unsettled[name] = true
		} else {
			s.settled[name]++
		}
	}
	now := map[subject]bool{}
	for _, d := range j.found {
		id := d.subject()
		now[id] = true
		if was, known := s.last[id]; known && was.Units == d.Units && was.Steps == d.Steps {
			s.sure[id] = d
		} else {
			delete(s.sure, id)
			open = true
		}
		s.last[id] = d
	}
	for id, d := range s.last {
		if now[id] {
			continue
		}
		if d.sum() && unsettled[d.Item] && j.items[d.Item].Steps == d.Steps {
			open = open || s.sure[id].Class == ""
			continue // this look says nothing about it
		}
		delete(s.last, id)
		delete(s.sure, id)
		if d.sum() && unsettled[d.Item] {
			s.settled[d.Item] = 0 // an operator's step: what was added up before it is past
		}
	}
	for name := range unsettled {
		open = open || s.settled[name] == 0
	}
	return open
}

// report is what can be said after the last look.
func (s *sightings) report(j *judging) *Report {
	rep := &Report{At: j.At, Items: len(j.items), Differences: []Difference{}, InFlight: j.inFlight, asked: j.asked != nil}
	for _, d := range j.found {
		if sure, ok := s.sure[d.subject()]; ok {
			rep.Differences = append(rep.Differences, sure)
		}
	}
	for id, d := range s.sure { // of items that the last look could not add up
		if it := j.items[d.Item]; d.sum() && it != nil && it.Unsettled && s.sure[id].Class != "" {
			rep.Differences = append(rep.Differences, d)
		}
	}
	slices.SortStableFunc(rep.Differences, inOrder)
	unsure := map[string]bool{}
	for id, d := range s.last {
		if d.sum() && s.sure[id].Class == "" {
			unsure[d.Item] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.items)) {
		if s.settled[name] == 0 || unsure[name] {
			rep.Unsettled = append(rep.Unsettled, name)
		}
	}
	return rep
}
