package landing

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	mostListed = 1000
	mostText   = 256 // bytes of an error's text that are kept
)

// DeadLetters are the orders that could not be landed: entries that cannot be read, orders of items that SQL does not have,
// orders that an index refuses which nobody has named, and orders that failed again and again. Their units stay held until
// somebody decides: replay, or give up. They lie in the stream <stream>:dead beside each stream. It is safe for concurrent
// use.
type DeadLetters struct{ e *engine }

// DeadLetter is one order that could not be landed.
type DeadLetter struct {
	// ID names the dead letter for Get, Replay and GiveUp.
	ID string
	// Entry is the order. It is empty for an entry that cannot be read; Fields has what it says.
	Entry  stock.Entry
	Fields map[string]string
	// ErrorType and Error say why, the latter at most 256 bytes of text; the text may hold what a database said.
	ErrorType, Error string
	// Tries is how often it was tried. At is when it was put here, by Redis's clock.
	Tries int64
	At    time.Time

	readable bool
}

// List returns up to limit dead letters (1 to 1000), the oldest of each stream first. Errors are [ErrInvalid] and
// [ErrUnavailable].
func (d *DeadLetters) List(ctx context.Context, limit int) ([]DeadLetter, error) {
	if limit < 1 || limit > mostListed {
		return nil, fail(ErrInvalid, "the limit must be from 1 to 1000")
	}
	var all []DeadLetter
	for part, stream := range d.e.counter.Streams() {
		if len(all) == limit {
			break
		}
		a, _, err := d.e.run(ctx, d.e.scripts.list, []string{deadKey(stream)}, "-", "+", limit-len(all))
		if err != nil {
			return nil, err
		}
		for _, raw := range a[2:] {
			all = append(all, readDead(part, raw))
		}
	}
	return all, nil
}

// Get returns one dead letter. Errors are [ErrNotFound], [ErrInvalid] for an id that is none, and [ErrUnavailable].
func (d *DeadLetters) Get(ctx context.Context, id string) (DeadLetter, error) {
	_, letter, err := d.get(ctx, id)
	return letter, err
}

func (d *DeadLetters) get(ctx context.Context, id string) (stream string, letter DeadLetter, err error) {
	part, stream, entry, err := d.where(id)
	if err != nil {
		return "", DeadLetter{}, err
	}
	a, _, err := d.e.run(ctx, d.e.scripts.list, []string{deadKey(stream)}, entry, entry, 1)
	if err != nil {
		return "", DeadLetter{}, err
	}
	if len(a) < 3 {
		return "", DeadLetter{}, fail(ErrNotFound, "")
	}
	return stream, readDead(part, a[2]), nil
}

// Replay puts a dead letter back into its stream, as it was, for the workers to try again: for when the cause is gone. The
// order keeps its ids, so it lands once, however often it is replayed. Errors are [ErrNotFound], [ErrInvalid] and
// [ErrUnavailable]; after the last it may have been replayed, and the same call finds out.
func (d *DeadLetters) Replay(ctx context.Context, id string) error {
	_, stream, entry, err := d.where(id)
	if err != nil {
		return err
	}
	a, sent, err := d.e.run(ctx, d.e.scripts.replay, []string{stream, deadKey(stream)}, entry)
	switch {
	case err != nil:
		return err
	case a.int(0) == 0 && sent > 1:
		return nil // an earlier send of this call has done it
	case a.int(0) == 0:
		return fail(ErrNotFound, "")
	}
	d.e.tel.appended(ctx, stream, a.text(1))
	return nil
}

// ReplayAll replays every dead letter that is there now, and returns how many. With an error some were replayed.
func (d *DeadLetters) ReplayAll(ctx context.Context) (int, error) {
	n := 0
	for part, stream := range d.e.counter.Streams() {
		// Those that come back are behind those that were there: who counts sees none of them twice.
		for left := int64(-1); left != 0; {
			a, _, err := d.e.run(ctx, d.e.scripts.list, []string{deadKey(stream)}, "-", "+", mostListed)
			if err != nil {
				return n, err
			}
			if left < 0 {
				left = a.int(1)
			}
			letters := a[2:]
			letters = letters[:min(left, int64(len(letters)))]
			for _, raw := range letters {
				switch err := d.Replay(ctx, readDead(part, raw).ID); {
				case err == nil:
					n++
				case !errors.Is(err, ErrNotFound):
					return n, err
				}
			}
			if left -= int64(len(letters)); len(letters) == 0 {
				break
			}
		}
	}
	return n, nil
}

