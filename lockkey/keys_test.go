package lockkey

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
)

func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
}

// A request of user 42 asks for exactly user_balance:42; package lock puts its prefix before it (A02).
func TestKeyIsTheRenderedTemplate(t *testing.T) {
	for template, want := range map[string]string{
		"user_balance:{userID}": "user_balance:42",
		"nightly-report":        "nightly-report",
		"{userID}:{userID}":     "42:42",
		"a:{userID}:b":          "a:42:b",
	} {
		keys, err := parse(t, template, WithValue("userID", fixed("42"))).Keys(httptest.NewRequest(http.MethodPost, "/", nil))
		check(t, answer{keys, err}, want, "", nil)
	}
}

// All channels to one merchant share its key: by path, by body, and by a registered value behind an API key (B02).
func TestChannelsShareAKey(t *testing.T) {
	byPath, err := parse(t, "quota:{merchantID|int}").Key(routed(t, "/merchants/{merchantID}", "/merchants/0077"))
	if err != nil {
		t.Fatal(err)
	}
	byBody, err := parse(t, "quota:{body.merchant|int}").Key(post(`{"merchant": 77}`))
	if err != nil {
		t.Fatal(err)
	}
	ofKey := func(r *http.Request) (string, error) {
		return map[string]string{"k-1": "77"}[r.Header.Get("X-Api-Key")], nil
	}
	r := post("")
	r.Header.Set("X-Api-Key", "k-1")
	byValue, err := parse(t, "quota:{merchant|int}", WithValue("merchant", ofKey)).Key(r)
	if err != nil {
		t.Fatal(err)
	}
	if byPath != "quota:77" || byBody != byPath || byValue != byPath {
		t.Errorf("by path %q, by body %q, by value %q; want quota:77 three times", byPath, byBody, byValue)
	}
}

