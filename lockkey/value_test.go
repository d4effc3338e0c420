package lockkey

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/keyesc"
)

func TestHeaderValues(t *testing.T) {
	long := strings.Repeat("a", maxRaw+1)
	tests := map[string]struct {
		template string
		lines    []string
		want     string
		reason   string
		absent   bool
	}{
		"one line":                     {template: "q:{header.x-merchant}", lines: []string{"77"}, want: "q:77"},
		"white space is no part of it": {template: "q:{header.X-Merchant}", lines: []string{" 77\t"}, want: "q:77"},
		"a list is one line":           {template: "q:{header.X-Merchant}", lines: []string{"7, 8"}, want: "q:7%2C%208"},
		"absent":                       {template: "q:{header.X-Merchant}", reason: "header X-Merchant is absent", absent: true},
		"empty":                        {template: "q:{header.X-Merchant}", lines: []string{""}, reason: "header X-Merchant is empty"},
		"white space":                  {template: "q:{header.X-Merchant}", lines: []string{"  "}, reason: "header X-Merchant is empty"},
		"twice":                        {template: "q:{header.X-Merchant}", lines: []string{"7", "7"}, reason: "header X-Merchant is there more than once"},
		"8 KiB":                        {template: "q:{header.X-Merchant}", lines: []string{long[1:]}, want: "q:" + string(keyesc.Append(nil, long[1:]))},
		"over 8 KiB":                   {template: "q:{header.X-Merchant}", lines: []string{long}, reason: "header X-Merchant is longer than 8 KiB"},
		"quoted":                       {template: "{header.X-Merchant|sf}", lines: []string{`"k 1"`}, want: "k%201"},
		"bare":                         {template: "{header.X-Merchant|sf}", lines: []string{`k1`}, want: "k1"},
		"open quote":                   {template: "{header.X-Merchant|sf}", lines: []string{`"k1`}, reason: "header X-Merchant has an open quote"},
		"parameters":                   {template: "{header.X-Merchant|sf}", lines: []string{`"k1";a=1`}, reason: "header X-Merchant has more than one value, or parameters"},
		"no integer":                   {template: "{header.X-Merchant|int}", lines: []string{`k1`}, reason: "header X-Merchant is not an integer of 64 bits"},
		"no UUID":                      {template: "{header.X-Merchant|uuid}", lines: []string{`k1`}, reason: "header X-Merchant is not a UUID"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			for _, line := range tt.lines {
				r.Header.Add("X-Merchant", line)
			}
			keys, err := parse(t, tt.template).Keys(r)
			check(t, answer{keys, err}, tt.want, tt.reason, ErrInvalid)
			checkAbsent(t, err, tt.absent)
		})
	}
}

func checkAbsent(t *testing.T, err error, want bool) {
	t.Helper()
	var failed *KeyError
	if errors.As(err, &failed) && failed.Absent() != want {
		t.Errorf("Absent() = %t for %v, want %t", failed.Absent(), err, want)
	}
}

func TestQueryValues(t *testing.T) {
	tests := map[string]struct {
		raw    string
		want   string
		reason string
		absent bool
	}{
		"one":                               {raw: "day=1", want: "q:1"},
		"among others":                      {raw: "a=2&day=1&b=3&&", want: "q:1"},
		"decoded":                           {raw: "day=a%20b+c", want: "q:a%20b%20c"},
		"a name decoded":                    {raw: "d%61y=1", want: "q:1"},
		"an equals sign in it":              {raw: "day=a=b", want: "q:a%3Db"},
		"another case is another":           {raw: "Day=2&day=1", want: "q:1"},
		"others malformed":                  {raw: "%zz=1&x=%zz&a;b=c&day=1", want: "q:1"},
		"no query":                          {raw: "", reason: "query parameter day is absent", absent: true},
		"absent":                            {raw: "days=1", reason: "query parameter day is absent", absent: true},
		"empty":                             {raw: "day=", reason: "query parameter day is empty"},
		"without a value":                   {raw: "day", reason: "query parameter day is empty"},
		"twice":                             {raw: "day=1&day=1", reason: "query parameter day is there more than once"},
		"twice, once empty":                 {raw: "day=1&day=", reason: "query parameter day is there more than once"},
		"twice, in two spellings":           {raw: "day=1&%64ay=2", reason: "query parameter day is there more than once"},
		"a bad escape":                      {raw: "day=%zz", reason: "query parameter day is malformed"},
		"a bad escape beside a good one":    {raw: "day=1&day=%zz", reason: "query parameter day is malformed"},
		"a semicolon":                       {raw: "day=1;a=2", reason: "query parameter day is malformed"},
		"after a semicolon, nobody sees it": {raw: "a=2;day=1", reason: "query parameter day is absent", absent: true},
	}
	template := parse(t, "q:{query.day}")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.URL.RawQuery = tt.raw
			keys, err := template.Keys(r)
			check(t, answer{keys, err}, tt.want, tt.reason, ErrInvalid)
			checkAbsent(t, err, tt.absent)
		})
	}
}

