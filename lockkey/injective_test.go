package lockkey

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

var escaped = regexp.MustCompile(`^(?:([A-Za-z0-9._~-]|%[0-9A-F]{2})+|=[A-Za-z0-9_-]{43})$`)

// Two requests have one key exactly when their values are the same, whatever bytes the values have; what a value
// renders to is in the safe set.
func FuzzKeyInjective(f *testing.F) {
	templates := []string{"{a}:{b}", "s:{a}/{b}:t", "{a}:x:{b}", "=%41{a}=:%{b}=", "{a} {b}", "{a}-:-{b}"}
	long := strings.Repeat("x", 129)
	f.Add(uint8(0), "a:b", "c", "a", "b:c")
	f.Add(uint8(1), "a/b", "c", "a", "b/c")
	f.Add(uint8(2), "a:x:b", "c", "a", "b:x:c")
	f.Add(uint8(3), "x", "25:", "x%", ":")
	f.Add(uint8(4), "a b", "%20", "a%20b", " ")
	f.Add(uint8(5), long, long+"y", string(keyesc.Append(nil, long)), long)
	f.Add(uint8(0), "%3A", "b", ":", "b")
	f.Fuzz(func(t *testing.T, shape uint8, a1, b1, a2, b2 string) {
		template := templates[int(shape)%len(templates)]
		key := func(a, b string) string {
			parsed := parse(t, template, WithValue("a", fixed(a)), WithValue("b", fixed(b)))
			got, err := parsed.Key(httptest.NewRequest(http.MethodPost, "/", nil))
			if bad := a == "" || b == "" || len(a) > maxRaw || len(b) > maxRaw; bad != (err != nil) {
				t.Fatalf("%q with %q and %q: error %v, want one: %t", template, a, b, err, bad)
			}
			if strings.ContainsAny(got, "{}") {
				t.Fatalf("%q with %q and %q = %q, with a brace", template, a, b, got)
			}
			return got
		}
		differ := func(a1, b1, a2, b2 string) {
			k1, k2 := key(a1, b1), key(a2, b2)
			if same := a1 == a2 && b1 == b2; k1 != "" && k2 != "" && (k1 == k2) != same {
				t.Fatalf("%q: (%q, %q) gives %q and (%q, %q) gives %q", template, a1, b1, k1, a2, b2, k2)
			}
		}
		differ(a1, b1, a2, b2)
		differ(a1, b1, a1, b2)
		differ(a1, b1, a2, b1)
		if a1 != "" && len(a1) <= maxRaw {
			text := string(keyesc.Append(nil, a1))
			if !escaped.MatchString(text) {
				t.Fatalf("%q renders to %q, outside the safe set", a1, text)
			}
			differ(a1, b1, text, b1) // what a value renders to, sent as a value
		}
		// The same text around the separator, cut elsewhere.
		separator := template[strings.Index(template, "}")+1 : strings.LastIndex(template, "{")]
		whole := a1 + separator + b1
		for i := 0; i+len(separator) <= len(whole) && i < 512; i++ {
			if strings.HasPrefix(whole[i:], separator) {
				differ(a1, b1, whole[:i], whole[i+len(separator):])
			}
		}
	})
}

// A value with a suffix is still one key only for what is one value.
func TestKindsKeepValuesApart(t *testing.T) {
	for _, template := range []string{"x:{v|int}", "x:{v|uuid}", "x:{v|sf}", "x:{v}"} {
		seen := map[string]string{}
		for _, v := range []string{
			"1", "10", "-1", "-10", "9223372036854775807", "-9223372036854775808",
			"00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000010", "a", "A", "a:b", `"a;b"`,
		} {
			key, err := parse(t, template, WithValue("v", fixed(v))).Key(httptest.NewRequest(http.MethodPost, "/", nil))
			if errors.Is(err, ErrMisuse) {
				continue // not of that form
			}
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[key]; ok {
				t.Errorf("%s: %q and %q have one key %q", template, v, other, key)
			}
			seen[key] = v
		}
		if len(seen) < 2 {
			t.Errorf("%s: only %d values were of its form", template, len(seen))
		}
	}
}
