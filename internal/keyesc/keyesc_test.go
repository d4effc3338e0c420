package keyesc

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	long := strings.Repeat("a", 129)
	sum := sha256.Sum256([]byte(long))
	tests := map[string]struct{ value, want string }{
		"safe bytes stay":            {"AZaz09-._~", "AZaz09-._~"},
		"the separator":              {"a:b", "a%3Ab"},
		"braces, of a hash tag":      {"{1}", "%7B1%7D"},
		"the escape itself":          {"%41", "%2541"},
		"the mark of a hash":         {"=x", "%3Dx"},
		"slash, space, plus":         {"/ +", "%2F%20%2B"},
		"upper-case hexadecimal":     {"\xab\xff", "%AB%FF"},
		"bytes, not runes":           {"é", "%C3%A9"},
		"NUL and line feed":          {"\x00\n", "%00%0A"},
		"128 bytes are written out":  {strings.Repeat("a", 128), strings.Repeat("a", 128)},
		"128 bytes that grow by it":  {strings.Repeat(":", 128), strings.Repeat("%3A", 128)},
		"129 bytes are hashed":       {long, "=" + base64.RawURLEncoding.EncodeToString(sum[:])},
		"the bytes of a hash, typed": {"=" + base64.RawURLEncoding.EncodeToString(sum[:]), "%3D" + base64.RawURLEncoding.EncodeToString(sum[:])},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := string(Append([]byte("x:"), tt.value)); got != "x:"+tt.want {
				t.Errorf("Append(%q) = %q, want %q", tt.value, got, "x:"+tt.want)
			}
		})
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
