package stock

import (
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

// Streams returns the keys of the streams that accepted orders go to, one for each partition.
func (c *Counter) Streams() []string {
	var keys []string
	for part := range c.partitions() {
		keys = append(keys, c.keys.stream(part))
	}
	return keys
}
