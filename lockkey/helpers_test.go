package lockkey

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
)

// parse parses a template that must be right.
func parse(tb testing.TB, template string, opts ...Option) *Template {
	tb.Helper()
	t, err := Parse(template, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// routed returns a request as the handler of a chi route sees it. chi takes its context back when the handler returns,
// so the request gets a copy.
func routed(tb testing.TB, pattern, target string) *http.Request {
	tb.Helper()
	var seen *http.Request
	router := chi.NewRouter()
	router.Post(pattern, func(_ http.ResponseWriter, r *http.Request) {
		rctx := chi.RouteContext(r.Context()).Clone()
		seen = r.WithContext(context.WithValue(context.Background(), chi.RouteCtxKey, rctx))
	})
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, target, nil))
	if seen == nil {
		tb.Fatalf("POST %s did not reach %s", target, pattern)
	}
	return seen
}
