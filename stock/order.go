package stock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/keyesc"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

const (
	// maxUnits is the largest amount, 2^53-1: above it a number in a Redis script is no longer exact.
	maxUnits = 1<<53 - 1
	// maxLines is the most lines of one order.
	maxLines = 32
)

// Order is what a user wants: units of one item, or several lines, all or nothing. The zero value of an optional field
// is fine.
type Order struct {
	// ID is the order's id, at most 128 bytes, or 125 with several lines; the library makes one when it is empty. One order
	// id is one hold for ever: under another request id it is refused with ErrMismatch. Only a quota without WithHold keeps
	// nothing under the order's id, and takes units again. In partitions, whoever ends an order with an id of his own needs Of.
	ID string
	// RequestID is the id that the client keeps for all retries of this order, at most 128 bytes, or 125 with several lines.
	// Empty, it comes from the context, where middleware puts it (guard.Dedup, guard.RequestID); without either the order is
	// refused with ErrInvalid. It stands for this order alone: another item or user, or other units, under the same id is
	// refused with ErrMismatch.
	RequestID string
	// Item is what is sold; required, unless there are Lines.
	Item ID
	// Variant tells what shares the item's counter and yet differs (size, price class, options); optional.
	Variant ID
	// Activity is the sale, as in Sale; optional. One item may be sold in several.
	Activity ID
	// User is who buys; required, but for a quota. The limit counts per user.
	User ID
	// Units is how many, from 1 to 2^53-1. Money goes in minor units.
	Units int64
	// Lines are several items in one order, at most 32, in place of Item, Variant and Units. Lines of the same item and
	// variant are added up first, and all lines of an item count against its stock and its limit together. Each line
	// has an order id and a request id of its own: those of the order and "/1", "/2" and so on, in the order in which
	// Result has them.
	Lines []Line
}

// Line is one item of an order with several.
type Line struct {
	Item, Variant ID
	Units         int64
}

// Result says what a deduct did.
type Result struct {
	// Left is how many units were left right after this order was taken: of the user's segment where there are several,
	// and of the line with the fewest.
	Left int64
	// Order is the order's id: the one given, or the one that the library made. A replay has that of the first time.
	Order string
	// Nth says which of the user's allowed orders it is, from 1: the smallest number that no other live order of the
	// user has under this limit. It is 1 while the limit is 1. In a unique index it lets SQL enforce the limit too. Without a
	// limit, a user with more than a few live orders gets a number above all of theirs instead.
	// With several lines see Lines.
	Nth int
	// Replayed is true if this request had been done before: nothing was taken now, and the rest is what the first
	// time answered.
	Replayed bool
	// Lines are what an order with several lines got, sorted by item and variant; nil if there is one line.
	Lines []Taken
}

// Taken is one line of an order that was taken. In SQL it is a row.
type Taken struct {
	Order, RequestID string
	Item, Variant    string
	Units, Left      int64
	Nth              int
}

// line is one line of an order, its values as text.
type line struct {
	item, variant, activity, user string
	units                         int64
	what                          string // all of the above in one text, see fingerprint
	number                        string // "1", "2"...; empty for the only line
	given                         int    // index in Order.Lines + 1, 0 without
	place                         place
	part                          int
	told                          bool // the place has been asked for by this call
}

// fingerprint says what a line is for: item, variant, activity, user and units, escaped, with colons between. The order
// id is not part of it: a retry may bring a new one and gets the first one back.
func (l *line) fingerprint() string {
	b := make([]byte, 0, 64)
	for _, value := range []string{l.item, l.variant, l.activity, l.user} {
		b = append(keyesc.Append(b, value), ':')
	}
	return string(strconv.AppendInt(b, l.units, 10))
}

// parseLine reads a fingerprint.
func parseLine(what string) (line, bool) {
	l := line{what: what}
	from := 0
	for _, to := range []*string{&l.item, &l.variant, &l.activity, &l.user} {
		end := from
		for end < len(what) && what[end] != ':' {
			end++
		}
		if end == len(what) {
			return line{}, false
		}
		text, err := unescape(what[from:end])
		if err != nil {
			return line{}, false
		}
		*to, from = text, end+1
	}
	var err error
	l.units, err = strconv.ParseInt(what[from:], 10, 64)
	return l, err == nil
}

// request is an order that has been checked.
type request struct {
	order, id string
	made      bool   // the order id is the library's
	what      string // the whole order's fingerprint, empty for one line
	lines     []line
	trace     string
	turns     int // how often it was sent to be decided
}

// units is how many units the order has in all; lines that add up to more than fits count as the largest number.
func (r *request) units() int64 {
	n := int64(0)
	for i := range r.lines {
		n = min(n, math.MaxInt64-r.lines[i].units) + r.lines[i].units
	}
	return n
}

