package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// hinted is an error with a wait.
type hinted struct {
	error
	wait time.Duration
}

func (h hinted) RetryAfter() time.Duration { return h.wait }
func (h hinted) Unwrap() error             { return h.error }

func TestEveryErrorTypeHasARow(t *testing.T) {
	for _, typ := range fault.All() {
		answer, ok := rows[typ]
		if !ok {
			t.Errorf("%s has no row", typ)
			continue
		}
		if answer.title == "" || !strings.HasSuffix(answer.detail, ".") || http.StatusText(answer.status) == "" {
			t.Errorf("%s: row %+v; want a status, a title and a sentence", typ, answer)
		}
		if typ.Failure() != (answer.status >= 500) {
			t.Errorf("%s is answered %d, but Failure() = %v", typ, answer.status, typ.Failure())
		}
	}
	if len(rows) != len(fault.All()) {
		t.Errorf("%d rows for %d types", len(rows), len(fault.All()))
	}
}

// The statuses that architecture, docs and clients rely on.
func TestStatusOfEachType(t *testing.T) {
	want := map[int][]fault.Type{
		400: {fault.Invalid, fault.KeyMalformed, fault.KeyMissing, fault.TooManyKeys},
		404: {fault.NotFound},
		409: {
			fault.AlreadyConfirmed, fault.AlreadyReleased, fault.Duplicate, fault.Ended, fault.InFlight, fault.Insufficient, fault.Interrupted, fault.NotLanded,
			fault.LimitReached, fault.NotHeld, fault.NotStarted, fault.Paused, fault.Released, fault.StaleFence, fault.VersionConflict, fault.Withdrawn,
		},
		413: {fault.BodyTooLarge},
		415: {fault.BodyEncoding},
		422: {fault.Mismatch},
		429: {fault.Busy, fault.RateLimited},
		500: {fault.Internal, fault.LeaseReleased, fault.Misuse, fault.Unguarded},
		503: {
			fault.Closed, fault.Conflict, fault.Corrupt, fault.ForeignKey, fault.Lost, fault.NotWarmed, fault.Overloaded, fault.Unavailable,
			fault.UnknownOutcome,
		},
	}
	seen := 0
	for status, types := range want {
		for _, typ := range types {
			seen++
			if got := Describe(fault.New(typ, "x")); got.Status != status || got.Code != string(typ) || got.Type != "urn:holdfast:problem:"+string(typ) {
				t.Errorf("%s: %+v, want status %d", typ, got, status)
			}
		}
	}
	if seen != len(fault.All()) {
		t.Errorf("the table of this test has %d types, the list %d", seen, len(fault.All()))
	}
}

func TestDescribe(t *testing.T) {
	unknown := Problem{
		Type: "urn:holdfast:problem:internal", Title: "Internal error", Status: 500, Detail: "Something went wrong.", Code: "internal",
	}
	busy := Problem{
		Type: "urn:holdfast:problem:busy", Title: "Busy", Status: 429, Code: "busy", Retryable: true, RetryAfter: time.Second,
		Detail: "Another request works on the same thing. Try again later.",
	}
	with := func(p Problem, change func(*Problem)) Problem { change(&p); return p }
	tests := map[string]struct {
		err  error
		want Problem
	}{
		"nil":                         {nil, unknown},
		"an error without a type":     {errors.New("dial tcp 10.0.0.1:6379: password wrong"), unknown},
		"a type that is not ours":     {fault.New("teapot", "x"), unknown},
		"wrapped":                     {fmt.Errorf("more: %w", fault.New(fault.Busy, "x")), busy},
		"a wait below a second":       {hinted{fault.New(fault.Busy, "x"), time.Millisecond}, busy},
		"a wait":                      {hinted{fault.New(fault.Busy, "x"), 3500 * time.Millisecond}, with(busy, func(p *Problem) { p.RetryAfter = 3500 * time.Millisecond })},
		"a wait beyond a minute":      {hinted{fault.New(fault.Busy, "x"), time.Hour}, with(busy, func(p *Problem) { p.RetryAfter = time.Minute })},
		"another status on this rule": {&refusal{sentinel: fault.New(fault.Busy, "x"), status: 423}, with(busy, func(p *Problem) { p.Status = 423 })},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Describe(tt.err)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestAWaitOnANoIsIgnored(t *testing.T) {
	err := hinted{fault.New(fault.Insufficient, "stock: not enough"), 5 * time.Second}
	rec := httptest.NewRecorder()
	WriteProblem(rec, httptest.NewRequest(http.MethodPost, "/", nil), err)
	if got, ok := rec.Header()["Retry-After"]; ok || Describe(err).RetryAfter != 0 {
		t.Errorf("Retry-After %q on a sold out: it will not be otherwise in 5 s", got)
	}
}

// Whole seconds, rounded up, 1 to 60; on 429 and 503 up to two more, so that the refused do not return in step.
func TestRetryAfter(t *testing.T) {
	tests := map[string]struct {
		typ        fault.Type
		wait       time.Duration
		from, upTo int
	}{
		"in flight has no jitter":    {fault.InFlight, time.Second, 1, 1},
		"busy, default":              {fault.Busy, 0, 1, 3},
		"busy, rounded up":           {fault.Busy, 4001 * time.Millisecond, 5, 7},
		"busy, never beyond 60":      {fault.Busy, time.Hour, 58, 60},
		"unavailable":                {fault.Unavailable, 0, 1, 3},
		"in flight, never beyond 60": {fault.InFlight, time.Hour, 60, 60},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			seen := map[int]bool{}
			for range 200 {
				rec := httptest.NewRecorder()
				WriteProblem(rec, httptest.NewRequest(http.MethodPost, "/", nil), hinted{fault.New(tt.typ, "x"), tt.wait})
				s, err := strconv.Atoi(rec.Header().Get("Retry-After"))
				if err != nil || s < tt.from || s > tt.upTo {
					t.Fatalf("Retry-After %q, want %d to %d", rec.Header().Get("Retry-After"), tt.from, tt.upTo)
				}
				seen[s] = true
			}
			if want := tt.upTo - tt.from + 1; len(seen) != want {
				t.Errorf("%d different values in 200 answers, want %d", len(seen), want)
			}
		})
	}
}

