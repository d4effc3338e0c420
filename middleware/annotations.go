package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Annotations are rules for the routes of a finished router, by "METHOD pattern" as chi has them: the full pattern of
// every router on the way, regular expressions included, "POST /items/{itemID}/orders". Get them from [LoadAnnotations],
// write them in Go, or decode YAML into them with a library of your own. [Guard.Apply] puts them into effect.
type Annotations map[string]Annotation

// Annotation is what guards one route: at least one rule. A Dedup or RequestID is outside the Lock.
type Annotation struct {
	Name      string         `json:"name,omitempty" yaml:"name,omitempty"` // as RouteName; "" for method and pattern
	Lock      *LockRule      `json:"lock,omitempty" yaml:"lock,omitempty"`
	Dedup     *DedupRule     `json:"dedup,omitempty" yaml:"dedup,omitempty"`
	RequestID *RequestIDRule `json:"request_id,omitempty" yaml:"request_id,omitempty"`
}

// LockRule is a [Guard.Lock] on the route. Zero values are the defaults of the options of the same names.
type LockRule struct {
	Keys          []string    `json:"keys,omitempty" yaml:"keys,omitempty"` // templates, taken together
	TTL           Duration    `json:"ttl,omitzero" yaml:"ttl,omitempty"`
	Wait          Duration    `json:"wait,omitzero" yaml:"wait,omitempty"`         // None: one attempt
	MaxHold       Duration    `json:"max_hold,omitzero" yaml:"max_hold,omitempty"` // None: no limit
	OnBusy        int         `json:"on_busy,omitempty" yaml:"on_busy,omitempty"`
	OnUnavailable Unavailable `json:"on_unavailable,omitzero" yaml:"on_unavailable,omitempty"`
}

// DedupRule is a [Guard.Dedup] on the route. Zero values are the defaults of the options of the same names.
type DedupRule struct {
	Scope         string      `json:"scope" yaml:"scope"`
	Key           string      `json:"key,omitempty" yaml:"key,omitempty"`
	TTL           Duration    `json:"ttl,omitzero" yaml:"ttl,omitempty"`
	Optional      bool        `json:"optional,omitempty" yaml:"optional,omitempty"`
	OnUnavailable Unavailable `json:"on_unavailable,omitzero" yaml:"on_unavailable,omitempty"`
}

// RequestIDRule is a [Guard.RequestID] on the route. Zero values are the defaults of the options of the same names.
type RequestIDRule struct {
	Scope    string `json:"scope" yaml:"scope"`
	Key      string `json:"key,omitempty" yaml:"key,omitempty"`
	Optional bool   `json:"optional,omitempty" yaml:"optional,omitempty"`
}

// Duration is a time with its unit, "30s" or "1h30m". Its zero value is "not written"; a written "0s" is None.
type Duration time.Duration

// None is a written "0s": one attempt for Wait, no limit for MaxHold.
const None Duration = -1

// UnmarshalText reads what time.ParseDuration reads, if it is not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	switch {
	case err != nil || v < 0 || string(text) == "0":
		return fmt.Errorf("%q is no duration; write a number with a unit, such as \"30s\"", text)
	case v == 0:
		*d = None
	default:
		*d = Duration(v)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(max(time.Duration(d), 0).String()), nil
}

// Unavailable is what happens to requests of the route while Redis is away. It is written "refuse", the zero value, or
// {"pass": n}: up to n at once in this process go on without Redis, see [PassAtMost].
type Unavailable struct {
	Pass int `json:"pass" yaml:"pass"`
}

const refuse = "refuse"

var errUnavailable = errors.New(`is neither "refuse" nor {"pass": n} with n from 1`)

// UnmarshalJSON reads "refuse" or {"pass": n}.
func (u *Unavailable) UnmarshalJSON(data []byte) error {
	return u.read(func(v any) error { return json.Unmarshal(data, v) })
}

// UnmarshalYAML is UnmarshalJSON for YAML, in the form that the usual libraries look for.
func (u *Unavailable) UnmarshalYAML(unmarshal func(any) error) error { return u.read(unmarshal) }

