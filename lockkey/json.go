package lockkey

import (
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
	if !json.Valid(data) {
		return &KeyError{Reason: "the body is not one JSON value", sentinel: ErrInvalid}
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
	return p.descend(q.json, p.path, yield)
}

// descend follows the path through raw, one JSON value.
func (p *part) descend(raw []byte, path []step, yield func(v string) *KeyError) *KeyError {
	switch raw[0] {
	case '{':
		if len(path) == 0 {
			return p.invalid("is an object")
		}
		return p.object(raw, path, yield)
	case '[':
		if len(path) == 0 {
			return p.invalid("is an array")
		}
		return p.array(raw, path, yield)
	}
	if len(path) > 0 {
		return p.invalid("has something on its path that is neither object nor array")
	}
	switch raw[0] {
	case '"':
		return yield(unquoteJSON(raw))
	case 't', 'f':
		return yield(string(raw))
	case 'n':
		return p.invalid("is null")
	}
	switch number := string(raw); {
	case strings.ContainsAny(number, ".eE"):
		return p.invalid("is not an integer: it has a point or an exponent")
	case number == "-0":
		return yield("0") // what a handler that decodes into an integer reads
	default:
		return yield(number)
	}
}

// object goes on with the member that is wanted. It looks at the names of all, since another one could be equal to any
// of them under case folding, and then it is not clear which one the handler takes.
func (p *part) object(raw []byte, path []step, yield func(v string) *KeyError) *KeyError {
	want := path[0]
	if want.every {
		return p.invalid("has an object where '#' stands for an array")
	}
	var found []byte
	seen := make(map[string]bool)
	for quoted, value := range members(raw) {
		name := unquoteJSON(quoted)
		folded := fold(name)
		if seen[folded] {
			return p.invalid("lies in an object with two members of one name, upper and lower case being the same")
		}
		seen[folded] = true
		if name == want.name {
			found = value
		}
	}
	switch {
	case found != nil:
		return p.descend(found, path[1:], yield)
	case seen[want.folded]:
		return p.invalid("is spelled in another case")
	}
	return p.missing()
}

func (p *part) array(raw []byte, path []step, yield func(v string) *KeyError) *KeyError {
	want := path[0]
	if !want.every && want.index < 0 {
		return p.invalid("has an array on its path: write an index or '#'")
	}
	n := 0
	for value := range elements(raw) {
		if want.every || n == want.index {
			if failed := p.descend(value, path[1:], yield); failed != nil || !want.every {
				return failed
			}
		}
		n++
	}
	if want.every && n == 0 {
		return p.invalid("has an empty array on its path")
	}
	if !want.every {
		return p.missing()
	}
	return nil
}
