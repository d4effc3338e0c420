package stock

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// Survey is what a Counter keeps in Redis, for comparing it with SQL. See [Counter.Survey].
type Survey struct {
	// At is when the counters were read, by Redis's clock.
	At time.Time
	// Items are those that have a switch, sorted.
	Items []SurveyedItem
	// Held are the orders whose units are held or have ended, as long as Redis remembers them: the holds or, without
	// WithHold, the records of requests.
	Held []SurveyedOrder
	// Marks are the entries of limits.
	Marks []Mark
	// Landing and Dead are the entries of streams and of dead letters.
	Landing, Dead []SurveyedOrder
	// Strays are counters without a switch.
	Strays []Stray
	// Eternal are keys without a TTL, Unreadable keys whose value is not of its form.
	Eternal, Unreadable []string
}

// Stray is a counter without a switch: nothing can be bought from it. It never was a sale's, or its sale's switch is lost.
type Stray struct {
	Key, Item string
}

// SurveyedItem is an item's stock at one instant for each segment. Moving is what stopped transfers have taken off one segment
// and not given to another: units that reach a counter when [Counter.Expired] finishes those.
type SurveyedItem struct {
	Status
	Item string
	// Gone is true if a counter is missing while the sale is on, with its switch or without: its units count as 0 in Left. A
	// segment that shows -1 and is not gone was never warmed up, or the sale is over.
	Gone bool
	// Steps is how many steps of operators (Adjust, Restore, Thaw) the item remembers.
	Steps int
	// Limits are those of the item's activities, and Until is when each of them ends. Ends is the latest of those ends.
	Limits map[string]Limit
	Until  map[string]time.Time
	Ends   time.Time
	// Unsettled is true if units came back, or went from one segment to another, while the survey was made: then
	// counters and orders do not belong to one instant, and adding them up proves nothing.
	Unsettled bool

	read     map[int]int64 // partition -> when its counter was read, Unix milliseconds
	returns  int64
	switches map[int]seenSwitch // by partition
	layout   string
	whole    bool  // all segments have been there
	at       int64 // when the last of its counters was read
}

// SurveyedOrder is an order whose units are held, or were.
type SurveyedOrder struct {
	Entry
	// Confirmed and Released are how many of its units have ended.
	Confirmed, Released int64
	// Deadline is that of the hold; zero without WithHold.
	Deadline time.Time
	// Listed is true if the hold stands among the deadlines, where [Counter.Expired] looks: one that does not is never swept.
	Listed bool
	// Counted is true if the order was taken before its counter was read, so that its units are missing there.
	Counted bool
}

// Kept is how many of the order's units have not come back.
func (o *SurveyedOrder) Kept() int64 { return o.Units - o.Released }

// Open is how many of them are not paid for either.
func (o *SurveyedOrder) Open() int64 { return o.Kept() - o.Confirmed }

// Mark is an order's entry in the limit of its user. Item and Variant are empty where the limit does not count over them.
type Mark struct {
	Order, User, Item, Variant, Activity string
	Units                                int64

	key, value string
}

// Survey reads all that the Counter keeps in Redis, with SCAN, and changes nothing. between, if it is not nil, is called
// with the items before any counter is read: whoever takes a snapshot of SQL there has one that is not younger than the
// counters. It costs as much as there are keys, and memory for each order: call it for a comparison now and then, not in a
// request. Without WithHold it tells by a record's TTL when an order was taken, so the server must be one whose keys age.
// It is not for quotas. Its errors: ErrInvalid, ErrUnavailable, and what between returns.
func (c *Counter) Survey(ctx context.Context, between func(items []string) error) (*Survey, error) {
	if c.keys.quota {
		return nil, misuse("a quota has no orders in SQL to compare with")
	}
	switches, err := c.findSwitches(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	before, _, err := c.surveyItems(ctx, switches)
	if err != nil {
		return nil, err
	}
	if between != nil {
		if err := between(slices.Sorted(maps.Keys(before))); err != nil {
			return nil, err
		}
	}
	items, unreadable, err := c.surveyItems(ctx, switches)
	if err != nil {
		return nil, err
	}
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return nil, &Error{sentinel: ErrUnavailable, cause: err}
	}
	s := &surveying{c: c, Survey: &Survey{At: now, Unreadable: unreadable}, items: items}
	if err := s.readKeys(ctx); err != nil {
		return nil, err
	}
	moving := map[string]int64{}
	for name, it := range items {
		if moving[name] = it.Moving; it.Moving == 0 {
			continue
		}
		units, still, err := c.onTheWay(ctx, it, stopped+time.Since(began))
		if err != nil {
			return nil, err
		}
		if it.Unsettled = it.Unsettled || !still; still {
			it.Moving = units
		}
	}
	after, _, err := c.surveyItems(ctx, switches)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		it := items[name]
		first, last := before[name], after[name]
		it.Unsettled = it.Unsettled || first == nil || last == nil || first.returns != last.returns || first.Steps != last.Steps ||
			first.Moving != moving[name] || last.Moving != moving[name]
		s.Items = append(s.Items, *it)
	}
	return s.Survey, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// findSwitches returns the keys of all switches.
