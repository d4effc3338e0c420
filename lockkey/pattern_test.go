package lockkey

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// chiKeys returns the keys that chi reports for a request that matches the pattern; false when chi refuses the pattern
// or no path that the test can think of matches it.
func chiKeys(pattern string) (keys []string, matched bool) {
	router := chi.NewRouter()
	registered := func() (ok bool) {
		defer func() { ok = recover() == nil }()
		router.Post(pattern, func(_ http.ResponseWriter, r *http.Request) {
			keys, matched = slices.Clone(chi.RouteContext(r.Context()).URLParams.Keys), true
		})
		return
	}()
	if !registered {
		return nil, false
	}
	for _, value := range []string{"7", "x", "abc", "12", "123", "0a", "-", "{", "}", ":"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.URL.Path = fill(pattern, value)
		if router.ServeHTTP(httptest.NewRecorder(), r); matched {
			return keys, true
		}
	}
	return nil, false
}

// fill puts the value where the pattern has a param or a wildcard.
func fill(pattern, value string) string {
	var path strings.Builder
	depth := 0
	for _, c := range pattern {
		switch {
		case c == '{':
			if depth++; depth == 1 {
				path.WriteString(value)
			}
		case c == '}' && depth > 0:
			depth--
		case depth == 0 && c == '*':
			path.WriteString(value)
		case depth == 0:
			path.WriteRune(c)
		}
	}
	return path.String()
}

// The names that are read from a pattern are the keys that chi reports for it.
func FuzzPatternParams(f *testing.F) {
	for _, seed := range []string{
		"/", "/items/{itemID}", "/{a}/{b}/*", "/{id:[0-9]+}", "/{id:[0-9]{1,3}}/x/{y}", "/{a}-{b}", "/{a:}", "/{}", "/*", "/x*", "/{a}{b}",
		"/{a:x|y}", "/{a", "/a}", "/{a}/{a}", "/{a:\\{\\}}", "/{a:{}}/{b}", "/{path...}", "/{é}", "/{a.b}", "/{a:[}]}", "/a}/{b}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		names := patternNames(pattern) // never panics
		want, ok := chiKeys(pattern)
		if ok && !slices.Equal(names, want) {
			t.Fatalf("patternNames(%q) = %q, chi reports %q", pattern, names, want)
		}
	})
}