func (u *Unavailable) read(into func(any) error) error {
	var word string
	if into(&word) == nil {
		if word != refuse {
			return errUnavailable
		}
		*u = Unavailable{}
		return nil
	}
	var members map[string]int
	if err := into(&members); err != nil || len(members) != 1 || members["pass"] < 1 {
		return errUnavailable
	}
	u.Pass = members["pass"]
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (u Unavailable) MarshalJSON() ([]byte, error) {
	if u.Pass == 0 {
		return json.Marshal(refuse)
	}
	return json.Marshal(map[string]int{"pass": u.Pass})
}

// route splits the key of an annotation.
func splitRoute(key string) (method, pattern string, err error) {
	method, pattern, ok := strings.Cut(key, " ")
	pattern = strings.TrimLeft(pattern, " ")
	switch {
	case !ok || !strings.HasPrefix(pattern, "/"):
		return "", "", fmt.Errorf("%q is no route; write method and pattern, such as %q", key, "POST /items/{itemID}/orders")
	case method == "*" || method != strings.ToUpper(method):
		return "", "", fmt.Errorf("%q is no method; write each one, in upper case", method)
	}
	return method, normal(pattern), nil
}

// normal returns the pattern as chi's RoutePattern returns it: inner wildcards and a slash at the end do not count.
func normal(pattern string) string {
	for strings.Contains(pattern, "/*/") {
		pattern = strings.ReplaceAll(pattern, "/*/", "/")
	}
	if pattern != "/" {
		pattern = strings.TrimSuffix(pattern, "//")
		pattern = strings.TrimSuffix(pattern, "/")
	}
	return pattern
}

// compile makes the rules of an annotation, outermost first, and returns all that is wrong with it.
func (a Annotation) compile(g *Guard, method string) (rules []guarding, faults []error) {
	every := []RuleOption{Methods(method)}
	if a.Name != "" {
		every = append(every, RouteName(a.Name))
	}
	add := func(r guarding, what string, wrong []error) {
		for _, err := range wrong {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
		rules = append(rules, r)
	}
	if a.Dedup != nil && a.RequestID != nil {
		faults = append(faults, errors.New("dedup and request_id are both there; dedup has the id too: remove request_id"))
	}
	switch {
	case a.Dedup != nil:
		d := &dedupRule{}
		add(d, "dedup", d.compile(g, a.Dedup.Scope, a.Dedup.options(every)))
	case a.RequestID != nil:
		q := &requestIDRule{}
		add(q, "request_id", q.compile(g, a.RequestID.Scope, a.RequestID.options(every)))
	}
	switch {
	case a.Lock != nil && len(a.Lock.Keys) == 0:
		faults = append(faults, errors.New("lock: no keys; write at least one template"))
	case a.Lock != nil:
		l := &lockRule{}
		add(l, "lock", l.compile(g, a.Lock.Keys[0], a.Lock.options(every)))
	}
	if a.Lock == nil && a.Dedup == nil && a.RequestID == nil {
		faults = append(faults, errors.New("no rule; write lock, dedup or request_id, or remove the route"))
	}
	return rules, faults
}

func (l *LockRule) options(every []RuleOption) (opts []LockOption) {
	for _, o := range every {
		opts = append(opts, o)
	}
	for _, t := range l.Keys[1:] {
		opts = append(opts, Also(t))
	}
	if l.TTL != 0 {
		opts = append(opts, TTL(max(time.Duration(l.TTL), 0)))
	}
	if l.Wait != 0 {
		opts = append(opts, Wait(max(time.Duration(l.Wait), 0)))
	}
	if l.MaxHold != 0 {
		opts = append(opts, MaxHold(max(time.Duration(l.MaxHold), 0)))
	}
	if l.OnBusy != 0 {
		opts = append(opts, OnBusy(l.OnBusy))
	}
	if l.OnUnavailable.Pass != 0 {
		opts = append(opts, PassAtMost(l.OnUnavailable.Pass))
	}
	return opts
}

func (d *DedupRule) options(every []RuleOption) (opts []DedupOption) {
	id := RequestIDRule{Key: d.Key, Optional: d.Optional}
	opts = id.options(every)
	if d.TTL != 0 {
		opts = append(opts, TTL(max(time.Duration(d.TTL), 0)))
	}
	if d.OnUnavailable.Pass != 0 {
		opts = append(opts, PassAtMost(d.OnUnavailable.Pass))
	}
	return opts
}

func (q *RequestIDRule) options(every []RuleOption) (opts []DedupOption) {
	for _, o := range every {
		opts = append(opts, o)
	}
	if q.Key != "" {
		opts = append(opts, Key(q.Key))
	}
	if q.Optional {
		opts = append(opts, Optional())
	}
	return opts
}
