package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// LoadAnnotations reads annotations from JSON:
//
//	{"POST /withdrawals": {
//	  "lock":  {"keys": ["balance:{userID}"], "ttl": "30s", "wait": "2s", "on_busy": 429, "on_unavailable": "refuse"},
//	  "dedup": {"scope": "{userID}", "key": "{header.Idempotency-Key|sf}", "ttl": "24h", "on_unavailable": {"pass": 50}}}}
//
// An error joins all faults, each with its line and route: fields that are not known or written twice, a route twice, values of
// the wrong kind, durations without a unit. Whether the routes exist and the templates fit, [Guard.Apply] says.
func LoadAnnotations(r io.Reader) (Annotations, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("middleware: read annotations: %w", err)
	}
	l := loader{data: data}
	if err := l.syntax(); err != nil {
		return nil, err
	}
	all := Annotations{}
	seen := map[string]string{} // normalised route -> as written
	l.members(value{raw: data}, "the file", nil, func(key string, at int, v value) {
		method, pattern, err := splitRoute(key)
		if err != nil {
			l.fault(at, err.Error())
			return
		}
		route := method + " " + pattern
		if before, ok := seen[route]; ok {
			l.fault(at, fmt.Sprintf("%q is there already, as %q; write it once", key, before))
			return
		}
		seen[route] = key
		l.route = key
		all[key] = l.annotation(v)
		l.route = ""
	})
	if err := errors.Join(l.faults...); err != nil {
		return nil, err
	}
	return all, nil
}

// loader reads JSON and knows where it is. It is strict where encoding/json is not: names match exactly and once.
type loader struct {
	data   []byte
	route  string // that is being read, as written; "" outside of all
	faults []error
}

// value is a part of the file.
type value struct {
	raw []byte
	at  int // offset in the file
}

func (l *loader) fault(at int, text string) {
	line := 1 + bytes.Count(l.data[:min(at, len(l.data))], []byte("\n"))
	where := fmt.Sprintf("line %d", line)
	if l.route != "" {
		where += ", " + l.route
	}
	l.faults = append(l.faults, fmt.Errorf("middleware: annotations, %s: %s", where, text))
}

// syntax returns what is wrong with the file as JSON.
func (l *loader) syntax() error {
	dec := json.NewDecoder(bytes.NewReader(l.data))
	var raw json.RawMessage
	err := dec.Decode(&raw)
	var wrong *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		l.fault(int(wrong.Offset), wrong.Error())
	case err != nil:
		l.fault(len(l.data), "the file ends in the middle of a value")
	default:
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			l.fault(int(dec.InputOffset()), "something comes after the value; remove it")
		}
	}
	return errors.Join(l.faults...)
}

// members calls known for each member of an object, or other for every one where that is not nil.
func (l *loader) members(v value, what string, known map[string]func(value), other func(name string, at int, v value)) {
	dec := json.NewDecoder(bytes.NewReader(v.raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		l.fault(v.at, what+" is no object; write {...}")
		return
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		name, _ := tok.(string)
		at := v.at + int(dec.InputOffset())
		var raw json.RawMessage
		if err == nil {
			err = dec.Decode(&raw)
		}
		if err != nil { // syntax has passed
			l.fault(at, err.Error())
			return
		}
		member := value{raw, v.at + int(dec.InputOffset()) - len(raw)}
		switch read := known[name]; {
		case other != nil && !seen[name]:
			other(name, at, member)
		case seen[name]:
			l.fault(at, fmt.Sprintf("%q is in %s twice; write it once", name, what))
		case read == nil:
			l.fault(at, fmt.Sprintf("%q is not known in %s; write one of %s", name, what, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		default:
			read(member)
		}
		seen[name] = true
	}
}

func (l *loader) annotation(v value) (a Annotation) {
	l.members(v, "an annotation", map[string]func(value){
		"name": into(l, &a.Name, "a string"),
		"lock": func(v value) {
			a.Lock = &LockRule{}
			l.members(v, "lock", map[string]func(value){
				"keys":           into(l, &a.Lock.Keys, "a list of templates"),
				"ttl":            into(l, &a.Lock.TTL, "a duration such as \"30s\""),
				"wait":           into(l, &a.Lock.Wait, "a duration such as \"2s\""),
				"max_hold":       into(l, &a.Lock.MaxHold, "a duration such as \"5m\""),
				"on_busy":        into(l, &a.Lock.OnBusy, "409, 423 or 429"),
				"on_unavailable": into(l, &a.Lock.OnUnavailable, `"refuse" or {"pass": n}`),
			}, nil)
		},
		"dedup": func(v value) {
			a.Dedup = &DedupRule{}
			l.members(v, "dedup", map[string]func(value){
				"scope":          into(l, &a.Dedup.Scope, "a template"),
				"key":            into(l, &a.Dedup.Key, "a template"),
				"ttl":            into(l, &a.Dedup.TTL, "a duration such as \"24h\""),
				"optional":       into(l, &a.Dedup.Optional, "true or false"),
				"on_unavailable": into(l, &a.Dedup.OnUnavailable, `"refuse" or {"pass": n}`),
			}, nil)
		},
		"request_id": func(v value) {
			a.RequestID = &RequestIDRule{}
			l.members(v, "request_id", map[string]func(value){
				"scope":    into(l, &a.RequestID.Scope, "a template"),
				"key":      into(l, &a.RequestID.Key, "a template"),
				"optional": into(l, &a.RequestID.Optional, "true or false"),
			}, nil)
		},
	}, nil)
	return a
}

// into returns a reader of one value; want says what to write.
func into[T any](l *loader, dst *T, want string) func(value) {
	return func(v value) {
		if err := json.Unmarshal(v.raw, dst); err != nil || string(v.raw) == "null" {
			l.fault(v.at, fmt.Sprintf("%s is not allowed here; write %s", v.raw, want))
		}
	}
}