// What is taken from a query is the one value that the handler gets from r.URL.Query, and nothing else is.
func FuzzQueryOracle(f *testing.F) {
	for _, seed := range []string{"day=1", "day=1&day=2", "d%61y=a+b", "day=%zz", "a;day=1", "day;=1", "=&day=&", "day=%C3%A9"} {
		f.Add(seed)
	}
	template := parse(f, "{query.day}")
	f.Fuzz(func(t *testing.T, raw string) {
		values := (&url.URL{RawQuery: raw}).Query()["day"]
		key, err := template.Key(&http.Request{URL: &url.URL{RawQuery: raw}})
		switch {
		case err == nil && (len(values) != 1 || key != string(keyesc.Append(nil, values[0]))):
			t.Fatalf("%q gives %q, r.URL.Query has %q", raw, key, values)
		case err != nil && len(values) == 1 && values[0] != "" && len(values[0]) <= maxRaw && !strings.Contains(err.Error(), "malformed"):
			t.Fatalf("%q is refused with %v, r.URL.Query has %q", raw, err, values)
		}
	})
}

// statusError is an error of a registered value that knows its answer.
type statusError struct {
	status int
	typ    string
}

func (e *statusError) Error() string   { return "token of user 42 has expired" }
func (e *statusError) HTTPStatus() int { return e.status }

type typedError struct{ statusError }

func (e *typedError) ErrorType() string { return e.typ }

// A registered value that fails answers with its error's status, else 500; empty is 500; never 400.
func TestRegisteredValues(t *testing.T) {
	plain := errors.New("token of user 42 has expired")
	tests := map[string]struct {
		template string
		value    string
		err      error
		want     string
		reason   string
		sentinel error
		typ      string
		status   int
	}{
		"a value": {value: "42", want: "user_balance:42"},
		"empty":   {value: "", reason: "registered value userID is empty", sentinel: ErrMisuse, typ: "misuse"},
		"not of its form": {
			template: "user_balance:{userID|int}", value: "x",
			reason: "registered value userID is not an integer of 64 bits", sentinel: ErrMisuse, typ: "misuse",
		},
		"too long": {
			value:  strings.Repeat("a", maxRaw+1),
			reason: "registered value userID is longer than 8 KiB", sentinel: ErrMisuse, typ: "misuse",
		},
		"fails": {err: plain, reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse"},
		"fails with 401": {
			err:    &statusError{status: 401},
			reason: "registered value userID failed", sentinel: ErrInvalid, typ: "invalid", status: 401,
		},
		"fails with 503": {
			err:    &statusError{status: 503},
			reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse", status: 503,
		},
		"fails with 503 and a type": {
			err:    &typedError{statusError{status: 503, typ: "unavailable"}},
			reason: "registered value userID failed", sentinel: ErrMisuse, typ: "unavailable", status: 503,
		},
		"fails with a type alone": {
			err:    fault.New(fault.Invalid, "token of user 42 has expired"),
			reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse",
		},
		"fails with a status inside": {
			err:    errors.Join(plain, &statusError{status: 403}),
			reason: "registered value userID failed", sentinel: ErrInvalid, typ: "invalid", status: 403,
		},
		"fails with 200": {err: &statusError{status: 200}, reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse"},
		"fails with 0":   {err: &statusError{}, reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse"},
		"fails with 600": {err: &statusError{status: 600}, reason: "registered value userID failed", sentinel: ErrMisuse, typ: "misuse"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.template == "" {
				tt.template = "user_balance:{userID}"
			}
			value := func(*http.Request) (string, error) { return tt.value, tt.err }
			keys, err := parse(t, tt.template, WithValue("userID", value)).Keys(httptest.NewRequest(http.MethodPost, "/", nil))
			check(t, answer{keys, err}, tt.want, tt.reason, tt.sentinel)
			checkAbsent(t, err, false)
			var failed *KeyError
			if !errors.As(err, &failed) {
				return
			}
			if failed.ErrorType() != tt.typ || failed.HTTPStatus() != tt.status {
				t.Errorf("type %q, status %d; want %q, %d", failed.ErrorType(), failed.HTTPStatus(), tt.typ, tt.status)
			}
			if tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%v does not wrap the value's error", err)
			}
			if strings.Contains(err.Error(), "42") {
				t.Errorf("%q shows what the value's error says", err)
			}
		})
	}
}

// A registered value counts where the route has a param of the same name and nobody called Check.
func TestRegisteredValueBeforeParam(t *testing.T) {
	keys, err := parse(t, "x:{id}", WithValue("id", fixed("9"))).Keys(routed(t, "/{id}", "/1"))
	check(t, answer{keys, err}, "x:9", "", nil)
}
