package lockkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

func TestBodyValues(t *testing.T) {
	const twoOfOneName = " lies in an object with two members of one name, upper and lower case being the same"
	tests := map[string]struct {
		template string
		body     string
		want     string
		reason   string
	}{
		"a string":                    {"x:{body.id}", `{"id": "a"}`, "x:a", ""},
		"an integer":                  {"x:{body.id}", `{"id": 7}`, "x:7", ""},
		"an integer as a string":      {"x:{body.id}", `{"id": "7"}`, "x:7", ""},
		"a negative integer":          {"x:{body.id}", `{"id": -7}`, "x:-7", ""},
		"minus zero":                  {"x:{body.id}", `{"id": -0}`, "x:0", ""},
		"an integer over 2^53":        {"x:{body.id}", `{"id": 9007199254740993}`, "x:9007199254740993", ""},
		"an integer over 64 bits":     {"x:{body.id}", `{"id": 18446744073709551616}`, "x:18446744073709551616", ""},
		"true":                        {"x:{body.id}", `{"id": true}`, "x:true", ""},
		"false":                       {"x:{body.id}", `{"id": false}`, "x:false", ""},
		"escapes":                     {"x:{body.id}", `{"id": "a\u003ab\/"}`, "x:a%3Ab%2F", ""},
		"invalid UTF-8, as decoded":   {"x:{body.id}", "{\"id\": \"a\xfe\"}", "x:a%EF%BF%BD", ""},
		"a name with escapes":         {"x:{body.id}", `{"\u0069d": 7}`, "x:7", ""},
		"nested":                      {"x:{body.a.b.c}", `{"z": [1, {"a": 2}], "a": {"y": {}, "b": {"c": 7}}}`, "x:7", ""},
		"an index":                    {"x:{body.items.1.id}", `{"items": [{"id": 1}, {"id": 2}, {"id": 3}]}`, "x:2", ""},
		"an index of the root":        {"x:{body.0}", `[7, 8]`, "x:7", ""},
		"digits as a member":          {"x:{body.0}", `{"0": 7}`, "x:7", ""},
		"a hash as a member":          {"x:{body.#}", `{"#": 7}`, "", "body member # has an object where '#' stands for an array"},
		"every element":               {"x:{body.#.id}", `[{"id": 7}, {"id": 7}]`, "x:7", ""},
		"int":                         {"x:{body.id|int}", `{"id": "+07"}`, "x:7", ""},
		"white space around":          {"x:{body.id}", " \r\n\t{\"id\": 7}\n", "x:7", ""},
		"depth 32":                    {"x:{body.id}", `{"id": 7, "deep": ` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`, "x:7", ""},
		"braces inside a string":      {"x:{body.id}", `{"id": 7, "deep": "\"` + strings.Repeat("[{", 40) + `\\"}`, "x:7", ""},
		"other names in another case": {"x:{body.id}", `{"id": 7, "Sku": 1, "inner": {"ID": 1, "id": 2}}`, "x:7", ""},

		"a point":                {"x:{body.id}", `{"id": 7.0}`, "", "body member id is not an integer: it has a point or an exponent"},
		"an exponent":            {"x:{body.id}", `{"id": 7e0}`, "", "body member id is not an integer: it has a point or an exponent"},
		"an upper-case exponent": {"x:{body.id}", `{"id": 7E2}`, "", "body member id is not an integer: it has a point or an exponent"},
		"null":                   {"x:{body.id}", `{"id": null}`, "", "body member id is null"},
		"an object":              {"x:{body.id}", `{"id": {"a": 1}}`, "", "body member id is an object"},
		"an array":               {"x:{body.id}", `{"id": [1]}`, "", "body member id is an array"},
		"an empty string":        {"x:{body.id}", `{"id": ""}`, "", "body member id is empty"},
		"not of its form":        {"x:{body.id|int}", `{"id": true}`, "", "body member id is not an integer of 64 bits"},
		"a missing member":       {"x:{body.id}", `{"a": 1}`, "", "body member id is absent"},
		"missing in one element": {"x:{body.#.id}", `[{"id": 1}, {}]`, "", "body member #.id is absent"},
		"null in one element":    {"x:{body.#}", `[1, null]`, "", "body member # is null"},
		"an empty array":         {"x:{body.items.#}", `{"items": []}`, "", "body member items.# has an empty array on its path"},
		"an index beyond":        {"x:{body.items.1}", `{"items": [1]}`, "", "body member items.1 is absent"},
		"an index with a zero":   {"x:{body.items.01}", `{"items": [1, 2]}`, "", "body member items.01 has an array on its path: write an index or '#'"},
		"a name in an array":     {"x:{body.items.id}", `{"items": [{"id": 1}]}`, "", "body member items.id has an array on its path: write an index or '#'"},
		"a number on the path":   {"x:{body.a.b}", `{"a": 1}`, "", "body member a.b has something on its path that is neither object nor array"},
		"null on the path":       {"x:{body.a.b}", `{"a": null}`, "", "body member a.b has something on its path that is neither object nor array"},
		"a scalar as the root":   {"x:{body.a}", `7`, "", "body member a has something on its path that is neither object nor array"},
		"another case":           {"x:{body.sku}", `{"SKU": 1}`, "", "body member sku is spelled in another case"},
		"twice":                  {"x:{body.sku}", `{"sku": 1, "sku": 1}`, "", "body member sku" + twoOfOneName},
		"twice, upper case":      {"x:{body.sku}", `{"sku": 1, "SKU": 2}`, "", "body member sku" + twoOfOneName},
		"twice, long s":          {"x:{body.sku}", `{"ſku": 1, "sku": 2}`, "", "body member sku" + twoOfOneName},
		"twice, Kelvin sign":     {"x:{body.sku}", `{"sku": 1, "s\u212Au": 2}`, "", "body member sku" + twoOfOneName},
		"twice, others":          {"x:{body.sku}", `{"sku": 1, "a": 1, "A": 2}`, "", "body member sku" + twoOfOneName},
		"twice on the path":      {"x:{body.a.b}", `{"a": {"b": 1}, "A": {"b": 2}}`, "", "body member a.b" + twoOfOneName},
		"twice in an element":    {"x:{body.#.b}", `[{"b": 1}, {"b": 1, "B": 2}]`, "", "body member #.b" + twoOfOneName},
		"no JSON":                {"x:{body.id}", `id=7`, "", "the body is not one JSON value"},
		"cut off":                {"x:{body.id}", `{"id": 7`, "", "the body is not one JSON value"},
		"a trailing comma":       {"x:{body.id}", `{"id": 7,}`, "", "the body is not one JSON value"},
		"data after the value":   {"x:{body.id}", `{"id": 7} {"id": 8}`, "", "the body is not one JSON value"},
		"a byte order mark":      {"x:{body.id}", "\ufeff" + `{"id": 7}`, "", "the body is not one JSON value"},
		"invalid further on":     {"x:{body.id}", `{"id": 7, "a": tru}`, "", "the body is not one JSON value"},
		"depth 33":               {"x:{body.id}", `{"id": 7, "deep": ` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`, "", "the body is nested more than 32 deep"},
		"depth 33, objects":      {"x:{body.id}", strings.Repeat(`{"id":`, 33) + "7" + strings.Repeat("}", 33), "", "the body is nested more than 32 deep"},
		"over 8 KiB":             {"x:{body.id}", `{"id": "` + strings.Repeat("a", maxRaw+1) + `"}`, "", "body member id is longer than 8 KiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := parse(t, tt.template).Keys(post(tt.body))
			check(t, answer{keys, err}, tt.want, tt.reason, ErrInvalid)
			if err == nil {
				return
			}
			var failed *KeyError
			if errors.As(err, &failed); failed.Template != tt.template || !strings.Contains(tt.template, failed.Placeholder) || failed.Placeholder == "" {
				t.Errorf("%#v, want the template and the placeholder", failed)
			}
		})
	}
}

// order is what a handler decodes.
type order struct {
	SKU   any     `json:"sku"`
	Inner inner   `json:"a"`
	Items []inner `json:"items"`
}

type inner struct {
	B any `json:"b"`
}

// What a path finds is what encoding/json finds for the field of that name, spelled and typed by the same rules; a body
// that is refused has a reason that a plain walk through json.Unmarshal's tree confirms; and the body is as it was.
func FuzzBodyPath(f *testing.F) {
	for _, seed := range []string{
		`{"sku": 7}`, `{"sku": "7", "SKU": 8}`, `{"ſku": 1}`, `{"a": {"b": true}}`, `{"items": [{"b": 1}, {"b": "x"}]}`, `[]`, `7`, `{"sku": 7.0}`,
		`{"sku": null}`, `{"items": []}`, `{"sku": 7} x`, `{"sku": "\ud800"}`, `{"a": {"b": 1}, "a": {}}`, `{"sku": -0}`, "{\"s\xffku\": 1}", `{"sku": ""}`,
		`{"items": {"b": 1}}`, `[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxRaw {
			return // keeps values below their own limit
		}
		for _, path := range []string{"sku", "a.b", "items.#.b", "items.0.b", "0", "#"} {
			template := parse(t, "{body."+path+"}")
			r := post(text)
			keys, err := template.Keys(r)
			if restored, readErr := io.ReadAll(r.Body); readErr != nil || string(restored) != text {
				t.Fatalf("the body reads %q, %v; want %q", restored, readErr, text)
			}
			want, ok := walk([]byte(text), strings.Split(path, "."))
			if tooMany := errors.Is(err, ErrTooManyKeys); tooMany && len(want) > maxKeys {
				continue
			}
			if ok != (err == nil) {
				t.Fatalf("%s of %q: keys %q, %v; a plain walk finds %q, %t", path, text, keys, err, want, ok)
			}
			if ok && !slices.Equal(keys, want) {
				t.Fatalf("%s of %q: keys %q, a plain walk finds %q", path, text, keys, want)
			}
			if ok {
				compareWithHandler(t, path, text, keys)
			}
		}
	})
}

// compareWithHandler decodes as a handler would and compares.
func compareWithHandler(t *testing.T, path, text string, keys []string) {
	t.Helper()
	var o order
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return // another member is not of the handler's type
	}
	var found []any
	switch path {
	case "sku":
		found = []any{o.SKU}
	case "a.b":
		found = []any{o.Inner.B}
	case "items.#.b":
		for _, i := range o.Items {
			found = append(found, i.B)
		}
	case "items.0.b":
		found = []any{o.Items[0].B}
	default:
		return
	}
	var want []string
	for _, v := range found {
		s, ok := scalarText(v)
		if !ok {
			t.Fatalf("%s of %q: keys %q, the handler finds %v", path, text, keys, v)
		}
		want = append(want, string(keyesc.Append(nil, s)))
	}
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(keys, want) {
		t.Fatalf("%s of %q: keys %q, the handler finds %q", path, text, keys, want)
	}
}

func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, v != ""
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if v == "-0" {
			return "0", true
		}
		return string(v), !strings.ContainsAny(string(v), ".eE")
	}
	return "", false
}

// walk is the slow and plain way: a tree of raw messages, taken apart level by level.
func walk(data []byte, path []string) (keys []string, ok bool) {
	if !json.Valid(data) || nesting(data) > maxDepth {
		return nil, false
	}
	level := []json.RawMessage{data}
	for _, name := range path {
		var next []json.RawMessage
		for _, raw := range level {
			below, ok := descend(raw, name)
			if !ok {
				return nil, false
			}
			next = append(next, below...)
		}
		level = next
	}
	for _, raw := range level {
		var v any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return nil, false
		}
		s, ok := scalarText(v)
		if !ok {
			return nil, false
		}
		keys = append(keys, string(keyesc.Append(nil, s)))
	}
	slices.Sort(keys)
	return slices.Compact(keys), true
}

func descend(raw json.RawMessage, name string) (below []json.RawMessage, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		if name == "#" {
			return list, len(list) > 0
		}
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(list) {
			return nil, false
		}
		return list[i : i+1], true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil || name == "#" {
		return nil, false
	}
	// A map has one entry for a name given twice: count them.
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	var names []string
	for d.More() {
		tok, _ := d.Token()
		var skip json.RawMessage
		_ = d.Decode(&skip)
		for _, other := range names {
			if strings.EqualFold(other, tok.(string)) {
				return nil, false
			}
		}
		names = append(names, tok.(string))
	}
	v, ok := members[name]
	return []json.RawMessage{v}, ok
}

func nesting(data []byte) int {
	depth, most := 0, 0
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		tok, err := d.Token()
		if err != nil {
			return most
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		most = max(most, depth)
	}
}
