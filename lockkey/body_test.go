package lockkey

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// bodyOf returns a body of exactly n bytes whose member id is 7.
func bodyOf(n int) string {
	const head, tail = `{"id": 7, "pad": "`, `"}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestBodyLimits(t *testing.T) {
	tests := map[string]struct {
		request  func() *http.Request
		want     string
		reason   string
		sentinel error
		typ      string
	}{
		"64 KiB":          {request: func() *http.Request { return post(bodyOf(maxBody)) }, want: "x:7"},
		"64 KiB, chunked": {request: func() *http.Request { return chunked(bodyOf(maxBody)) }, want: "x:7"},
		"one byte more, announced": {
			request: func() *http.Request { return post(bodyOf(maxBody + 1)) },
			reason:  "the body is too large", sentinel: ErrBodyTooLarge, typ: "body_too_large",
		},
		"one byte more, chunked": {
			request: func() *http.Request { return chunked(bodyOf(maxBody + 1)) },
			reason:  "the body is too large", sentinel: ErrBodyTooLarge, typ: "body_too_large",
		},
		"over a MaxBytesReader's limit": {request: func() *http.Request {
			r := chunked(bodyOf(1000))
			r.Body = http.MaxBytesReader(nil, r.Body, 999)
			return r
		}, reason: "the body is too large", sentinel: ErrBodyTooLarge, typ: "body_too_large"},
		"identity": {request: func() *http.Request {
			r := post(`{"id": 7}`)
			r.Header.Set("Content-Encoding", "Identity")
			return r
		}, want: "x:7"},
		"gzip": {request: func() *http.Request {
			r := post(`{"id": 7}`)
			r.Header.Set("Content-Encoding", "gzip")
			return r
		}, reason: "the body has a Content-Encoding", sentinel: ErrBodyEncoding, typ: "body_encoding"},
		"gzip on a second line": {request: func() *http.Request {
			r := post(`{"id": 7}`)
			r.Header["Content-Encoding"] = []string{"identity", "gzip"}
			return r
		}, reason: "the body has a Content-Encoding", sentinel: ErrBodyEncoding, typ: "body_encoding"},
		"reading fails": {request: func() *http.Request {
			r := chunked("")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"id"`), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return r
		}, reason: "the body could not be read", sentinel: ErrInvalid, typ: "invalid"},
		"read by somebody else": {request: func() *http.Request {
			r := post(`{"id": 7}`)
			_, _ = io.Copy(io.Discard, r.Body)
			return r
		}, reason: "the body was read before: mount this outside of what parses it", sentinel: ErrMisuse, typ: "misuse"},
		"a parsed form, chunked": {request: func() *http.Request {
			r := chunked("id=7")
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			_ = r.ParseForm()
			return r
		}, reason: "the body was read before: mount this outside of what parses it", sentinel: ErrMisuse, typ: "misuse"},
		"a parsed form with a JSON body": {request: func() *http.Request {
			r := post(`{"id": 7}`)
			r.Header.Set("Content-Type", "application/json")
			_ = r.ParseForm() // reads forms only
			return r
		}, want: "x:7"},
		"nil": {request: func() *http.Request {
			r := post("")
			r.Body = nil
			return r
		}, reason: "the body is absent", sentinel: ErrInvalid, typ: "invalid"},
		"none": {
			request: func() *http.Request { return httptest.NewRequest(http.MethodPost, "/", nil) },
			reason:  "the body is absent", sentinel: ErrInvalid, typ: "invalid",
		},
	}
	template := parse(t, "x:{body.id}")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := template.Keys(tt.request())
			check(t, answer{keys, err}, tt.want, tt.reason, tt.sentinel)
			var failed *KeyError
			if errors.As(err, &failed) && (failed.ErrorType() != tt.typ || failed.HTTPStatus() != 0) {
				t.Errorf("type %q, status %d; want %q, 0", failed.ErrorType(), failed.HTTPStatus(), tt.typ)
			}
		})
	}
}

// chunked returns a request whose body has no length announced.
func chunked(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(body)))
}

// The handler reads the body as if nobody had, byte for byte, also when there was an error.
func TestBodyIsRestored(t *testing.T) {
	for name, body := range map[string]string{
		"good":       "{\"id\":\t7}\r\n",
		"no JSON":    "\x00\xff id=7",
		"missing":    "{}",
		"too large":  bodyOf(maxBody + 5000),
		"white only": "   ",
		"empty":      "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closes := 0
			r := chunked("")
			r.Body = &closer{Reader: strings.NewReader(body), closes: &closes}
			template := parse(t, "x:{body.id}:{body.id}")
			_, first := template.Keys(r)
			_, second := template.Keys(r)
			if first != nil && (second == nil || first.Error() != second.Error()) {
				t.Errorf("first %v, then %v; want the same", first, second)
			}
			got, err := io.ReadAll(r.Body)
			if err != nil || string(got) != body {
				t.Errorf("the handler reads %d bytes, %v; want the %d that were sent", len(got), err, len(body))
			}
			if err := r.Body.Close(); err != nil || closes != 1 {
				t.Errorf("closed %d times, %v; want once", closes, err)
			}
		})
	}
}

