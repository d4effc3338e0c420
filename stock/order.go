package stock

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// maxUnits is the largest amount, 2^53-1: above it a number in a Redis script is no longer exact.
const maxUnits = 1<<53 - 1

// Order is what a user wants. The zero value of an optional field is fine.
type Order struct {
	// ID is the order's id, at most 128 bytes; the library makes one when it is empty. One order id is one hold for
	// ever: under another request id it is refused with ErrMismatch.
	ID string
	// RequestID is the id that the client keeps for all retries of this order, at most 128 bytes. Empty, it comes from
	// the context, where middleware puts it (guard.Dedup, guard.RequestID); without either the order is refused with
	// ErrInvalid.
	RequestID string
	// Item is what is sold; required.
	Item ID
	// Variant tells what shares the item's counter and yet differs (size, price class, options); optional.
	Variant ID
	// Activity is the sale, as in [Sale]; optional. One item may be sold in several.
	Activity ID
	// User is who buys; required: the limit counts per user.
	User ID
	// Units is how many, from 1 to 2^53-1. Money goes in minor units.
	Units int64
}

// Result says what a deduct did.
type Result struct {
	// Left is how many units were left right after this order was taken.
	Left int64
	// Order is the order's id: the one given, or the one that the library made. A replay has that of the first time.
	Order string
	// Nth says which of the user's allowed orders it is, from 1: the smallest number that no other live order of the
	// user has under this limit. It is 1 while the limit is 1. In a unique index it lets SQL enforce the limit too.
	Nth int
	// Replayed is true if this request had been done before: nothing was taken now, and the rest is what the first
	// time answered.
	Replayed bool
}

// line is one line of an order, its values as text.
type line struct {
	item, variant, activity, user string
	units                         int64
	what                          string // all of the above in one text, see fingerprint
}

// fingerprint says what a line is for: item, variant, activity, user and units, escaped, with colons between. The order
// id is not part of it: a retry may bring a new one and gets the first one back.
func (l *line) fingerprint() string {
	return esc(l.item) + ":" + esc(l.variant) + ":" + esc(l.activity) + ":" + esc(l.user) + ":" + strconv.FormatInt(l.units, 10)
}

// request is an order that has been checked.
type request struct {
	order, id string
	line      line
}

// check turns an order into a request, or says what is wrong with it.
func (o *Order) check(ctx context.Context) (request, error) {
	r := request{order: o.ID, id: o.RequestID}
	if r.id == "" {
		in, _ := reqctx.RequestOf(ctx)
		r.id = in.ID
	}
	if r.id == "" {
		return r, misuse("no request id: set Order.RequestID, or let guard.Dedup or guard.RequestID put one into the context")
	}
	for _, id := range []struct {
		name     string
		from     ID
		to       *string
		required bool
	}{
		{"Order.ID", o.ID, &r.order, false},
		{"Order.RequestID", r.id, &r.id, true},
		{"Order.Item", o.Item, &r.line.item, true},
		{"Order.Variant", o.Variant, &r.line.variant, false},
		{"Order.Activity", o.Activity, &r.line.activity, false},
		{"Order.User", o.User, &r.line.user, true},
	} {
		if err := checkID(id.name, id.from, id.to, id.required); err != nil {
			return r, err
		}
	}
	if o.Units < 1 || o.Units > maxUnits {
		return r, &Error{sentinel: ErrInvalid, reason: "Order.Units must be from 1 to 2^53-1"}
	}
	r.line.units = o.Units
	r.line.what = r.line.fingerprint()
	return r, nil
}

// checkID writes the id's text to to.
func checkID(name string, from ID, to *string, required bool) error {
	text, ok := idText(from)
	switch {
	case !ok:
		return misuse(name + " must be a string or an integer")
	case text == "" && required:
		return &Error{sentinel: ErrInvalid, reason: name + " is empty"}
	case len(text) > maxID:
		return &Error{sentinel: ErrInvalid, reason: name + " is longer than " + strconv.Itoa(maxID) + " bytes"}
	}
	*to = text
	return nil
}
