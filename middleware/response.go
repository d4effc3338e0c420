package middleware

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// errFinished is what a write gets after the handler has returned.
var errFinished = errors.New("middleware: write after the handler has returned")

// response stands between a handler and the writer it was given. It has one of two uses: under Lock it only watches
// whether an answer has begun; under Dedup it holds the answer back, so that it can be stored before it is seen.
//
// It is one concrete type, whatever the writer beneath can do: Flush and Hijack go through http.ResponseController and
// say ErrNotSupported where the writer beneath cannot. It does not offer io.ReaderFrom, so that status and bytes pass
// through here and are counted once (go-chi/chi#1110). Safe for concurrent use, which a handler that is done with but
// still running in a goroutine of its own makes of it.
type response struct {
	w http.ResponseWriter

	mu       sync.Mutex
	status   int  // 0 until the answer has begun
	done     bool // the handler has returned
	hijacked bool
	held     *heldAnswer // nil: everything passes through
}

// heldAnswer is an answer that is held back.
type heldAnswer struct {
	limit    int64        // of the body
	base     http.Header  // the headers as the handler found them
	head     http.Header  // as they were when the handler wrote the status; nil until then
	body     []byte       // recordPrefix bytes, then the body
	length   int64        // Content-Length as the handler has set it, -1 if it has not
	sent     bool         // the answer is under way; what follows passes through
	lost     bool         // body is not all of it
	onHijack func() error // called before the connection is handed over
}

// recordPrefix is the room that a stored answer needs before the body.
const recordPrefix = 1

// watch returns w, or a writer on it, that tells whether the answer has begun.
func watch(w http.ResponseWriter) http.ResponseWriter {
	if _, ok := begunOf(w); ok {
		return w
	}
	return &response{w: w}
}

// hold returns a writer that holds back an answer whose body is at most limit bytes. onHijack is called before the
// connection is handed over.
func hold(w http.ResponseWriter, limit int64, onHijack func() error) *response {
	return &response{w: w, held: &heldAnswer{
		limit: limit, base: w.Header().Clone(), length: -1, onHijack: onHijack,
	}}
}

// begunOf reports whether the answer has begun, and whether w can tell at all. Besides ours it asks chi's
// WrapResponseWriter only: many other writers have a method Status that says 200 before anything is written.
func begunOf(w http.ResponseWriter) (begun, known bool) {
	switch w := w.(type) {
	case *response:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.status != 0 || w.hijacked, true
	case interface {
		http.ResponseWriter
		Status() int
		BytesWritten() int
		Tee(io.Writer)
		Unwrap() http.ResponseWriter
	}:
		return w.Status() != 0, true
	}
	return false, false
}

// begun reports whether the answer has begun, as far as w can tell.
func begun(w http.ResponseWriter) bool {
	b, _ := begunOf(w)
	return b
}

// Header returns the headers of the writer beneath.
func (rw *response) Header() http.Header { return rw.w.Header() }

// Unwrap is for http.ResponseController: deadlines and full duplex are set on the connection itself.
func (rw *response) Unwrap() http.ResponseWriter { return rw.w }

// Status returns the status of the answer, 0 until it has begun.
func (rw *response) Status() int {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	return rw.status
}

// WriteHeader begins the answer. An informational status is passed on at once; what comes after the first final status,
// or after the handler has returned, is ignored.
func (rw *response) WriteHeader(code int) {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	rw.writeHeader(code)
}

func (rw *response) writeHeader(code int) {
	switch {
	case rw.done || rw.hijacked || rw.status != 0:
		return
	case code < 100 || code > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // as net/http does, and before anything is stored
	case code < 200 && code != http.StatusSwitchingProtocols:
		rw.w.WriteHeader(code)
		return
	}
	rw.status = code
	if rw.held == nil {
		rw.w.WriteHeader(code)
		return
	}
	rw.held.head = rw.w.Header().Clone()
	if n, err := strconv.ParseInt(rw.held.head.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rw.held.length = n
	}
	if code == http.StatusSwitchingProtocols {
		_ = rw.sendHeld() // there is no body that could fail
	}
}

// Write adds to the body.
func (rw *response) Write(p []byte) (int, error) {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	switch {
	case rw.done:
		return 0, errFinished
	case rw.hijacked:
		return 0, http.ErrHijacked
	}
	rw.writeHeader(http.StatusOK)
	if rw.held == nil || rw.held.sent {
		return rw.w.Write(p)
	}
	return rw.holdBack(p)
}

