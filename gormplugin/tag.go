package gormplugin

import (
	"fmt"
	"strings"
)

// tagKey is the struct tag that marks a column. It is a key of our own: gorm copies the settings of an embedding field
// over those of the fields inside, so a setting of the gorm tag would spread to columns it was never meant for.
const tagKey = "guard"

// kind is what a guarded column is for.
type kind uint8

const (
	kindStock   kind = iota + 1 // a number with bounds
	kindFence                   // highest fencing number seen
	kindVersion                 // raised by every write
	kindRequest                 // request id of the row that is the effect
	kindAttempt                 // attempt that wrote the request id
)

func (k kind) String() string {
	return [...]string{"", "stock", "fence", "version", "request", "attempt"}[k]
}

// mark is a column's guard tag, parsed.
type mark struct {
	kind     kind
	min, max bound  // stock
	lock     string // fence: namespace of the lock that owns the row
	strict   bool   // fence: a write that does not commute needs a number
	attempt  string // request: name of the attempt column
	last     bool   // request: a shared row that remembers its last request
}

// bound is a limit of a stock column: none, a number, or another column of the row.
type bound struct {
	column string // name as written; replaced by the database's name once the model is known
	number number
	isSet  bool
}

func (b bound) isNumber() bool { return b.isSet && b.column == "" }
func (b bound) isColumn() bool { return b.isSet && b.column != "" }

// parseMark reads the text of a guard tag: a kind, then settings, all separated by commas.
func parseMark(text string) (mark, error) {
	name, rest, _ := strings.Cut(text, ",")
	m := mark{min: bound{isSet: true}}
	switch strings.TrimSpace(name) {
	case "stock":
		m.kind = kindStock
	case "fence":
		m.kind = kindFence
	case "version":
		m.kind = kindVersion
	case "request":
		m.kind = kindRequest
	default:
		return mark{}, fmt.Errorf("unknown kind %q, want stock, fence, version or request", strings.TrimSpace(name))
	}
	for rest != "" {
		var setting string
		setting, rest, _ = strings.Cut(rest, ",")
		if err := m.set(setting); err != nil {
			return mark{}, err
		}
	}
	switch {
	case m.kind == kindFence && m.lock == "":
		return mark{}, fmt.Errorf(`a fence needs the namespace of its lock: "fence,lock=stock"`)
	case m.min.isNumber() && m.max.isNumber() && m.max.number.less(m.min.number):
		return mark{}, fmt.Errorf("max %s is below min %s", m.max.number, m.min.number)
	case m.last && m.attempt == "":
		return mark{}, fmt.Errorf(`last needs the attempt to tell an older one: "request,last,attempt=attempt"`)
	}
	return m, nil
}

func (m *mark) set(setting string) error {
	key, value, hasValue := strings.Cut(strings.TrimSpace(setting), "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if hasValue && value == "" {
		return fmt.Errorf("setting %q has no value", key)
	}
	var err error
	switch {
	case m.kind == kindStock && key == "min" && hasValue:
		m.min, err = parseBound(value)
	case m.kind == kindStock && key == "max" && hasValue:
		m.max, err = parseBound(value)
	case m.kind == kindFence && key == "lock" && hasValue:
		m.lock = value
	case m.kind == kindFence && key == "strict" && !hasValue:
		m.strict = true
	case m.kind == kindRequest && key == "attempt" && hasValue:
		m.attempt = value
	case m.kind == kindRequest && key == "last" && !hasValue:
		m.last = true
	default:
		err = fmt.Errorf("unknown setting %q of %s", strings.TrimSpace(setting), m.kind)
	}
	return err
}

// parseBound reads a number or the name of a column.
func parseBound(text string) (bound, error) {
	if c := text[0]; c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9' {
		n, ok := parseNumber(text)
		if !ok {
			return bound{}, fmt.Errorf("bound %q is neither a number nor a column", text)
		}
		return bound{number: n, isSet: true}, nil
	}
	return bound{column: text, isSet: true}, nil
}