func (c *Counter) findSwitches(ctx context.Context) ([]string, error) {
	var found []string
	err := c.rdb.ScanHashes(ctx, c.keys.prefix+"stock:", func(keys []string) bool {
		for _, key := range keys {
			if c.keys.parse(key).role == roleSwitch {
				found = append(found, key)
			}
		}
		return true
	})
	if err != nil {
		return nil, reading(transport(err))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// surveyItems reads counters and switches, each segment at one instant. Of an item that cannot be read it returns the key of
// the switch too.
func (c *Counter) surveyItems(ctx context.Context, switches []string) (items map[string]*SurveyedItem, unreadable []string, err error) {
	items = map[string]*SurveyedItem{}
	for _, key := range switches {
		a, err := c.run(ctx, c.scripts.survey, []string{key, strings.TrimSuffix(key, ":ctl")})
		if err != nil && !isCorrupt(err) {
			return nil, nil, reading(err)
		}
		if err == nil && a.code() != 0 {
			continue // it only remembers where the item lies, or has just expired
		}
		p := c.keys.parse(key)
		it := items[p.item]
		if it == nil {
			it = &SurveyedItem{Item: p.item, Limits: map[string]Limit{}, Until: map[string]time.Time{}, read: map[int]int64{}, switches: map[int]seenSwitch{}}
			items[p.item] = it
		}
		if err == nil {
			err = it.add(p.part, a)
		}
		if err != nil {
			it.read[p.part], it.Unsettled = 0, true
			unreadable = append(unreadable, key)
		}
	}
	for _, it := range items {
		it.miss(c)
	}
	return items, unreadable, nil
}

// miss adds the segments of the item that are not there: they are gone if all were, and else never warmed up.
func (it *SurveyedItem) miss(c *Counter) {
	segments, at, _ := parseLayout(it.layout)
	for i := range segments {
		if _, there := it.read[c.segment(place{at: at}, i)]; there {
			continue
		}
		it.Segments = append(it.Segments, -1)
		it.Gone = it.Gone || it.whole && it.at < it.Ends.Add(time.Hour).UnixMilli()
	}
}

// isCorrupt reports whether an error is about a stored value, and so not about the server.
func isCorrupt(err error) bool {
	e, ok := as(err)
	return ok && e.ErrorType() == string(fault.Corrupt)
}

// add adds the answer of survey.lua for one segment.
func (it *SurveyedItem) add(part int, a answer) error {
	at, err := a.number(1)
	if err != nil {
		return err
	}
	left, err := a.number(2)
	if err != nil {
		return err
	}
	it.read[part] = at
	it.Segments = append(it.Segments, left)
	it.Left += max(left, 0)
	var ends int64
	sw := seenSwitch{left: left}
	numbers := map[string]*int64{
		"moving": &sw.moving, "warmed": &sw.warmed, "restocked": &it.Restocked, "withdrawn": &it.Withdrawn, "withheld": &sw.withheld,
		"returns": &it.returns, "end": &ends, "whole": &sw.whole, "anew": &sw.anew,
	}
	for i := 3; i+1 < len(a); i += 2 {
		name, value := a.text(i), a.text(i+1)
		if to := numbers[name]; to != nil {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return corrupt("switch")
			}
			*to += n
		}
		switch name {
		case "state":
			sw.state = value
		case "layout":
			it.layout = value
		}
		if strings.HasPrefix(name, "op:") {
			sw.steps++
		}
		if activity, ok := strings.CutPrefix(name, "act:"); ok {
			f := strings.Fields(value)
			if len(f) != 6 {
				return corrupt("switch")
			}
			until, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return corrupt("switch")
			}
			it.Until[activity] = later(it.Until[activity], time.UnixMilli(until))
			var limit Limit
			limit.Units, _ = strconv.ParseInt(f[2], 10, 64) // the scripts have checked it
			limit.PerOrder, _ = strconv.ParseInt(f[3], 10, 64)
			scope, _ := strconv.Atoi(f[4])
			limit.Over = Scope(scope)
			it.Limits[activity] = limit
		}
	}
	it.State = closer(it.State, sw.state)
	it.switches[part] = sw
	it.Steps += sw.steps
	it.Moving += sw.moving
	it.whole = it.whole || sw.whole > 0
	it.at = max(it.at, at)
	it.Warmed += sw.warmed
	it.Withheld += sw.withheld
	it.Ends = later(it.Ends, time.UnixMilli(ends))
	if left < 0 && at < ends+time.Hour.Milliseconds() {
		it.Gone = true
	}
	return nil
}
