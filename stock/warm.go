package stock

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// Warmed says what a warm-up did.
type Warmed struct {
	// Left is how many units the counter has now.
	Left int64
	// Added is how many units were added by this call: all of them the first time, the difference later, often 0.
	Added int64
	// First is true if the counter was not there before.
	First bool
}

// A WarmOption changes one warm-up.
type WarmOption func(*warming)

type warming struct{ takeOver bool }

// TakeOver replaces a counter that is there but was not warmed up by this package (it has no switch, often no TTL)
// instead of refusing with [ErrStray]. What it counted is lost: look at it first.
func TakeOver() WarmOption { return func(w *warming) { w.takeOver = true } }

// Warm opens a sale: it writes the counter and the switch of the item, with their TTLs. It may be called again at any
// time, by any number of instances: a counter that is there is never overwritten. If Sale.Units is more than was warmed
// before, the difference is added; the activity's times and its limit become those of the call. An hour after the end of
// the item's last sale its counter has gone by itself: then a sale in another activity counts anew, with the units of the
// call. An item that was paused or frozen stays so.
//
// It returns ErrInvalid if the sale's values are wrong, and as misuse if there are fewer units than were warmed before
// (use Adjust), if the number of segments or of partitions has changed while an earlier sale is remembered, or if an
// activity that has begun gets another scope, a start in the future or an end more than a day behind its first one: limits
// kept until now would be forgotten, so open another activity. ErrEnded if the sale is over; ErrStray if a foreign value lies under the
// counter's key; ErrNotWarmed if the counter, or a whole segment, has gone before its time, for then nobody knows how many
// units are left until SQL has been compared; ErrUnavailable, ErrUnknownOutcome. With segments all of them are looked at first; only a
// fault, or somebody else at the same moment, leaves some of them warmed: call it again.
func (c *Counter) Warm(ctx context.Context, s Sale, opts ...WarmOption) (Warmed, error) {
	var w warming
	for _, opt := range opts {
		opt(&w)
	}
	r, err := c.checkSale(&s)
	if err != nil {
		return Warmed{}, err
	}
	if err := c.checkCluster(ctx); err != nil {
		return Warmed{}, err
	}
	p, err := c.settle(ctx, r)
	if err != nil {
		return Warmed{}, err
	}
	parts := p.segments
	if c.keys.quota {
		parts = 1
	}
	// Units of all segments, once they are there: then one that is missing is lost.
	whole := int64(0)
	if parts > 1 { // one that refuses must not leave the others changed
		seen, err := c.warmEach(ctx, r, p, parts, &w, false, 0)
		if err != nil {
			return Warmed{}, err
		}
		switch {
		case seen.First && seen.whole:
			return Warmed{}, fail(ErrNotWarmed, "a segment is lost: compare with SQL, then Restore it")
		case seen.whole:
			whole = r.units
		}
	}
	all, err := c.warmEach(ctx, r, p, parts, &w, true, whole)
	if err == nil && parts > 1 && whole == 0 && r.units > 0 {
		_, err = c.warmEach(ctx, r, p, parts, &w, true, r.units)
	}
	if err != nil {
		return Warmed{}, err
	}
	c.places.store(r.item, r.activity, p)
	if all.Added > 0 {
		c.soldOut.forget(r.item)
	}
	return all.Warmed, nil
}

// warmedUp is what one segment says, or all of them together.
type warmedUp struct {
	Warmed
	whole bool // a segment knows that all have been there
}

// warmEach warms up each segment, or looks whether one of them would refuse.
func (c *Counter) warmEach(ctx context.Context, r *sale, p place, parts int, w *warming, do bool, whole int64) (all warmedUp, err error) {
	for i := range parts {
		one, err := c.warmOne(ctx, r, p, c.segment(p, i), share(r.units, parts, i), w, do, whole)
		if err != nil {
			return warmedUp{}, err
		}
		all.Left += one.Left
		all.Added += one.Added
		all.First = all.First || one.First
		all.whole = all.whole || one.whole
	}
	return all, nil
}

