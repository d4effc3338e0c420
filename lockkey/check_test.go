package lockkey

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckAccepts(t *testing.T) {
	tests := map[string]struct{ template, method, pattern string }{
		"a literal":                    {"nightly", "POST", "/"},
		"a param":                      {"x:{id}", "POST", "/items/{id}"},
		"a param with an expression":   {"x:{id}", "POST", `/items/{id:[a-z]{3}}/x`},
		"two params":                   {"x:{shop}:{id}", "POST", "/{shop}/items/{id}"},
		"the param of another level":   {"x:{id}", "POST", "/{shop}/{id}/{shop}"},
		"a registered value":           {"x:{userID}", "POST", "/items/{id}"},
		"the wildcard":                 {"x:{*}", "POST", "/files/*"},
		"a header on any method":       {"x:{header.A}", "GET", "/"},
		"a query parameter on any":     {"x:{query.a}", "DELETE", "/"},
		"a body on POST":               {"x:{body.a}", "POST", "/"},
		"a body on PUT":                {"x:{body.a}", "PUT", "/"},
		"a body on PATCH":              {"x:{body.a}", "PATCH", "/"},
		"a body on QUERY":              {"x:{body.a}", "QUERY", "/"},
		"a body, method not said":      {"x:{body.a}", "", "/"},
		"net/http: a param":            {"x:{id}", "POST", "/items/{id}/{$}"},
		"net/http: the rest":           {"x:{path}", "POST", "/items/{path...}"},
		"no template for every param":  {"x:{id}", "POST", "/{shop}/items/{id}/*"},
		"a param named as the pattern": {"x:{id-2}", "POST", "/{id-2}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := parse(t, tt.template, WithValue("userID", fixed("42"))).Check(tt.method, tt.pattern); err != nil {
				t.Errorf("Check(%q, %q) = %v, want no error", tt.method, tt.pattern, err)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := map[string]struct{ template, method, pattern, want string }{
		"an unknown param": {
			"x:{itemId}", "POST", "/items/{itemID}",
			`lockkey: template "x:{itemId}" on POST /items/{itemID}: {itemId} is no param of the route; write {itemID}, or register itemId with WithValue`,
		},
		"an unknown param of several": {
			"x:{id|int}", "POST", "/{shop}/{item:[0-9]+}/*",
			`lockkey: template "x:{id|int}" on POST /{shop}/{item:[0-9]+}/*: {id|int} is no param of the route; write {shop} or {item} or {*}, or register id with WithValue`,
		},
		"an unknown param of none": {
			"x:{id}", "POST", "/items",
			`lockkey: template "x:{id}" on POST /items: {id} is no param of the route; register id with WithValue; the route has no params`,
		},
		"a name inside an expression": {
			"x:{2}", "POST", "/{id:[0-9]{2}}",
			`lockkey: template "x:{2}" on POST /{id:[0-9]{2}}: {2} is no param of the route; write {id}, or register 2 with WithValue`,
		},
		"one name on two levels": {
			"x:{id}", "POST", "/shops/{id}/items/{id:[0-9]+}",
			`lockkey: template "x:{id}" on POST /shops/{id}/items/{id:[0-9]+}: {id} is a param on two levels of the route, and only the inner one can be read; rename one of them`,
		},
		"a param and registered": {
			"x:{userID}", "POST", "/users/{userID}",
			`lockkey: template "x:{userID}" on POST /users/{userID}: {userID} is ambiguous: both a param of the route and a registered value; rename one of them`,
		},
		"a wildcard that is not there": {
			"x:{*}", "POST", "/files/{id}",
			`lockkey: template "x:{*}" on POST /files/{id}: {*} needs a pattern that ends in "/*"; write the name of a param`,
		},
		"a wildcard inside a segment": {
			"x:{*}", "POST", "/files*",
			`lockkey: template "x:{*}" on POST /files*: {*} needs a pattern that ends in "/*"; write the name of a param`,
		},
		"a wildcard further out": {
			"x:{*}", "POST", "/files/*/{id}",
			`lockkey: template "x:{*}" on POST /files/*/{id}: {*} needs a pattern that ends in "/*"; write the name of a param`,
		},
		"a body on GET": {
			"x:{body.a}", "GET", "/",
			`lockkey: template "x:{body.a}" on GET /: {body.a} on a method without a body; take the key from the path, the query or a header`,
		},
		"a body on DELETE": {
			"x:{body.a}", "DELETE", "/",
			`lockkey: template "x:{body.a}" on DELETE /: {body.a} on a method without a body; take the key from the path, the query or a header`,
		},
		"method not said": {
			"x:{id}", "", "/{a}",
			`lockkey: template "x:{id}" on /{a}: {id} is no param of the route; write {a}, or register id with WithValue`,
		},
		"all faults at once": {
			"{id}:{body.a}", "HEAD", "/",
			`lockkey: template "{id}:{body.a}" on HEAD /: {id} is no param of the route; register id with WithValue; the route has no params` + "\n" +
				`lockkey: template "{id}:{body.a}" on HEAD /: {body.a} on a method without a body; take the key from the path, the query or a header`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := parse(t, tt.template, WithValue("userID", fixed("42"))).Check(tt.method, tt.pattern)
			if err == nil {
				t.Fatalf("Check(%q, %q) = nil, want an error", tt.method, tt.pattern)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("Check says (-want +got):\n%s", diff)
			}
			var fault *CheckError
			if !errors.As(err, &fault) || fault.Template != tt.template || fault.Method != tt.method || fault.Pattern != tt.pattern || fault.Placeholder == "" {
				t.Errorf("%#v, want a *CheckError with template and route", err)
			}
		})
	}
}

func TestBodyOnMethodsWithoutOne(t *testing.T) {
	template := parse(t, "x:{body.a}")
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions, http.MethodTrace, http.MethodConnect, "get"} {
		if template.Check(method, "/") == nil {
			t.Errorf("Check(%q) = nil, want an error", method)
		}
	}
}