// orderOf and idOf are the ids of one line.
func (r *request) orderOf(l *line) string { return numbered(r.order, l.number) }
func (r *request) idOf(l *line) string    { return numbered(r.id, l.number) }

func numbered(id, number string) string {
	if number == "" {
		return id
	}
	return id + "/" + number
}

// check turns an order into a request, or says what is wrong with it.
func (c *Counter) check(ctx context.Context, o *Order) (*request, error) {
	r := &request{id: o.RequestID}
	if r.id == "" {
		in, _ := reqctx.RequestOf(ctx)
		r.id = in.ID
	}
	if r.id == "" {
		return nil, misuse("no request id: set Order.RequestID, or let guard.Dedup or guard.RequestID put one into the context")
	}
	var shared line
	for _, id := range []struct {
		name     string
		from     ID
		to       *string
		required bool
	}{
		{"Order.ID", o.ID, &r.order, false},
		{"Order.RequestID", r.id, &r.id, true},
		{"Order.Activity", o.Activity, &shared.activity, false},
		{"Order.User", o.User, &shared.user, !c.keys.quota},
	} {
		if err := checkID(id.name, id.from, id.to, id.required); err != nil {
			return nil, err
		}
	}
	if c.keys.quota && shared.activity != "" {
		return nil, misuse("a quota has no activities: leave Order.Activity empty")
	}
	if len(o.Lines) == 0 {
		l := shared
		if err := l.fill("Order", Line{o.Item, o.Variant, o.Units}); err != nil {
			return nil, err
		}
		r.lines = []line{l}
		return r, nil
	}
	if o.Item != nil || o.Variant != nil || o.Units != 0 {
		return nil, misuse("an order has Lines, or Item, Variant and Units, not both")
	}
	if len(o.Lines) > maxLines {
		return nil, &Error{sentinel: ErrInvalid, reason: "Order.Lines are more than " + strconv.Itoa(maxLines)}
	}
	for i, given := range o.Lines {
		l := shared
		l.given = i + 1
		if err := l.fill("Line", given); err != nil {
			err.line = l.given
			return nil, err
		}
		r.lines = append(r.lines, l)
	}
	err := r.merge()
	return r, err
}

// fill sets what is the line's own.
func (l *line) fill(of string, from Line) *Error {
	if err := checkID(of+".Item", from.Item, &l.item, true); err != nil {
		return err
	}
	if err := checkID(of+".Variant", from.Variant, &l.variant, false); err != nil {
		return err
	}
	if from.Units < 1 || from.Units > maxUnits {
		return &Error{sentinel: ErrInvalid, reason: of + ".Units must be from 1 to 2^53-1"}
	}
	l.units = from.Units
	l.what = l.fingerprint()
	return nil
}

// merge sorts the lines and adds up those of one item and variant.
func (r *request) merge() error {
	slices.SortStableFunc(r.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.variant, b.variant))
	})
	merged := r.lines[:1]
	for _, l := range r.lines[1:] {
		last := &merged[len(merged)-1]
		if l.item != last.item || l.variant != last.variant {
			merged = append(merged, l)
			continue
		}
		if last.units += l.units; last.units > maxUnits {
			return &Error{sentinel: ErrInvalid, line: l.given, reason: "the lines of one item add up to more than 2^53-1 units"}
		}
		last.what = last.fingerprint()
	}
	r.lines = merged
	if len(merged) == 1 {
		return nil
	}
	// The ids of the lines are ids too, and as long as those may be.
	if max(len(r.order), len(r.id)) > maxID-len("/32") {
		return &Error{sentinel: ErrInvalid, reason: "Order.ID or Order.RequestID is longer than 125 bytes, and the order has several lines"}
	}
	whole := sha256.New()
	for i := range merged {
		merged[i].number = strconv.Itoa(i + 1)
		whole.Write([]byte(merged[i].what))
		whole.Write([]byte{'\n'})
	}
	r.what = "=" + base64.RawURLEncoding.EncodeToString(whole.Sum(nil))
	return nil
}

// checkID writes the id's text to to.
func checkID(name string, from ID, to *string, required bool) *Error {
	text, ok := idText(from)
	switch {
	case !ok:
		return misuse(name + " must be a string or an integer")
	case text == "" && required:
		return &Error{sentinel: ErrInvalid, reason: name + " is empty"}
	case len(text) > maxID:
		return &Error{sentinel: ErrInvalid, reason: name + " is longer than " + strconv.Itoa(maxID) + " bytes"}
	case !storable(text):
		return &Error{sentinel: ErrInvalid, reason: name + " must be valid UTF-8, without control characters, and must not begin or end with a blank: SQL would refuse it or change it"}
	}
	*to = text
	return nil
}
