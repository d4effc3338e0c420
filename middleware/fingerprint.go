package middleware

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// The version of the fingerprint, and what its last part is made of. A change makes every request that is sent again
// across an update a mismatch.
const (
	fingerprintBytes = "holdfast fingerprint 1 bytes"
	fingerprintParts = "holdfast fingerprint 1 parts"
)

// fingerprint tells two requests with one key apart: method, path, query and body, each with its length so that no byte
// can wander from one to the next. Headers do not count. A JSON body counts by its bytes; a multipart one by the headers
// and contents of its parts, since a client makes a new boundary each time.
func fingerprint(r *http.Request, body []byte) []byte {
	w := lengthWriter{h: sha256.New()}
	parts, multipart := readParts(r.Header.Get("Content-Type"), body)
	if multipart {
		w.text(fingerprintParts)
	} else {
		w.text(fingerprintBytes)
	}
	w.text(r.Method)
	w.text(normalPath(r.URL))
	w.text(r.URL.RawQuery)
	if !multipart {
		w.bytes(body)
		return w.h.Sum(nil)
	}
	for _, p := range parts {
		w.size(len(p.names))
		for _, name := range p.names {
			w.text(name)
			w.size(len(p.header[name]))
			for _, line := range p.header[name] {
				w.text(line)
			}
		}
		w.bytes(p.content)
	}
	return w.h.Sum(nil)
}

// lengthWriter hashes parts behind their lengths.
type lengthWriter struct {
	h   hash.Hash
	buf [8]byte
}

func (w *lengthWriter) size(n int) {
	binary.BigEndian.PutUint64(w.buf[:], uint64(n))
	w.h.Write(w.buf[:]) // a hash never fails
}

func (w *lengthWriter) bytes(b []byte) {
	w.size(len(b))
	w.h.Write(b)
}

func (w *lengthWriter) text(s string) {
	w.size(len(s))
	_, _ = io.WriteString(w.h, s) // as above
}

// normalPath returns the path with each segment decoded once and escaped again, so that the spellings of one path are
// one: %37 and 7, but not %2F and the slash between two segments.
func normalPath(u *url.URL) string {
	raw := u.EscapedPath()
	if !strings.Contains(raw, "%") {
		plain := true
		for i := range len(raw) {
			plain = plain && (raw[i] == '/' || keyesc.Safe(raw[i]))
		}
		if plain {
			return raw
		}
	}
	var b []byte
	for i, segment := range strings.Split(raw, "/") {
		if i > 0 {
			b = append(b, '/')
		}
		if decoded, err := url.PathUnescape(segment); err == nil {
			segment = decoded
		}
		b = keyesc.Append(b, segment)
	}
	return string(b)
}

type part struct {
	names   []string // of the headers, sorted
	header  textproto.MIMEHeader
	content []byte
}

// readParts splits a multipart body. ok is false if it is none or cannot be read as one; then it counts by its bytes.
func readParts(contentType string, body []byte) (parts []part, ok bool) {
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), "multipart/") {
		return nil, false
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return nil, false
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, true
		}
		if err != nil {
			return nil, false
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return nil, false
		}
		next := part{header: p.Header, content: content}
		for name := range p.Header {
			next.names = append(next.names, name)
		}
		slices.Sort(next.names)
		parts = append(parts, next)
	}
}
