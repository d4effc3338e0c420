package stock

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
)

// Entry is an order that was accepted, as the stream and the hold keep it: what SQL needs to write the row. Ids are text.
type Entry struct {
	// Order and RequestID are the order's ids, or those of one of its lines.
	Order, RequestID string
	// Item, Variant, Activity and User are those of the order; the optional ones may be empty.
	Item, Variant, Activity, User string
	// Units is how many; Nth is which of the user's allowed orders it is.
	Units int64
	Nth   int
	// At is when it was accepted, by Redis's clock.
	At time.Time
	// TraceParent is the W3C trace context of the deduct, empty where it was not sampled.
	TraceParent string
}

// ParseEntry reads the fields of an entry of the stream. An error, ErrInvalid with the type "corrupt", means that it is
// not an entry of ours.
func ParseEntry(fields map[string]any) (Entry, error) {
	text := func(name string) string {
		s, _ := fields[name].(string)
		return s
	}
	e := Entry{Order: text("order"), RequestID: text("request"), TraceParent: unpackTrace(text("trace"))}
	nth, at, _ := strings.Cut(text("taken"), " ")
	l, ok := parseLine(text("what"))
	if !ok || e.Order == "" || e.RequestID == "" || l.item == "" {
		return Entry{}, corrupt("stream entry")
	}
	var numbers [2]int64
	for i, text := range []string{nth, at} {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > maxUnits {
			return Entry{}, corrupt("stream entry")
		}
		numbers[i] = n
	}
	if l.units < 1 || l.units > maxUnits {
		return Entry{}, corrupt("stream entry")
	}
	e.Item, e.Variant, e.Activity, e.User, e.Units = l.item, l.variant, l.activity, l.user, l.units
	e.Nth, e.At = int(numbers[0]), time.UnixMilli(numbers[1])
	return e, nil
}

// Hold is an order whose units are held and not all ended.
type Hold struct {
	Entry
	// Open is how many of the units are neither confirmed nor released.
	Open int64
	// Deadline is when it may be swept.
	Deadline time.Time

	line line
}

// Streams returns the keys of the streams that accepted orders go to, one for each partition.
func (c *Counter) Streams() []string {
	var keys []string
	for part := range c.partitions() {
		keys = append(keys, c.keys.stream(part))
	}
	return keys
}

// mostExpired bounds one call of Expired.
const mostExpired = 1000

// Expired returns up to limit holds (1 to 1000) past their deadline by Redis's clock, those due longest first in each
// partition. They stay what they are until somebody ends them: a passed deadline alone changes nothing, and whichever of
// Confirm and Release comes first wins. So any number of sweepers may ask at once.
//
// It also finishes what a crash has left of transfers between segments. What cannot be read, a hold that somebody has
// overwritten say, is passed over: the error is then ErrInvalid with the type "corrupt", the first of them, beside all holds
// that can be. Its other errors: ErrInvalid, ErrUnavailable; the holds found until then are returned too.
func (c *Counter) Expired(ctx context.Context, limit int) ([]Hold, error) {
	if limit < 1 || limit > mostExpired {
		return nil, &Error{sentinel: ErrInvalid, reason: "the limit must be from 1 to 1000"}
	}
	var holds []Hold
	var passed error // the first of what cannot be read
	parts := c.partitions()
	start := int(c.turn.Add(1))
	for i := range parts {
		part := (start + i) % parts
		if c.keys.parts > 0 && !c.keys.quota {
			if err := c.finishTransfers(ctx, part, stopped); isCorrupt(err) {
				passed = cmp.Or(passed, err)
			} else if err != nil {
				return holds, err
			}
		}
		if len(holds) >= limit {
			continue
		}
		a, err := c.run(ctx, c.scripts.expired, []string{c.keys.deadlines(part)}, limit-len(holds), 0)
		if isCorrupt(err) {
			passed = cmp.Or(passed, err)
			continue
		}
		if err != nil {
			return holds, reading(err)
		}
		for n := 1; n < len(a); n++ {
			hold, ok, err := c.readHold(ctx, a.text(n), part)
			switch {
			case isCorrupt(err):
				passed = cmp.Or(passed, err)
			case err != nil:
				return holds, err
			case ok:
				holds = append(holds, hold)
			}
		}
	}
	return holds, passed
}

func (c *Counter) readHold(ctx context.Context, order string, part int) (Hold, bool, error) {
	a, err := c.run(ctx, c.scripts.held, []string{c.keys.hold(part, order), c.keys.deadlines(part)}, order)
	if err != nil {
		return Hold{}, false, reading(err)
	}
	if a.code() != 0 {
		return Hold{}, false, nil
	}
	l, ok := parseLine(a.text(1))
	if !ok {
		return Hold{}, false, corrupt("hold")
	}
	var numbers [5]int64
	for i := range numbers {
		if numbers[i], err = a.number(3 + i); err != nil {
			return Hold{}, false, err
		}
	}
	return Hold{
		Entry: Entry{
			Order: order, RequestID: a.text(2), Item: l.item, Variant: l.variant, Activity: l.activity, User: l.user,
			Units: l.units, Nth: int(numbers[0]), At: time.UnixMilli(numbers[1]), TraceParent: unpackTrace(a.text(8)),
		},
		Open:     l.units - numbers[3] - numbers[4],
		Deadline: time.UnixMilli(numbers[2]),
		line:     l,
	}, true, nil
}