func TestWriteProblem(t *testing.T) {
	rec := httptest.NewRecorder()
	for name, value := range map[string]string{"Content-Length": "7", "Content-Encoding": "gzip", "Etag": `"1"`, "Cache-Control": "max-age=60", "Vary": "Origin"} {
		rec.Header().Set(name, value)
	}
	err := fmt.Errorf("user 42 of 10.0.0.1: %w", fault.New(fault.Insufficient, "gormplugin: not enough"))
	WriteProblem(rec, httptest.NewRequest(http.MethodPost, "/items/1001/orders", nil), err)

	want := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}, "Vary": {"Origin"}}
	if diff := cmp.Diff(want, rec.Header()); rec.Code != 409 || diff != "" {
		t.Errorf("status %d, headers -want +got\n%s", rec.Code, diff)
	}
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	members := map[string]any{
		"type": "urn:holdfast:problem:insufficient", "title": "Not enough", "status": 409.0, "detail": "There is not enough left.",
		"code": "insufficient", "retryable": false,
	}
	if diff := cmp.Diff(members, got); diff != "" {
		t.Errorf("body -want +got\n%s", diff)
	}
}

func TestWriteProblemOnHEADHasNoBody(t *testing.T) {
	rec := httptest.NewRecorder()
	WriteProblem(rec, httptest.NewRequest(http.MethodHead, "/", nil), fault.New(fault.NotFound, "x"))
	if rec.Code != 404 || rec.Body.Len() != 0 {
		t.Errorf("status %d, body %q", rec.Code, rec.Body)
	}
}

func TestWriteProblemLeavesAnAnswerThatHasBegunAlone(t *testing.T) {
	rec := httptest.NewRecorder()
	w := watch(rec)
	w.WriteHeader(http.StatusCreated)
	WriteProblem(w, httptest.NewRequest(http.MethodPost, "/", nil), fault.New(fault.Lost, "x"))
	if rec.Code != 201 || rec.Body.Len() != 0 {
		t.Errorf("status %d, body %q, want the 201 alone", rec.Code, rec.Body)
	}
}

// A writer whose Status says 200 before anything is written must not turn a refusal into an empty 200.
func TestWriteProblemDoesNotBelieveAnyStatusMethod(t *testing.T) {
	rec := httptest.NewRecorder()
	WriteProblem(optimist{rec}, httptest.NewRequest(http.MethodPost, "/", nil), fault.New(fault.Busy, "x"))
	if rec.Code != 429 {
		t.Errorf("status %d, want 429", rec.Code)
	}
}

type optimist struct{ http.ResponseWriter }

func (optimist) Status() int { return 200 }

// Code that got only "context canceled" is answered by what has cancelled it.
func TestWriteProblemTellsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fault.New(fault.Lost, "lock: lost"))
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
	rec := httptest.NewRecorder()
	WriteProblem(rec, r, fmt.Errorf("query: %w", ctx.Err()))
	if rec.Code != 503 || !strings.Contains(rec.Body.String(), `"code":"lost"`) {
		t.Errorf("status %d, body %s, want 503 lost", rec.Code, rec.Body)
	}
}

// A handler that calls holdfast wrongly, on a route without an idempotency key say, is told about in the log, with what to do; an
// error of the service's own is not.
func TestMisuseInAHandlerIsLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for err, want := range map[error]string{
		fault.New(fault.Misuse, "stock: no request id: mount Dedup on the route"): "mount Dedup on the route",
		errors.New("secret"): "",
		fault.New(fault.Insufficient, "stock: not enough left"): "",
	} {
		log.Reset()
		WriteProblem(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", nil), err)
		if got := log.String(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%v: log %q, want %q", err, got, want)
		}
	}
}