// warmOne warms up one segment, or looks whether it would refuse.
func (c *Counter) warmOne(ctx context.Context, r *sale, p place, part int, units int64, w *warming, do bool, whole int64) (warmedUp, error) {
	keys := c.keys.appendCounter([]string{c.keys.control(part, r.item)}, part, r.item, c.shards(p))
	a, err := c.run(ctx, c.scripts.warm, keys,
		units, actField(r.activity), r.starts, r.ends, r.limit.Units, r.limit.PerOrder, int(r.limit.Over), flag(w.takeOver), p.layout(),
		c.keys.channel(), r.item, flag(do), whole)
	if err != nil {
		return warmedUp{}, err
	}
	switch a.code() {
	case 0, 1:
		var got warmedUp
		got.First, got.whole = a.code() == 0, a.text(4) != "0"
		if got.Left, err = a.number(1); err != nil {
			return warmedUp{}, err
		}
		got.Added, err = a.number(2)
		return got, err
	case 2:
		return warmedUp{}, misuse("more units were warmed before: Sale.Units is the sale's total and not what is left, so repeat the first number; only to sell fewer in all use Adjust")
	case 3:
		return warmedUp{}, fail(ErrStray, "look at it, then warm up with TakeOver()")
	case 4:
		return warmedUp{}, fail(ErrNotWarmed, "the counter has gone during the sale: compare with SQL, then Restore it")
	case 5:
		return warmedUp{}, misuse("the activity has begun: its limit's scope and its start must stay, and its end may move by a day at most; use Pause, or another activity")
	case 6:
		return warmedUp{}, misuse(layoutStays)
	case codeEnded:
		return warmedUp{}, fail(ErrEnded, "Sale.Ends has passed")
	}
	return warmedUp{}, corrupt("answer of a script")
}

func otherPartitions(n string) string {
	return "sales of this prefix were opened with WithPartitions(" + n + "), where 0 is the flat keyspace: every instance needs the same"
}

const layoutStays = "the item's segments or its partition would change: wait until a day after its last sale"

// settle decides where the item lies, and writes that down where everybody will look for it.
func (c *Counter) settle(ctx context.Context, r *sale) (place, error) {
	a, err := c.claim(ctx, c.scripts.claim, c.keys.partitions(), strconv.Itoa(c.keys.parts), r)
	if err != nil {
		return place{}, err
	}
	if a.code() == 0 {
		return place{}, misuse(otherPartitions(a.text(1)))
	}
	p := place{over: r.limit.Over, segments: r.segments, at: c.home(r.item)}
	if c.keys.parts == 0 || c.keys.quota {
		return p, nil
	}
	if p.segments == c.keys.parts {
		p.at = 0 // so that a user's home is the same for all items
	}
	v, err := c.look(ctx, c.home(r.item), r.item, 1)
	if err != nil {
		return place{}, err
	}
	placed := v.layout != ""
	if placed && p.layout() != v.layout {
		segments, at, ok := parseLayout(v.layout)
		if !ok {
			return place{}, corrupt("switch")
		}
		if segments != p.segments {
			return place{}, misuse(layoutStays)
		}
		p.at = at
	}
	if p.over == Activity {
		if p.at, err = c.gather(ctx, r, p, placed); err != nil {
			return place{}, err
		}
	}
	if p.segments == 1 && p.at != c.home(r.item) {
		a, err := c.claim(ctx, c.scripts.place, c.keys.control(c.home(r.item), r.item), p.layout(), r)
		if err != nil {
			return place{}, err
		}
		if a.code() == 0 {
			return place{}, misuse(layoutStays)
		}
	}
	return p, nil
}

// gather returns the partition of an activity whose limit counts over all its items.
func (c *Counter) gather(ctx context.Context, r *sale, p place, placed bool) (int, error) {
	first := spread(r.activity, c.keys.parts)
	if !placed && p.segments == 1 {
		p.at = first
	}
	a, err := c.claim(ctx, c.scripts.claim, c.keys.activity(first, r.activity), p.layout(), r)
	if err != nil {
		return 0, err
	}
	if a.code() == 1 {
		return p.at, nil
	}
	segments, at, ok := parseLayout(a.text(1))
	if !ok {
		return 0, corrupt("decision")
	}
	if placed || segments != p.segments {
		return 0, misuse("the limit counts over the activity, whose other items lie in another partition or have other segments: " + layoutStays)
	}
	return at, nil
}

// claim writes down a decision for as long as the sale is remembered, or returns the one that stands.
func (c *Counter) claim(ctx context.Context, s *redisx.Script, key, value string, r *sale) (answer, error) {
	a, err := c.run(ctx, s, []string{key}, value, r.ends)
	if err == nil && a.code() == codeEnded {
		err = fail(ErrEnded, "Sale.Ends has passed")
	}
	return a, err
}
