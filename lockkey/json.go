package lockkey

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
)

// step is one name of a body path. Digits are an index in an array and a member name in an object.
type step struct {
	name   string
	folded string
	index  int // -1 when the name is not an index
	every  bool
}

// parsePath splits a dotted path. bad is the offset of an empty name, -1 without.
func parsePath(s string) (path []step, bad int) {
	at := 0
	for name := range strings.SplitSeq(s, ".") {
		if name == "" {
			return nil, at
		}
		at += len(name) + 1
		st := step{name: name, folded: fold(name), index: -1, every: name == "#"}
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && strconv.Itoa(n) == name {
			st.index = n
		}
		path = append(path, st)
	}
	return path, -1
}

// fold gives names that encoding/json takes for one field the same text: each rune becomes the least of those that
// are equal to it under Unicode's simple folding.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}

// checkJSON checks that data is one JSON value and not nested too deeply.
func checkJSON(data []byte) *KeyError {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return &KeyError{Reason: "the body is not one JSON value", sentinel: ErrInvalid, cause: err}
	}
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return &KeyError{Reason: "the body is nested more than 32 deep", sentinel: ErrInvalid}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// member returns the one value at the part's path.
func (p *part) member(q *request) (v string, failed *KeyError) {
	failed = p.members(q, func(found string) *KeyError {
		v = found
		return nil
	})
	return v, failed
}

// members calls yield with each value at the part's path, in the body's order, and ends at the first failure.
func (p *part) members(q *request, yield func(v string) *KeyError) *KeyError {
	if failed := q.loadJSON(); failed != nil {
		return failed
	}
	d := json.NewDecoder(bytes.NewReader(q.json))
	d.UseNumber()
	w := walker{part: p, json: d, yield: yield}
	return w.value(p.path)
}

// walker follows one path through a body that is known to be valid JSON.
type walker struct {
	part  *part
	json  *json.Decoder
	yield func(v string) *KeyError
	skip  json.RawMessage
}

// value reads the next value, at whose end of the path the values are.
func (w *walker) value(path []step) *KeyError {
	tok, err := w.json.Token()
	if err != nil {
		return w.broken(err)
	}
	switch tok {
	case json.Delim('{'):
		if len(path) == 0 {
			return w.part.invalid("is an object")
		}
		return w.object(path[0], path[1:])
	case json.Delim('['):
		if len(path) == 0 {
			return w.part.invalid("is an array")
		}
		return w.array(path[0], path[1:])
	}
	if len(path) > 0 {
		return w.part.invalid("has something on its path that is neither object nor array")
	}
	return w.scalar(tok)
}

func (w *walker) scalar(tok json.Token) *KeyError {
	switch v := tok.(type) {
	case string:
		return w.yield(v)
	case bool:
		return w.yield(strconv.FormatBool(v))
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return w.part.invalid("is not an integer: it has a point or an exponent")
		}
		if v == "-0" {
			v = "0" // a handler that decodes into an integer reads the same
		}
		return w.yield(v.String())
	}
	return w.part.invalid("is null")
}

// object looks for the member that is wanted. It reads all members, since a later one could be equal under case
// folding to any of them, and then it is not clear which one the handler takes.
func (w *walker) object(want step, rest []step) *KeyError {
	if want.every {
		return w.part.invalid("has an object where '#' stands for an array")
	}
	seen := make(map[string]bool)
	found := false
	for w.json.More() {
		tok, err := w.json.Token()
		if err != nil {
			return w.broken(err)
		}
		name, _ := tok.(string)
		folded := fold(name)
		if seen[folded] {
			return w.part.invalid("lies in an object with two members of one name, upper and lower case being the same")
		}
		seen[folded] = true
		var failed *KeyError
		if name == want.name {
			found = true
			failed = w.value(rest)
		} else {
			failed = w.ignore()
		}
		if failed != nil {
			return failed
		}
	}
	if !found && seen[want.folded] {
		return w.part.invalid("is spelled in another case")
	}
	return w.leave(found)
}

func (w *walker) array(want step, rest []step) *KeyError {
	if !want.every && want.index < 0 {
		return w.part.invalid("has an array on its path: write an index or '#'")
	}
	n := 0
	for ; w.json.More(); n++ {
		var failed *KeyError
		if want.every || n == want.index {
			failed = w.value(rest)
		} else {
			failed = w.ignore()
		}
		if failed != nil {
			return failed
		}
	}
	if want.every && n == 0 {
		return w.part.invalid("has an empty array on its path")
	}
	return w.leave(want.every || n > want.index)
}

// leave reads the end of an object or array.
func (w *walker) leave(found bool) *KeyError {
	if _, err := w.json.Token(); err != nil {
		return w.broken(err)
	}
	if !found {
		return w.part.missing()
	}
	return nil
}

// ignore reads over one value.
func (w *walker) ignore() *KeyError {
	if err := w.json.Decode(&w.skip); err != nil {
		return w.broken(err)
	}
	return nil
}

func (w *walker) broken(err error) *KeyError {
	return &KeyError{Reason: "the body is not one JSON value", sentinel: ErrInvalid, cause: err}
}