// GiveUp ends an order for good: it is kept in SQL as a closed row, so that no late copy lands, its units are given back once,
// and the dead letter is deleted. It may be called again.
//
// An order that has a live row meanwhile is not given up: [ErrAlreadyPaid] if that is paid, else [ErrInvalid]; replay it, and
// the dead letter goes. An entry that cannot be read is only deleted: its units are found by comparing Redis with SQL, or
// by the hold's deadline. Other errors are [ErrNotFound], [ErrInvalid], [ErrUnavailable] and those of the two sides.
func (d *DeadLetters) GiveUp(ctx context.Context, id string) error {
	stream, letter, err := d.get(ctx, id)
	if err != nil {
		return err
	}
	if letter.readable {
		if err := d.release(ctx, &letter.Entry); err != nil {
			return err
		}
	}
	_, _, entry, err := d.where(id)
	if err != nil {
		return err
	}
	_, _, err = d.e.run(ctx, d.e.scripts.drop, []string{deadKey(stream)}, entry)
	return err
}

func (d *DeadLetters) release(ctx context.Context, entry *stock.Entry) error {
	f, err := d.e.refuse(ctx, entry, stock.Operator, outcomeDeadLetter)
	if err != nil {
		if nobodys(err) || !gormplugin.Refused(err) && !errors.Is(err, ErrInvalid) && !refusesRow(err) {
			return err
		}
		// SQL takes no row of this order, not even a closed one: that is why it lies here. So no copy can land either.
		f = fate{release: stock.Operator}
	}
	switch {
	case f.confirm:
		return fail(ErrAlreadyPaid, "")
	case f.release == "":
		return fail(ErrInvalid, "the order has landed meanwhile: replay it, and it goes from here")
	}
	return d.e.end(ctx, entry, f)
}

// where splits the id of a dead letter into its partition and its id in the stream.
func (d *DeadLetters) where(id string) (part int, stream, entry string, err error) {
	first, entry, ok := strings.Cut(id, "/")
	part, err = strconv.Atoi(first)
	streams := d.e.counter.Streams()
	ms, seq, whole := strings.Cut(entry, "-") // half an id would stand for another one in some commands
	if !ok || err != nil || part < 0 || part >= len(streams) || !whole || !digits(ms) || !digits(seq) {
		return 0, "", "", fail(ErrInvalid, "this is not the id of a dead letter")
	}
	return part, streams[part], entry, nil
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// readDead reads {id, field, value...}.
func readDead(part int, raw any) DeadLetter {
	list, _ := raw.([]any)
	a := answer(list)
	letter := DeadLetter{ID: strconv.Itoa(part) + "/" + a.text(0), Fields: map[string]string{}}
	if ms, _, ok := strings.Cut(a.text(0), "-"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			letter.At = time.UnixMilli(n)
		}
	}
	fields := map[string]any{}
	for i := 1; i+1 < len(a); i += 2 {
		switch name, value := a.text(i), a.text(i+1); name {
		case "dead_type":
			letter.ErrorType = value
		case "dead_error":
			letter.Error = value
		case "dead_tries":
			letter.Tries, _ = strconv.ParseInt(value, 10, 64)
		case "dead_entry":
		default:
			letter.Fields[name], fields[name] = value, value
		}
	}
	if entry, err := stock.ParseEntry(fields); err == nil {
		letter.Entry, letter.readable = entry, true
	}
	return letter
}

// bury moves an entry to the dead letters, and returns its id there, "" if the reply that told it was lost. moved is false if the
// entry was no longer in the stream.
func (e *engine) bury(ctx context.Context, stream string, m *message, why error) (id string, moved bool, err error) {
	typ := fault.TypeOf(why)
	if errors.Is(why, gormplugin.ErrNotFound) {
		typ = fault.NotFound
	}
	a, sent, err := e.run(ctx, e.scripts.bury, []string{stream, deadKey(stream)}, group, m.id, string(typ), cut(why.Error()), m.tries)
	if err != nil {
		return "", false, err
	}
	return a.text(1), a.int(0) == 1 || sent > 1, nil
}

// cut shortens a text to what is kept of it.
func cut(text string) string {
	if len(text) <= mostText {
		return text
	}
	text = text[:mostText]
	for !utf8.ValidString(text) && text != "" {
		text = text[:len(text)-1]
	}
	return text
}
