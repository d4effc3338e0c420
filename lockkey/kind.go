package lockkey

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// kind is the form that a value must have; spellings of one thing are brought to one.
type kind uint8

const (
	asIs kind = iota
	asInt
	asUUID
	asSF
)

// kinds are the suffixes of a placeholder.
var kinds = map[string]kind{"int": asInt, "uuid": asUUID, "sf": asSF}

func (k kind) suffix() string {
	for s, kk := range kinds {
		if k == kk {
			return "|" + s
		}
	}
	return ""
}

// append appends the value v, escaped. Where v is not of the form, fault says what it is not and b is as it was.
func (k kind) append(b []byte, v string) (_ []byte, fault string) {
	switch k {
	case asInt:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return b, "is not an integer of 64 bits"
		}
		return strconv.AppendInt(b, n, 10), ""
	case asUUID:
		return appendUUID(b, v)
	case asSF:
		s, fault := unquoteSF(v)
		if fault != "" {
			return b, fault
		}
		return keyesc.Append(b, s), ""
	}
	return keyesc.Append(b, v), ""
}

// appendUUID appends v as 8-4-4-4-12 lower-case hexadecimal digits. It takes the spellings that UUID libraries and
// databases take for one value: either case, without dashes, in braces, as a URN (RFC 9562, 4).
func appendUUID(b []byte, v string) (_ []byte, fault string) {
	const notUUID = "is not a UUID"
	const urn = "urn:uuid:"
	switch {
	case len(v) == 36+2 && v[0] == '{' && v[37] == '}':
		v = v[1:37]
	case len(v) == 36+len(urn) && strings.EqualFold(v[:len(urn)], urn):
		v = v[len(urn):]
	}
	dashed := len(v) == 36
	if !dashed && len(v) != 32 {
		return b, notUUID
	}
	start := len(b)
	for i := 0; i < len(v); i++ {
		if pos := len(b) - start; pos == 8 || pos == 13 || pos == 18 || pos == 23 {
			if dashed && v[i] != '-' {
				return b[:start], notUUID
			}
			b = append(b, '-')
			if dashed {
				continue
			}
		}
		c, ok := lowerHex(v[i])
		if !ok {
			return b[:start], notUUID
		}
		b = append(b, c)
	}
	return b, ""
}

func lowerHex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		return c, true
	case 'A' <= c && c <= 'F':
		return c + 'a' - 'A', true
	}
	return 0, false
}

// maxSF is how many bytes a value with |sf may have, without quotes and escapes.
const maxSF = 255

// unquoteSF returns the string that v spells: quoted as RFC 8941, 3.3.3 has it, or bare. Spaces around v are dropped,
// as RFC 8941, 4.2 has it. One value only: parameters and lists are refused. A bare value must not have what would end
// or quote it in a list; a quoted one may, and spaces too.
func unquoteSF(v string) (_ string, fault string) {
	v = strings.Trim(v, " ")
	s := v
	if quoted := strings.HasPrefix(v, `"`); quoted {
		if s, fault = unquote(v[1:]); fault != "" {
			return "", fault
		}
	} else if strings.ContainsAny(v, `,;"\ `) {
		return "", `has one of , ; " \ or a space outside quotes`
	}
	switch {
	case s == "":
		return "", "is empty"
	case len(s) > maxSF:
		return "", "has more than 255 bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", "is not printable ASCII"
	}
	return s, ""
}

// unquote returns what stands before the closing quote of v, unescaped. The quote must be the end of v.
func unquote(v string) (_ string, fault string) {
	var head []byte // what stands before start, unescaped
	start := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			if i != len(v)-1 {
				return "", "has more than one value, or parameters"
			}
			if start == 0 {
				return v[:i], ""
			}
			return string(append(head, v[start:i]...)), ""
		case '\\':
			head = append(head, v[start:i]...)
			if i++; i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", "has a backslash that escapes nothing"
			}
			start = i
		}
	}
	return "", "has an open quote"
}
