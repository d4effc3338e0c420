package lockkey

import (
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// The functions of this file take apart JSON that encoding/json has found valid, so they only look for where a value
// ends. They copy nothing and skip what is not on the path, which the decoder's tokens would make strings of.

// members yields the quoted names and the values of the object raw.
func members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for rest := next(raw); rest[0] != '}'; {
			name := rest[:length(rest)]
			rest = next(skipSpace(rest[len(name):])) // over the colon
			value := rest[:length(rest)]
			if !yield(name, value) {
				return
			}
			rest = afterValue(rest[len(value):])
		}
	}
}

// elements yields the values of the array raw.
func elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		for rest := next(raw); rest[0] != ']'; {
			value := rest[:length(rest)]
			if !yield(value) {
				return
			}
			rest = afterValue(rest[len(value):])
		}
	}
}

// afterValue returns what follows a value in an object or array, without the comma.
func afterValue(rest []byte) []byte {
	if rest = skipSpace(rest); rest[0] == ',' {
		return next(rest)
	}
	return rest
}

// next skips one byte and the white space behind it.
func next(raw []byte) []byte { return skipSpace(raw[1:]) }

func skipSpace(raw []byte) []byte {
	for len(raw) > 0 && isSpace(raw[0]) {
		raw = raw[1:]
	}
	return raw
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// length returns how many bytes the value has that raw begins with.
func length(raw []byte) int {
	switch raw[0] {
	case '"':
		return stringLength(raw)
	case '{', '[':
		depth := 0
		for i := 0; ; {
			switch raw[i] {
			case '"':
				i += stringLength(raw[i:])
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i, c := range raw {
		if c == ',' || c == '}' || c == ']' || isSpace(c) {
			return i
		}
	}
	return len(raw)
}

func stringLength(raw []byte) int {
	i := 1
	for ; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquoteJSON returns the text of a quoted string, as encoding/json decodes it.
func unquoteJSON(raw []byte) string {
	plain := raw[1 : len(raw)-1]
	for _, c := range plain {
		if c == '\\' || c >= utf8.RuneSelf {
			var s string
			_ = json.Unmarshal(raw, &s) // cannot fail: it was valid before
			return s
		}
	}
	return string(plain)
}
