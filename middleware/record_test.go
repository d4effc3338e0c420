package middleware

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordRoundTrip(t *testing.T) {
	fields := []field{{"Location", []string{"/orders/1"}}, {"Removed", nil}, {"Vary", []string{"A", "B, C", ""}}}
	for name, body := range map[string]string{"a body": "order 1", "no body": ""} {
		t.Run(name, func(t *testing.T) {
			var buf []byte
			if body != "" {
				buf = append(make([]byte, recordPrefix), body...)
			}
			got, gotBody, err := decodeRecord(encodeRecord(buf, fields))
			if diff := cmp.Diff(fields, got, cmp.AllowUnexported(field{})); err != nil || diff != "" || string(gotBody) != body {
				t.Errorf("body %q, error %v, headers -want +got\n%s", gotBody, err, diff)
			}
		})
	}
}

func TestChangedHeaders(t *testing.T) {
	base := http.Header{"Outside": {"1"}, "Vary": {"Origin"}, "Removed": {"x"}, "Date": {"now"}}
	head := base.Clone()
	head.Add("Vary", "Accept")
	head.Del("Removed")
	head["Lines"] = []string{"a", "b"}
	for _, never := range []string{
		"Set-Cookie", "Authorization", "WWW-Authenticate", "Proxy-Authenticate", "Proxy-Anything", "Connection", "Keep-Alive", "TE",
		"Transfer-Encoding", "Upgrade", "Date", "Age", "Content-Length", "Retry-After", "X-Request-Id", "traceparent", "tracestate",
		"Server-Timing", "Trailer",
	} {
		head.Set(never, "secret")
	}
	head["set-cookie"] = []string{"secret"} // as one who writes into the map may spell it
	head.Set("Connection", "close, X-Hop")
	head.Set("X-Hop", "1")
	head.Set("Trailer", "Checksum")
	head.Set("Checksum", "1")
	head[http.TrailerPrefix+"Other"] = []string{"1"}

	want := []field{{"Lines", []string{"a", "b"}}, {"Removed", nil}, {"Vary", []string{"Origin", "Accept"}}}
	if diff := cmp.Diff(want, changed(base, head), cmp.AllowUnexported(field{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestReplayedHeadersReplaceThoseFromOutside(t *testing.T) {
	h := http.Header{"Vary": {"Origin"}, "Removed": {"x"}, "Fresh": {"2"}}
	apply(h, []field{{"Removed", nil}, {"Vary", []string{"Origin", "Accept"}}})
	if diff := cmp.Diff(http.Header{"Vary": {"Origin", "Accept"}, "Fresh": {"2"}}, h); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What is read from Redis is not trusted: no panic, no giant allocation, and what is accepted is what was written.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(encodeRecord(nil, nil))
	f.Add(encodeRecord([]byte("\x00body"), []field{{"Vary", []string{"A", "B"}}, {"X", nil}}))
	f.Add([]byte{2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, body, err := decodeRecord(data)
		if err != nil {
			return
		}
		again := encodeRecord(append(make([]byte, recordPrefix), body...), fields)
		fields2, body2, err := decodeRecord(again)
		if diff := cmp.Diff(fields, fields2, cmp.AllowUnexported(field{})); err != nil || diff != "" || !bytes.Equal(body, body2) {
			t.Errorf("read, written and read again: %v\n%s", err, diff)
		}
	})
}