type closer struct {
	io.Reader
	closes *int
}

func (c *closer) Close() error { *c.closes++; return nil }

// After a read that failed the handler sees the same bytes and the same error.
func TestBodyErrorIsRestored(t *testing.T) {
	broken := errors.New("connection reset by 192.0.2.1")
	r := chunked("")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"id"`), iotest.ErrReader(broken)))
	_, err := parse(t, "x:{body.id}").Keys(r)
	if !errors.Is(err, broken) || strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("Keys() = %v, want the reader's error wrapped and not shown", err)
	}
	if got, err := io.ReadAll(r.Body); string(got) != `{"id"` || !errors.Is(err, broken) {
		t.Errorf("the handler reads %q, %v", got, err)
	}
}

// A middleware outside may have buffered the body with a greater limit: the same buffer is used, whatever its size,
// and even when something between the two has read it.
func TestBufferBody(t *testing.T) {
	body := bodyOf(maxBody * 3)
	r := chunked(body)
	outer, err := BufferBody(r, 1<<20)
	if err != nil || string(outer) != body {
		t.Fatalf("BufferBody() = %d bytes, %v; want %d", len(outer), err, len(body))
	}
	if keys, err := parse(t, "x:{body.id}").Keys(r); err != nil || keys[0] != "x:7" {
		t.Errorf("Keys() = %q, %v; want x:7", keys, err)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
		t.Errorf("the handler reads %d bytes, %v", len(got), err)
	}
	again, err := BufferBody(r, 1)
	if err != nil || &again[0] != &outer[0] {
		t.Errorf("BufferBody() a second time = %d bytes, %v; want the same buffer", len(again), err)
	}
	if keys, err := parse(t, "x:{body.id}").Keys(r); err != nil || keys[0] != "x:7" {
		t.Errorf("Keys() after the body was read = %q, %v; want x:7", keys, err)
	}
}

func TestBufferBodyFails(t *testing.T) {
	tests := map[string]struct {
		request  *http.Request
		limit    int64
		sentinel error
	}{
		"over the limit":       {chunked("12345"), 4, ErrBodyTooLarge},
		"announced over it":    {post("12345"), 4, ErrBodyTooLarge},
		"at the limit":         {chunked("1234"), 4, nil},
		"no limit to speak of": {chunked("1234"), 1<<63 - 1, nil},
		"none":                 {post(""), 4, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, _ := io.ReadAll(tt.request.Body)
			tt.request.Body = io.NopCloser(bytes.NewReader(want))
			got, err := BufferBody(tt.request, tt.limit)
			if tt.sentinel == nil {
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("BufferBody() = %q, %v; want %q", got, err, want)
				}
				return
			}
			var failed *KeyError
			if !errors.Is(err, tt.sentinel) || !errors.As(err, &failed) || failed.Template != "" || err.Error() != "lockkey: the body is too large" {
				t.Errorf("BufferBody() = %v, want %v", err, tt.sentinel)
			}
		})
	}
}

// A length that is announced and too great is refused before anything is read or made room for.
func TestAnnouncedLengthIsRefusedUnread(t *testing.T) {
	r := chunked("")
	r.ContentLength = 5
	unread := errors.New("read")
	r.Body = io.NopCloser(iotest.ErrReader(unread))
	if _, err := BufferBody(r, 4); !errors.Is(err, ErrBodyTooLarge) || errors.Is(err, unread) {
		t.Errorf("BufferBody() = %v, want ErrBodyTooLarge", err)
	}
}

// Over real HTTP: with a length, chunked, and after 100-continue the handler gets what the client has sent.
func TestBodyOverHTTP(t *testing.T) {
	template := parse(t, "x:{body.id}")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := template.Key(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Key", key)
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	for _, body := range []string{`{"id": 7}`, bodyOf(maxBody)} {
		for name, prepare := range map[string]func(*http.Request){
			"with a length": func(*http.Request) {},
			"chunked":       func(r *http.Request) { r.ContentLength = -1 },
			"100-continue":  func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			prepare(r)
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			echo, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || string(echo) != body || answer.Header.Get("Key") != "x:7" {
				t.Errorf("%s: %s, key %q, %d bytes back, %v; want x:7 and %d bytes", name, answer.Status, answer.Header.Get("Key"), len(echo), err, len(body))
			}
		}
	}
}