// A param of digits that the handler reads as a number, and the lock as text: legal, and hardly meant.
func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		template, pattern string
		want              bool
	}{
		"digits":                      {"x:{id}", "/{id:[0-9]+}", true},
		"digits, anchored":            {"x:{id}", `/{id:^\d+$}`, true},
		"digits, a choice":            {"x:{id}", `/{id:(\d|\d\d)}`, true},
		"digits, up to three":         {"x:{id}", `/a/{id:[0-9]{1,3}}/b`, true},
		"digits with a suffix":        {"x:{id|int}", "/{id:[0-9]+}", false},
		"digits as an sf":             {"x:{id|sf}", "/{id:[0-9]+}", true},
		"another param":               {"x:{id}", "/{id}/{n:[0-9]+}", false},
		"no expression":               {"x:{id}", "/{id}", false},
		"no leading zero":             {"x:{id}", "/{id:[1-9][0-9]*}", false},
		"a fixed length":              {"x:{id}", "/{id:[0-9]{4}}", false},
		"letters, too":                {"x:{id}", "/{id:[0-9a-f]+}", false},
		"signs, too":                  {"x:{id}", "/{id:[+-9]+}", false},
		"anything":                    {"x:{id}", "/{id:.+}", false},
		"a literal":                   {"x:{id}", "/{id:7}", false},
		"an expression that is wrong": {"x:{id}", "/{id:[0-9}", false},
		"a registered value":          {"x:{userID}", "/{userID:[0-9]+}", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			if tt.want {
				template := tt.template[2:]
				want = []string{template + " is a number that the route also takes with leading zeros, which makes it another key; write {id|int}"}
			}
			got := parse(t, tt.template, WithValue("userID", fixed("42"))).Warnings(tt.pattern)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Warnings(%q) (-want +got):\n%s", tt.pattern, diff)
			}
		})
	}
}