// items returns a body with n skus, the numbers from to from+n-1.
func items(from, n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"sku": %d}`, from+i))
	}
	return `{"items": [` + strings.Join(list, ",") + `]}`
}

func TestSeveralKeys(t *testing.T) {
	tests := map[string]struct {
		template string
		body     string
		want     []string
	}{
		"sorted by bytes":                  {"sku:{body.items.#}", `{"items": ["b", "a", "B", 10, 9]}`, []string{"sku:10", "sku:9", "sku:B", "sku:a", "sku:b"}},
		"without duplicates":               {"sku:{body.items.#}", `{"items": ["a", "b", "a", "b"]}`, []string{"sku:a", "sku:b"}},
		"7 and \"7\" are one":              {"sku:{body.items.#}", `{"items": [7, "7"]}`, []string{"sku:7"}},
		"spellings are one":                {"sku:{body.items.#|int}", `{"items": ["07", 7, "+7"]}`, []string{"sku:7"}},
		"text on both sides":               {"s:{body.shop}:{body.items.#.sku}:x", `{"shop": 1, "items": [{"sku": 2}, {"sku": 1}]}`, []string{"s:1:1:x", "s:1:2:x"}},
		"one after the list":               {"{body.items.#}:{body.shop}", `{"shop": 1, "items": [2]}`, []string{"2:1"}},
		"32":                               {"sku:{body.items.#.sku}", items(10, 32), keysOf(10, 32)},
		"64 elements, 4 of them different": {"sku:{body.#}", "[" + strings.Repeat("10,11,12,", 21) + "13]", keysOf(10, 4)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(t, tt.template).Keys(post(tt.body))
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("error %v, keys (-want +got):\n%s", err, diff)
			}
		})
	}
}

func keysOf(from, n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("sku:%d", from+i))
	}
	return keys
}

func TestTooManyKeys(t *testing.T) {
	_, err := parse(t, "sku:{body.items.#.sku}").Keys(post(items(10, 33)))
	var failed *KeyError
	if !errors.Is(err, ErrTooManyKeys) || !errors.As(err, &failed) || failed.ErrorType() != "too_many_keys" || failed.Placeholder != "{body.items.#.sku}" {
		t.Errorf("33 keys: %v, want ErrTooManyKeys at {body.items.#.sku}", err)
	}
	// The limit is the rule's, over all of its templates.
	first, err := parse(t, "sku:{body.items.#.sku}").Keys(post(items(10, 32)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse(t, "sku:{header.X}").AppendKeys(slices.Clone(first), withHeader("X", "10"))
	if err != nil || len(again) != 32 {
		t.Errorf("the same key again: %d keys, %v; want 32", len(again), err)
	}
	_, err = parse(t, "sku:{header.X}").AppendKeys(first, withHeader("X", "99"))
	if !errors.Is(err, ErrTooManyKeys) || !errors.As(err, &failed) || failed.Placeholder != "" {
		t.Errorf("a 33rd key by another template: %v, want ErrTooManyKeys", err)
	}
}

func withHeader(name, value string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set(name, value)
	return r
}

// A transfer is one rule with two templates: its keys are one sorted list in either direction.
func TestAppendKeysOverTemplates(t *testing.T) {
	from, to := parse(t, "account:{body.from}"), parse(t, "account:{body.to}")
	for body, want := range map[string][]string{
		`{"from": "b", "to": "a"}`: {"account:a", "account:b"},
		`{"from": "a", "to": "b"}`: {"account:a", "account:b"},
		`{"from": "a", "to": "a"}`: {"account:a"},
	} {
		r := post(body)
		keys, err := from.AppendKeys(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if keys, err = to.AppendKeys(keys, r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	t.Run("what is in dst", func(t *testing.T) {
		keys, err := parse(t, "m").AppendKeys([]string{"z", "a", "z"}, post(""))
		if diff := cmp.Diff([]string{"a", "m", "z"}, keys); err != nil || diff != "" {
			t.Errorf("error %v, keys (-want +got):\n%s", err, diff)
		}
	})
	t.Run("every element", func(t *testing.T) {
		keys, err := parse(t, "{body.#}").AppendKeys([]string{"b"}, post(`["c", "a"]`))
		if diff := cmp.Diff([]string{"a", "b", "c"}, keys); err != nil || diff != "" {
			t.Errorf("error %v, keys (-want +got):\n%s", err, diff)
		}
	})
	t.Run("an error", func(t *testing.T) {
		if keys, err := from.AppendKeys([]string{"a"}, post("{}")); err == nil || keys != nil {
			t.Errorf("keys %q, %v; want no keys and an error", keys, err)
		}
	})
}

func TestKey(t *testing.T) {
	key, err := parse(t, "{header.Idempotency-Key|sf}", Single()).Key(withHeader("Idempotency-Key", `"k-1"`))
	if key != "k-1" || err != nil {
		t.Errorf("Key() = %q, %v; want k-1", key, err)
	}
	key, err = parse(t, "all", Scope()).Key(post(""))
	if key != "all" || err != nil {
		t.Errorf("Key() = %q, %v; want all", key, err)
	}
	key, err = parse(t, "{body.#}").Key(post("[1]"))
	if key != "" || !errors.Is(err, ErrMisuse) {
		t.Errorf("Key() with '#' = %q, %v; want ErrMisuse", key, err)
	}
}

// Absent is true only if the client has supplied nothing of the key: whoever tries must not be let through unprotected
// because the key is optional.
func TestAbsent(t *testing.T) {
	tests := map[string]struct {
		template string
		headers  map[string]string
		query    string
		body     string
		want     bool
	}{
		"no header":                         {template: "{header.A}", want: true},
		"no header beside a param":          {template: "{id}:{header.A}", want: true},
		"no header beside a value":          {template: "{user}:{header.A}", want: true},
		"empty header":                      {template: "{header.A}", headers: map[string]string{"A": ""}},
		"malformed header":                  {template: "{header.A|sf}", headers: map[string]string{"A": "a,b"}},
		"neither of two":                    {template: "{header.A}:{header.B}", want: true},
		"the first of two":                  {template: "{header.A}:{header.B}", headers: map[string]string{"A": "1"}},
		"the second of two":                 {template: "{header.A}:{header.B}", headers: map[string]string{"B": "1"}},
		"the second of two, empty":          {template: "{header.A}:{header.B}", headers: map[string]string{"B": ""}},
		"the second of two, malformed":      {template: "{header.A}:{header.B|sf}", headers: map[string]string{"B": "a b"}},
		"the query of header and query":     {template: "{header.A}:{query.b}", query: "b=1"},
		"neither header nor query":          {template: "{header.A}:{query.b}", query: "c=1", want: true},
		"the member of header and body":     {template: "{header.A}:{body.id}", body: `{"id": 1}`},
		"neither header nor member":         {template: "{header.A}:{body.id}", body: `{}`, want: true},
		"no body":                           {template: "{body.id}", want: true},
		"white space for a body":            {template: "{body.id}", body: " \r\n\t", want: true},
		"no member":                         {template: "{body.id}", body: `{"a": 1}`, want: true},
		"no object around the member":       {template: "{body.order.id}", body: `{"a": 1}`, want: true},
		"no such index":                     {template: "{body.0}", body: `[]`, want: true},
		"member is null":                    {template: "{body.id}", body: `{"id": null}`},
		"member is empty":                   {template: "{body.id}", body: `{"id": ""}`},
		"member is of another kind":         {template: "{body.id}", body: `{"id": 1.5}`},
		"member in another case":            {template: "{body.id}", body: `{"ID": 1}`},
		"member under null":                 {template: "{body.order.id}", body: `{"order": null}`},
		"body is no JSON":                   {template: "{body.id}", body: `id=1`},
		"body is no JSON, header is absent": {template: "{header.A}:{body.id}", body: `id=1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			router := chi.NewRouter()
			var got answer
			router.With(guard(parse(t, tt.template, WithValue("user", fixed("42"))), &got)).Post("/{id}", ok)
			r := httptest.NewRequest(http.MethodPost, "/7?"+tt.query, strings.NewReader(tt.body))
			for name, value := range tt.headers {
				r.Header.Set(name, value)
			}
			router.ServeHTTP(httptest.NewRecorder(), r)
			if !errors.Is(got.err, ErrInvalid) {
				t.Fatalf("keys %q, %v; want ErrInvalid", got.keys, got.err)
			}
			checkAbsent(t, got.err, tt.want)
		})
	}
}

// A Template is used by all requests of a route at once.
func TestTemplateIsSafeForConcurrentUse(t *testing.T) {
	template := parse(t, "s:{header.A}:{body.items.#}")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			want := fmt.Sprintf("s:%d:%d", i, i)
			for range 200 {
				r := post(fmt.Sprintf(`{"items": [%d]}`, i))
				r.Header.Set("A", fmt.Sprint(i))
				if keys, err := template.Keys(r); err != nil || len(keys) != 1 || keys[0] != want {
					t.Errorf("keys %q, %v; want %q", keys, err, want)
				}
			}
		})
	}
	wg.Wait()
}
