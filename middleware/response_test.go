package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/google/go-cmp/cmp"
)

// bare is a writer that can do nothing but write.
type bare struct {
	h      http.Header
	code   []int
	body   strings.Builder
	atHead http.Header
}

func newBare() *bare { return &bare{h: http.Header{}} }

func (b *bare) Header() http.Header         { return b.h }
func (b *bare) Write(p []byte) (int, error) { return b.body.Write(p) }
func (b *bare) WriteHeader(code int) {
	b.code = append(b.code, code)
	if b.atHead == nil && code >= 200 {
		b.atHead = b.h.Clone()
	}
}

// full can flush and hijack.
type full struct {
	*bare
	flushed  int
	hijacked bool
}

func (f *full) Flush() { f.flushed++ }
func (f *full) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.hijacked = true
	return nil, nil, nil
}

func TestHeldAnswerIsNotSeenBeforeItIsSent(t *testing.T) {
	inner := newBare()
	rw := hold(inner, 100, nil)
	rw.Header().Set("Location", "/orders/1")
	rw.WriteHeader(http.StatusCreated)
	io.WriteString(rw, "order 1")
	if inner.code != nil || inner.body.Len() != 0 {
		t.Fatalf("seen before it was sent: %v %q", inner.code, inner.body.String())
	}
	rw.finish()
	if err := rw.sendHeld(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{201}, inner.code); diff != "" || inner.body.String() != "order 1" || inner.atHead.Get("Location") != "/orders/1" {
		t.Errorf("sent %v %v %q", inner.code, inner.atHead, inner.body.String())
	}
}

// Headers count as they were when the status was written, as with net/http, though they are sent later.
func TestHeadersAreTakenWhenTheStatusIsWritten(t *testing.T) {
	inner := newBare()
	inner.h.Set("From-Outside", "1")
	rw := hold(inner, 100, nil)
	rw.Header().Set("Kept", "before")
	rw.Header().Set("Trailer", "Checksum")
	rw.WriteHeader(http.StatusOK)
	rw.Header().Set("Kept", "after")
	rw.Header().Set("Late", "1")
	rw.Header().Del("From-Outside")
	rw.Header().Set("Checksum", "abc")
	rw.Header().Set(http.TrailerPrefix+"Other", "def")
	rw.finish()
	if err := rw.sendHeld(); err != nil {
		t.Fatal(err)
	}
	want := http.Header{"From-Outside": {"1"}, "Kept": {"before"}, "Trailer": {"Checksum"}}
	if diff := cmp.Diff(want, inner.atHead); diff != "" {
		t.Errorf("headers -want +got\n%s", diff)
	}
	if inner.h.Get("Checksum") != "abc" || inner.h.Get(http.TrailerPrefix+"Other") != "def" {
		t.Errorf("trailers are gone: %v", inner.h)
	}
}

func TestSecondStatusAndWritesAfterReturnAreIgnored(t *testing.T) {
	for name, rw := range map[string]*response{"held": hold(newBare(), 100, nil), "watched": watch(newBare()).(*response)} {
		t.Run(name, func(t *testing.T) {
			rw.WriteHeader(http.StatusConflict)
			rw.WriteHeader(http.StatusOK)
			rw.finish()
			rw.WriteHeader(http.StatusTeapot)
			if _, err := rw.Write([]byte("late")); !errors.Is(err, errFinished) {
				t.Errorf("a late write: %v", err)
			}
			if err := rw.FlushError(); !errors.Is(err, errFinished) {
				t.Errorf("a late flush: %v", err)
			}
			if _, _, err := rw.Hijack(); !errors.Is(err, errFinished) {
				t.Errorf("a late hijack: %v", err)
			}
			if rw.Status() != http.StatusConflict {
				t.Errorf("status %d", rw.Status())
			}
		})
	}
}

func TestInformationalStatusIsPassedOnAtOnce(t *testing.T) {
	inner := newBare()
	rw := hold(inner, 100, nil)
	rw.WriteHeader(http.StatusEarlyHints)
	rw.WriteHeader(http.StatusOK)
	if diff := cmp.Diff([]int{103}, inner.code); diff != "" || rw.Status() != 200 {
		t.Errorf("inner got %v, status %d", inner.code, rw.Status())
	}
}

func TestSwitchingProtocolsIsFinal(t *testing.T) {
	inner := newBare()
	rw := hold(inner, 100, nil)
	rw.WriteHeader(http.StatusSwitchingProtocols)
	if diff := cmp.Diff([]int{101}, inner.code); diff != "" || rw.Status() != 101 {
		t.Errorf("inner got %v, status %d", inner.code, rw.Status())
	}
}

