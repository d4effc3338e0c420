package lockkey

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
)

// BufferBody reads the whole body of r, at most limit bytes, and sets r.Body to a copy that reads the same. It returns
// the bytes, which must not be changed, or nil for a request without a body.
//
// A template with {body.path} calls it with 64 KiB. A middleware outside that needs the body itself calls it with a
// limit of its own: whoever calls next gets the same bytes, whatever their number, and reads nothing, even if r.Body
// has been read to its end in between.
//
// The error is a [*KeyError] that wraps ErrBodyTooLarge when the body, or what an [http.MaxBytesReader] outside lets
// through, is over the limit; ErrInvalid when reading it fails; ErrMisuse when it was read before, by somebody who did
// not put it back. After an error too r.Body reads as before. Not safe for concurrent use on one request.
func BufferBody(r *http.Request, limit int64) ([]byte, error) {
	data, failed := bufferBody(r, limit)
	if failed != nil {
		return nil, failed
	}
	return data, nil
}

// bufferedBody is a body that reads from memory.
type bufferedBody struct {
	reader bytes.Reader
	data   []byte
	source io.Closer
}

func (b *bufferedBody) Read(p []byte) (int, error) { return b.reader.Read(p) }
func (b *bufferedBody) Close() error               { return b.source.Close() }

func bufferBody(r *http.Request, limit int64) ([]byte, *KeyError) {
	if b, ok := r.Body.(*bufferedBody); ok {
		return b.data, nil
	}
	tooLarge := &KeyError{Reason: "the body is too large", sentinel: ErrBodyTooLarge}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	if r.Body == nil {
		return nil, consumed(r)
	}
	data, err := readBody(r, limit)
	if err == nil && int64(len(data)) <= limit {
		if len(data) == 0 {
			return nil, consumed(r)
		}
		b := &bufferedBody{data: data, source: r.Body}
		b.reader.Reset(data)
		r.Body = b
		return data, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), r.Body), r.Body}
	var cut *http.MaxBytesError
	switch {
	case err == nil:
		return nil, tooLarge
	case errors.As(err, &cut):
		tooLarge.cause = err
		return nil, tooLarge
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return nil, &KeyError{Reason: "the body was closed before", sentinel: ErrMisuse, cause: err}
	}
	return nil, &KeyError{Reason: "the body could not be read", sentinel: ErrInvalid, cause: err}
}

// readBody reads at most one byte more than limit. It makes room for the length that the client has announced, within
// reason, so that a body is read without growing the buffer.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	room := min(max(r.ContentLength, 0), maxBody) + bytes.MinRead
	buf := bytes.NewBuffer(make([]byte, 0, room))
	_, err := buf.ReadFrom(io.LimitReader(r.Body, min(limit, math.MaxInt64-1)+1))
	return buf.Bytes(), err
}

// consumed tells a request that came without a body from one whose body somebody has read before.
func consumed(r *http.Request) *KeyError {
	if r.ContentLength <= 0 && len(r.PostForm) == 0 && r.MultipartForm == nil {
		return nil
	}
	return &KeyError{Reason: "the body was read before: mount this outside of what parses it", sentinel: ErrMisuse}
}

// loadJSON buffers the body and checks all of it, once a template.
func (q *request) loadJSON() *KeyError {
	if q.json != nil {
		return nil
	}
	for _, line := range q.Header["Content-Encoding"] {
		if line = strings.TrimSpace(line); line != "" && !strings.EqualFold(line, "identity") {
			return &KeyError{Reason: "the body has a Content-Encoding", sentinel: ErrBodyEncoding}
		}
	}
	data, failed := bufferBody(q.Request, maxBody)
	if failed != nil {
		return failed
	}
	if data = skipSpace(data); len(data) == 0 {
		return &KeyError{Reason: "the body is absent", sentinel: ErrInvalid, absent: true}
	}
	if failed := checkJSON(data); failed != nil {
		return failed
	}
	q.json = data
	return nil
}
