package keyesc

import (
	"net/url"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	for value, want := range map[string]string{
		"":         "",
		"1001":     "1001",
		"aZ9-._~":  "aZ9-._~",
		"a:b":      "a%3Ab",
		"{x}":      "%7Bx%7D",
		"a%2Fb":    "a%252Fb",
		"=":        "%3D",
		"\x00\xff": "%00%FF",
	} {
		if got := string(Append(nil, value)); got != want {
			t.Errorf("Append(%q) = %q, want %q", value, got, want)
		}
	}
	long := string(Append([]byte("k:"), strings.Repeat("a", 129)))
	if len(long) != len("k:=")+43 || long[2] != '=' {
		t.Errorf("a long value became %q, want = and 43 characters", long)
	}
}

func FuzzAppend(f *testing.F) {
	f.Add("a", "b")
	f.Add("a:b", "a%3Ab")
	f.Add(strings.Repeat("x", 128), strings.Repeat("x", 129))
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := string(Append(nil, a)), string(Append(nil, b))
		if (a == b) != (ea == eb) {
			t.Errorf("%q and %q gave %q and %q", a, b, ea, eb)
		}
		if strings.ContainsAny(ea, ":{}/ \r\n") {
			t.Errorf("%q gave %q: a separator got through", a, ea)
		}
		if len(a) <= maxLen {
			if back, err := url.PathUnescape(ea); err != nil || back != a {
				t.Errorf("%q gave %q, which reads as %q, %v", a, ea, back, err)
			}
		}
	})
}
