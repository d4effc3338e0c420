package lockkey

import (
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
)

// request is what rendering one template reads.
type request struct {
	*http.Request
	chi  *chi.Context // nil outside chi, and for a template without params
	json []byte       // the body, without space before it, once it is known to be JSON
}

// Keys returns the keys of a request: sorted by bytes, without duplicates, 1 to 32. Only a template with "#" gives more
// than one. An error is a [*KeyError].
//
// Call it when the route is known, so not in a middleware that runs before routing. When the template has {body.path},
// Keys reads the body and sets r.Body to a copy of what was read, on an error too.
func (t *Template) Keys(r *http.Request) ([]string, error) {
	return t.AppendKeys(nil, r)
}

// Key returns the only key of a request. It is Keys for a template without "#", see [Single]; with one it returns an
// error that wraps [ErrMisuse].
func (t *Template) Key(r *http.Request) (string, error) {
	if t.each >= 0 {
		return "", t.wrap(&KeyError{Reason: "the template gives several keys", sentinel: ErrMisuse}, t.each)
	}
	var room [1]string
	keys, err := t.AppendKeys(room[:0], r)
	if err != nil {
		return "", err
	}
	return keys[0], nil
}

// AppendKeys is [Template.Keys] for a rule of several templates: it adds the keys to those in dst and returns all of
// them, sorted, without duplicates, at most 32. dst is used up: it is sorted in place, and on an error AppendKeys
// returns nil. With room in dst a single key costs one allocation, its string.
func (t *Template) AppendKeys(dst []string, r *http.Request) ([]string, error) {
	if len(dst) > 1 {
		slices.Sort(dst)
		dst = slices.Compact(dst)
	}
	q := request{Request: r}
	if t.params {
		q.chi = chi.RouteContext(r.Context())
	}
	if t.each >= 0 {
		return t.appendEach(dst, &q)
	}
	var stack [128]byte
	key, failed, at := t.render(stack[:0], 0, len(t.parts), &q)
	if failed == nil {
		dst, failed = insert(dst, key)
		at = none
	}
	if failed != nil {
		return nil, t.refuse(failed, at, &q)
	}
	return dst, nil
}

// appendEach adds one key for each element that "#" stands for.
func (t *Template) appendEach(dst []string, q *request) ([]string, error) {
	head, failed, at := t.render(nil, 0, t.each, q)
	if failed != nil {
		return nil, t.refuse(failed, at, q)
	}
	tail, failed, at := t.render(nil, t.each+1, len(t.parts), q)
	if failed != nil {
		return nil, t.refuse(failed, at, q)
	}
	p, n := &t.parts[t.each], len(head)
	keys := slices.Clone(dst) // dst itself in the closure would send every caller's array to the heap
	failed = p.members(q, func(v string) (failed *KeyError) {
		if head, failed = p.append(head[:n], v); failed != nil {
			return failed
		}
		head = append(head, tail...)
		keys, failed = insert(keys, head)
		return failed
	})
	if failed != nil {
		return nil, t.refuse(failed, t.each, q)
	}
	return keys, nil
}

// render appends the parts from and up to, not including, the given ones; at is the part that failed.
func (t *Template) render(b []byte, from, to int, q *request) (_ []byte, failed *KeyError, at int) {
	for i := from; i < to; i++ {
		p := &t.parts[i]
		if p.source == literal {
			b = append(b, p.text...)
			continue
		}
		v, failed := p.read(q)
		if failed == nil {
			b, failed = p.append(b, v)
		}
		if failed != nil {
			return nil, failed, i
		}
	}
	return b, nil, none
}

// insert adds key to the sorted keys unless it is there.
func insert(keys []string, key []byte) ([]string, *KeyError) {
	i, end := 0, len(keys)
	for i < end { // by hand: passed to a function value, the caller's buffer would move to the heap
		if mid := (i + end) / 2; keys[mid] < string(key) {
			i = mid + 1
		} else {
			end = mid
		}
	}
	switch {
	case i < len(keys) && keys[i] == string(key):
		return keys, nil
	case len(keys) >= maxKeys:
		return nil, &KeyError{Reason: "the request asks for more than 32 keys", sentinel: ErrTooManyKeys}
	}
	if i == len(keys) { // the only key, most of the time
		return append(keys, string(key)), nil
	}
	return slices.Insert(keys, i, string(key)), nil
}

// none is the part at fault when it is no single one.
const none = -1

// refuse completes what went wrong with part at.
func (t *Template) refuse(failed *KeyError, at int, q *request) error {
	failed.absent = failed.absent && !t.tried(at, q)
	return t.wrap(failed, at)
}

func (t *Template) wrap(failed *KeyError, at int) error {
	failed.Template = t.text
	if at != none {
		failed.Placeholder = t.parts[at].text
	}
	return failed
}

// tried reports whether the client has supplied any of the parts other than the one at, though perhaps in a wrong form.
func (t *Template) tried(at int, q *request) bool {
	for i := range t.parts {
		p := &t.parts[i]
		if i == at || p.source != header && p.source != query && p.source != body {
			continue
		}
		if _, failed := p.read(q); failed == nil || !failed.absent {
			return true
		}
	}
	return false
}
