package stock

import (
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ID names an item, a variant, an activity or a user: a string or an integer of any size, named types included. The
// integer 7 and the string "7" are the same id, "07" is another one. Any other type, and a text of more than 128 bytes,
// is refused with [ErrInvalid], and so is a text that databases refuse or change: one that is not valid UTF-8, has control
// characters, or begins or ends with a blank. nil is the empty id.
//
// In Redis an id is escaped like the values of a lock's key, so no id can forge a separator or a hash tag.
type ID any

// maxID is the longest id in bytes, order and request ids included.
const maxID = 128

// idText returns the id as text, or false when its type is neither string nor integer.
func idText(id ID) (string, bool) {
	switch id := id.(type) {
	case nil:
		return "", true
	case string:
		return id, true
	case int64:
		return strconv.FormatInt(id, 10), true
	case int:
		return strconv.Itoa(id), true
	}
	switch v := reflect.ValueOf(id); v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(v.Uint(), 10), true
	}
	return "", false
}

// storable reports whether every database keeps the text as it is.
func storable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl) && strings.TrimSpace(text) == text
		}
	}
	return text == "" || text[0] != ' ' && text[len(text)-1] != ' '
}