// holdBack keeps p, or sends everything once that is too much to keep. It refuses what net/http refuses.
func (rw *response) holdBack(p []byte) (int, error) {
	a := rw.held
	size := int64(a.size() + len(p))
	switch {
	case !bodyAllowed(rw.status):
		return 0, http.ErrBodyNotAllowed
	case a.length >= 0 && size > a.length:
		return 0, http.ErrContentLength
	case size > a.limit:
		if err := rw.sendHeld(); err != nil {
			return 0, err
		}
		a.lost = true
		return rw.w.Write(p)
	}
	if a.body == nil {
		a.body = make([]byte, recordPrefix, recordPrefix+max(len(p), 512))
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

func (a *heldAnswer) size() int { return max(len(a.body)-recordPrefix, 0) }

func (a *heldAnswer) bytes() []byte {
	if a.body == nil {
		return nil
	}
	return a.body[recordPrefix:]
}

// sendHeld sends what is held back; what follows passes through.
func (rw *response) sendHeld() error {
	a := rw.held
	a.sent = true
	trailers := restore(rw.w.Header(), a.head)
	rw.w.WriteHeader(rw.status)
	for name, values := range trailers {
		rw.w.Header()[name] = values
	}
	if a.size() == 0 {
		return nil
	}
	_, err := rw.w.Write(a.bytes())
	return err
}

// Flush sends what there is, if the writer beneath can.
func (rw *response) Flush() { _ = rw.FlushError() }

// FlushError is Flush for http.ResponseController.
func (rw *response) FlushError() error {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	switch {
	case rw.done:
		return errFinished
	case rw.hijacked:
		return http.ErrHijacked
	case !supports[http.Flusher](rw.w) && !supports[interface{ FlushError() error }](rw.w):
		return http.ErrNotSupported
	}
	rw.writeHeader(http.StatusOK)
	if a := rw.held; a != nil && !a.sent {
		a.lost = true // what follows will not be kept
		if err := rw.sendHeld(); err != nil {
			return err
		}
	}
	return http.NewResponseController(rw.w).Flush()
}

// Hijack hands the connection over, if the writer beneath can. An answer that was held back and not sent is dropped,
// as net/http drops what it has buffered.
func (rw *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	switch {
	case rw.done:
		return nil, nil, errFinished
	case !supports[http.Hijacker](rw.w):
		return nil, nil, http.ErrNotSupported
	case rw.hijacked:
		return nil, nil, http.ErrHijacked
	}
	if rw.held != nil && rw.held.onHijack != nil {
		if err := rw.held.onHijack(); err != nil {
			return nil, nil, err
		}
	}
	conn, buf, err := http.NewResponseController(rw.w).Hijack()
	if err == nil {
		rw.hijacked = true
	}
	return conn, buf, err
}

// finish ends the handler's part: what it writes from now on is ignored.
func (rw *response) finish() {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	rw.done = true
}

// take ends the handler's part and returns its answer. If nothing was written it is an empty 200, as net/http has it, or,
// without implied, none at all.
func (rw *response) take(implied bool) answer {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if rw.status == 0 && implied {
		rw.writeHeader(http.StatusOK)
	}
	rw.done = true
	a, h := answer{status: rw.status, hijacked: rw.hijacked}, rw.held
	if a.none = rw.status == 0 && !rw.hijacked; a.none || a.hijacked {
		return a
	}
	a.head, a.fields, a.omitted = h.head, changed(h.base, h.head), h.lost
	if !h.lost {
		a.raw, a.body = h.body, h.bytes()
	}
	return a
}

// send sends the answer, unless it has left already.
func (rw *response) send() {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if !rw.hijacked && !rw.held.sent {
		_ = rw.sendHeld() // fails if the client has left
	}
}

// sentStatus returns the status, and whether it has left already.
func (rw *response) sentStatus() (status int, sent bool) {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	return rw.status, rw.held.sent
}

// supports reports whether w, or what it wraps, implements T.
func supports[T any](w http.ResponseWriter) bool {
	for {
		if ours, ok := w.(*response); ok {
			w = ours.w
			continue
		}
		if _, ok := w.(T); ok {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}

// bodyAllowed reports whether an answer of that status may have a body (RFC 9110, 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// restore brings live to what it was when the status was written: what was set later would not have been sent either.
// It takes the trailers out, which are set later by their nature, and returns them.
func restore(live, head http.Header) (trailers http.Header) {
	for name, values := range live {
		if isTrailer(name, head) {
			if trailers == nil {
				trailers = http.Header{}
			}
			trailers[name] = values
			delete(live, name)
			continue
		}
		if _, ok := head[name]; !ok {
			delete(live, name)
		}
	}
	for name, values := range head {
		if !isTrailer(name, head) {
			live[name] = values
		}
	}
	return trailers
}

// isTrailer reports whether the field is sent after the body: it is declared in Trailer, or has net/http's prefix.
func isTrailer(name string, head http.Header) bool {
	if strings.HasPrefix(name, http.TrailerPrefix) {
		return true
	}
	return slices.ContainsFunc(head["Trailer"], func(line string) bool {
		for declared := range strings.SplitSeq(line, ",") {
			if http.CanonicalHeaderKey(strings.TrimSpace(declared)) == name {
				return true
			}
		}
		return false
	})
}
