package middleware

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
)

func fingerprintFor(method, target, contentType, body string) string {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return string(fingerprint(r, []byte(body)))
}

const twoParts = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n2\r\n--b--\r\n"

func TestFingerprintsOfOneRequest(t *testing.T) {
	tests := map[string][2]string{
		"escaped letter":   {fingerprintFor("POST", "/a/7", "", "x"), fingerprintFor("POST", "/a/%37", "", "x")},
		"case of escapes":  {fingerprintFor("POST", "/a%2fb", "", "x"), fingerprintFor("POST", "/a%2Fb", "", "x")},
		"escaped or plain": {fingerprintFor("POST", "/a:b", "", "x"), fingerprintFor("POST", "/a%3Ab", "", "x")},
		"content type":     {fingerprintFor("POST", "/a", "application/json", "{}"), fingerprintFor("POST", "/a", "text/plain", "{}")},
		"boundary": {
			fingerprintFor("POST", "/a", "multipart/form-data; boundary=b", twoParts),
			fingerprintFor("POST", "/a", "multipart/form-data; boundary=other", strings.ReplaceAll(twoParts, "--b", "--other")),
		},
	}
	for name, f := range tests {
		if f[0] != f[1] {
			t.Errorf("%s: two fingerprints", name)
		}
	}
}

// Whatever the request asks for is in its fingerprint, and no byte can wander from one part to the next.
func TestFingerprintsOfDifferentRequests(t *testing.T) {
	form := "multipart/form-data; boundary=b"
	all := map[string]string{
		"first":                fingerprintFor("POST", "/a?q=1", "", "body"),
		"method":               fingerprintFor("PATCH", "/a?q=1", "", "body"),
		"path":                 fingerprintFor("POST", "/b?q=1", "", "body"),
		"query":                fingerprintFor("POST", "/a?q=2", "", "body"),
		"order of the query":   fingerprintFor("POST", "/a?q=1&r=1", "", "body"),
		"other order":          fingerprintFor("POST", "/a?r=1&q=1", "", "body"),
		"body":                 fingerprintFor("POST", "/a?q=1", "", "Body"),
		"no body":              fingerprintFor("POST", "/a?q=1", "", ""),
		"query in the path":    fingerprintFor("POST", "/a%3Fq=1", "", "body"),
		"query in the body":    fingerprintFor("POST", "/a", "", "q=1body"),
		"a slash":              fingerprintFor("POST", "/x/y", "", ""),
		"an escaped slash":     fingerprintFor("POST", "/x%2Fy", "", ""),
		"a percent sign":       fingerprintFor("POST", "/x%252Fy", "", ""),
		"parts":                fingerprintFor("POST", "/f", form, twoParts),
		"a part's content":     fingerprintFor("POST", "/f", form, strings.Replace(twoParts, "1", "3", 1)),
		"a part's header":      fingerprintFor("POST", "/f", form, strings.Replace(twoParts, `"a"`, `"c"`, 1)),
		"order of parts":       fingerprintFor("POST", "/f", form, strings.NewReplacer("1", "2", "2", "1", `"a"`, `"b"`, `"b"`, `"a"`).Replace(twoParts)),
		"one part of two":      fingerprintFor("POST", "/f", form, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n12\r\n--b--\r\n"),
		"not a form after all": fingerprintFor("POST", "/f", form, "no parts"),
		"no boundary":          fingerprintFor("POST", "/f", "multipart/form-data", twoParts),
	}
	seen := map[string]string{}
	for name, f := range all {
		if other, ok := seen[f]; ok {
			t.Errorf("%q and %q have one fingerprint", name, other)
		}
		seen[f] = name
	}
}

// A form that is cut off or broken counts by its bytes; nothing panics, and one body has one fingerprint.
func FuzzFingerprint(f *testing.F) {
	f.Add("multipart/form-data; boundary=b", twoParts)
	f.Add("multipart/mixed; boundary=\"", "--\r\n")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		r := httptest.NewRequest("POST", "/a", nil)
		r.Header.Set("Content-Type", contentType)
		a, b := fingerprint(r, []byte(body)), fingerprint(r, []byte(body))
		if len(a) != 32 || !bytes.Equal(a, b) {
			t.Errorf("%x and %x", a, b)
		}
	})
}