func TestAnInvalidStatusPanicsBeforeAnythingIsStored(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	hold(newBare(), 100, nil).WriteHeader(0)
}

func TestTooLargeAnAnswerPassesThrough(t *testing.T) {
	inner := newBare()
	rw := hold(inner, 4, nil)
	io.WriteString(rw, "1234")
	if inner.body.Len() != 0 {
		t.Fatal("sent within the limit")
	}
	io.WriteString(rw, "5")
	io.WriteString(rw, "6")
	if inner.body.String() != "123456" || !rw.held.lost || !rw.held.sent {
		t.Errorf("body %q, %+v", inner.body.String(), rw.held)
	}
}

func TestWhatNetHTTPRefusesIsRefused(t *testing.T) {
	rw := hold(newBare(), 100, nil)
	rw.WriteHeader(http.StatusNoContent)
	if _, err := rw.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
		t.Errorf("a body on 204: %v", err)
	}
	rw = hold(newBare(), 100, nil)
	rw.Header().Set("Content-Length", "5")
	if _, err := io.WriteString(rw, "hello"); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(rw, "!"); !errors.Is(err, http.ErrContentLength) {
		t.Errorf("a body longer than declared: %v", err)
	}
}

func TestFlushSendsWhatThereIs(t *testing.T) {
	inner := &full{bare: newBare()}
	rw := hold(inner, 100, nil)
	io.WriteString(rw, "a")
	if err := http.NewResponseController(rw).Flush(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(rw, "b")
	if inner.body.String() != "ab" || inner.flushed != 1 || !rw.held.lost {
		t.Errorf("body %q, flushed %d, %+v", inner.body.String(), inner.flushed, rw.held)
	}
}

func TestWhatTheWriterBeneathCannot(t *testing.T) {
	rw := hold(newBare(), 100, func() error { t.Error("told of a hand-over that cannot be"); return nil })
	io.WriteString(rw, "a")
	if err := http.NewResponseController(rw).Flush(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("Flush: %v", err)
	}
	if _, _, err := http.NewResponseController(rw).Hijack(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("Hijack: %v", err)
	}
	if rw.held.sent || rw.held.lost {
		t.Error("a flush that cannot be has sent the answer")
	}
}

func TestHijackTellsFirst(t *testing.T) {
	inner := &full{bare: newBare()}
	told := false
	rw := hold(watch(inner), 100, func() error { told = !inner.hijacked; return nil })
	if _, _, err := rw.Hijack(); err != nil || !told || !begun(rw) {
		t.Errorf("%v, told %v, begun %v", err, told, begun(rw))
	}
	if _, err := rw.Write(nil); !errors.Is(err, http.ErrHijacked) {
		t.Errorf("a write after the hand-over: %v", err)
	}
}

func TestHijackIsNotGivenWhenTheRecordCannotBe(t *testing.T) {
	inner := &full{bare: newBare()}
	no := errors.New("no")
	if _, _, err := hold(inner, 100, func() error { return no }).Hijack(); !errors.Is(err, no) || inner.hijacked {
		t.Errorf("%v, hijacked %v", err, inner.hijacked)
	}
}

func TestWatchReusesAWriterThatCanTell(t *testing.T) {
	chis := chimiddleware.NewWrapResponseWriter(newBare(), 1)
	if w := watch(chis); w != http.ResponseWriter(chis) {
		t.Errorf("chi's writer was wrapped in %T", w)
	}
	ours := watch(newBare())
	if w := watch(ours); w != ours {
		t.Error("our own writer was wrapped again")
	}
	if w := watch(optimist{newBare()}); begun(w) {
		t.Error("a writer with any method Status was believed")
	}
}

// Status and bytes are counted once also when a handler copies a file to the writer (go-chi/chi#1110).
func TestNoReaderFrom(t *testing.T) {
	if _, ok := any(hold(newBare(), 100, nil)).(io.ReaderFrom); ok {
		t.Fatal("io.ReaderFrom is offered")
	}
	rw := hold(newBare(), 100, nil)
	if n, err := io.Copy(rw, strings.NewReader("file")); n != 4 || err != nil || string(rw.held.bytes()) != "file" {
		t.Errorf("copied %d, %v, held %q", n, err, rw.held.bytes())
	}
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(hold(watch(w), 10, nil)).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}
