package middleware

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const fullFile = `{"POST /withdrawals": {
  "name": "withdraw",
  "lock":  {"keys": ["balance:{userID}", "a"], "ttl": "30s", "wait": "0s", "max_hold": "0s", "on_busy": 423, "on_unavailable": "refuse"},
  "dedup": {"scope": "{userID}", "key": "{header.Idempotency-Key|sf}", "ttl": "24h", "optional": true, "on_unavailable": {"pass": 50}}},
 "PATCH /orders/{id:[0-9]+}": {"request_id": {"scope": "all", "key": "{query.id}", "optional": true}}}`

func fullAnnotations() Annotations {
	return Annotations{
		"POST /withdrawals": {
			Name: "withdraw",
			Lock: &LockRule{
				Keys: []string{"balance:{userID}", "a"}, TTL: Duration(30 * time.Second), Wait: None, MaxHold: None, OnBusy: 423,
			},
			Dedup: &DedupRule{
				Scope: "{userID}", Key: "{header.Idempotency-Key|sf}", TTL: Duration(24 * time.Hour), Optional: true, OnUnavailable: Unavailable{Pass: 50},
			},
		},
		"PATCH /orders/{id:[0-9]+}": {RequestID: &RequestIDRule{Scope: "all", Key: "{query.id}", Optional: true}},
	}
}

func TestLoadAnnotations(t *testing.T) {
	got, err := LoadAnnotations(strings.NewReader(fullFile))
	if diff := cmp.Diff(fullAnnotations(), got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	written, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadAnnotations(strings.NewReader(string(written)))
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Errorf("written as %s, read again: %v\n%s", written, err, diff)
	}
}

// Every fault has its line and route, and all are told at once.
func TestLoadAnnotationsTellsTheLine(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"not JSON":              {"{\n\"POST /a\": {,}}", []string{"line 2: invalid character ','"}},
		"cut off":               {"{\n\"POST /a\":", []string{"line 2: the file ends in the middle"}},
		"something after it":    {"{}\n{}", []string{"line 2: something comes after the value"}},
		"a list":                {"[]", []string{"line 1: the file is no object"}},
		"unknown field":         {"{\"POST /a\": {\n\"lokc\": {}}}", []string{`line 2, POST /a: "lokc" is not known in an annotation; write one of dedup, lock, name, request_id`}},
		"another case":          {"{\"POST /a\": {\n\"Lock\": {}}}", []string{`line 2, POST /a: "Lock" is not known`}},
		"unknown field within":  {"{\"POST /a\": {\"lock\": {\n\"key\": \"x\"}}}", []string{`line 2, POST /a: "key" is not known in lock; write one of keys, max_hold, on_busy`}},
		"field twice":           {"{\"POST /a\": {\"name\": \"a\",\n\"name\": \"b\"}}", []string{`line 2, POST /a: "name" is in an annotation twice`}},
		"route twice":           {"{\"POST /a\": {},\n\"POST /a\": {}}", []string{`line 2: "POST /a" is in the file twice`}},
		"route twice, spelled":  {"{\"POST /a\": {},\n\"POST /a/\": {}}", []string{`line 2: "POST /a/" is there already, as "POST /a"`}},
		"no route":              {"{\n\"/a\": {}}", []string{`line 2: "/a" is no route; write method and pattern`}},
		"any method":            {"{\n\"* /a\": {}}", []string{`line 2: "*" is no method`}},
		"lower case":            {"{\n\"post /a\": {}}", []string{`line 2: "post" is no method`}},
		"duration as a number":  {"{\"POST /a\": {\"lock\": {\n\"ttl\": 30}}}", []string{`line 2, POST /a: 30 is not allowed here; write a duration such as "30s"`}},
		"duration without unit": {"{\"POST /a\": {\"lock\": {\n\"wait\": \"0\"}}}", []string{`line 2, POST /a: "0" is not allowed here`}},
		"negative duration":     {"{\"POST /a\": {\"lock\": {\n\"wait\": \"-1s\"}}}", []string{`line 2, POST /a: "-1s" is not allowed here`}},
		"pass without number":   {"{\"POST /a\": {\"lock\": {\n\"on_unavailable\": \"pass\"}}}", []string{`line 2, POST /a: "pass" is not allowed here; write "refuse" or {"pass": n}`}},
		"pass none":             {"{\"POST /a\": {\"lock\": {\n\"on_unavailable\": {\"pass\": 0}}}}", []string{"line 2, POST /a: "}},
		"pass and more":         {"{\"POST /a\": {\"lock\": {\n\"on_unavailable\": {\"pass\": 1, \"x\": 1}}}}", []string{"line 2, POST /a: "}},
		"null":                  {"{\"POST /a\": {\"lock\":\n null}}", []string{"line 2, POST /a: lock is no object"}},
		"null within":           {"{\"POST /a\": {\"lock\": {\"keys\":\n null}}}", []string{"line 2, POST /a: null is not allowed here; write a list"}},
		"all at once":           {"{\"a\": {},\n\"POST /a\": {\"x\": 1},\n\"POST /b\": {\"name\": 1}}", []string{"line 1:", "line 2, POST /a:", "line 3, POST /b:"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := LoadAnnotations(strings.NewReader(tt.file))
			if err == nil || got != nil {
				t.Fatalf("accepted: %v", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), "middleware: annotations, "+want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines != len(tt.want) {
				t.Errorf("%d faults, want %d: %v", lines, len(tt.want), err)
			}
		})
	}
}

func TestLoadAnnotationsTellsAReaderThatFails(t *testing.T) {
	if _, err := LoadAnnotations(brokenBody{}); err == nil {
		t.Error("accepted")
	}
}

// Who likes YAML decodes into the same types with a library of their own; those look for UnmarshalYAML(func(any) error)
// and UnmarshalText.
func TestUnavailableFromYAML(t *testing.T) {
	decode := func(document string) (u Unavailable, err error) {
		err = u.UnmarshalYAML(func(v any) error { return json.Unmarshal([]byte(document), v) })
		return u, err
	}
	if u, err := decode(`"refuse"`); err != nil || u.Pass != 0 {
		t.Errorf("refuse: %v, %v", u, err)
	}
	if u, err := decode(`{"pass": 3}`); err != nil || u.Pass != 3 {
		t.Errorf("pass: %v, %v", u, err)
	}
	for _, bad := range []string{`"pass"`, `{"pass": -1}`, `3`, `{}`} {
		if _, err := decode(bad); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// What is accepted reads the same after it is written again.
func FuzzLoadAnnotations(f *testing.F) {
	f.Add(fullFile)
	f.Add(`{"POST /a": {"lock": {"keys": ["a"], "on_unavailable": {"pass": 1}}}}`)
	f.Add(`{"POST /a/": {}, "GET  /": {"name": ""}}`)
	f.Fuzz(func(t *testing.T, file string) {
		got, err := LoadAnnotations(strings.NewReader(file))
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Errorf("no line in %q", err)
			}
			return
		}
		written, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := LoadAnnotations(strings.NewReader(string(written)))
		if err != nil {
			t.Fatalf("%s, written from %s: %v", written, file, err)
		}
		// Text that is not UTF-8 is replaced in both, a nil list and an empty one are the same.
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Errorf("%s, then %s", a, b)
		}
	})
}
