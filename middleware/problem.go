package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/lockkey"
)

// Problem is what a client is told about an error: the members of RFC 9457 and two of ours. It never holds a value from
// the request, a key, an address or the error's text.
type Problem struct {
	Type      string `json:"type"`   // "urn:holdfast:problem:" + Code, or "about:blank": only the status says something
	Title     string `json:"title"`  // the same for every problem of the type
	Status    int    `json:"status"` // of the answer
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`      // the error type: stable, the same string as in traces and logs
	Retryable bool   `json:"retryable"` // the same request with the same idempotency key may succeed later

	// RetryAfter is how long to wait before that, at least 1 s and at most 1 min; 0 where Retryable is false. The header
	// Retry-After has it in whole seconds, with up to 2 s of jitter on 429 and 503.
	RetryAfter time.Duration `json:"-"`
}

const (
	problemType = "urn:holdfast:problem:"
	contentType = "application/problem+json"
)

// row is the answer to one error type. Whether it may be tried again, the type itself says.
type row struct {
	status        int
	title, detail string
}

// rows is the one table from error type to answer. It answers for stock and gormplugin without importing them.
var rows = map[fault.Type]row{
	fault.AlreadyConfirmed: {http.StatusConflict, "Already confirmed", "This was paid for or confirmed before."},
	fault.AlreadyReleased:  {http.StatusConflict, "Already released", "This was closed or given back before."},
	fault.BodyEncoding:     {http.StatusUnsupportedMediaType, "Encoded body", "Send the body without a Content-Encoding."},
	fault.BodyTooLarge:     {http.StatusRequestEntityTooLarge, "Body too large", "The body is over the limit of this route."},
	fault.Busy:             {http.StatusTooManyRequests, "Busy", "Another request works on the same thing. Try again later."},
	fault.Closed:           {http.StatusServiceUnavailable, "Shutting down", "The service is shutting down. Try again."},
	fault.Conflict:         {http.StatusServiceUnavailable, "Conflict", "Other requests kept changing the same thing. Try again with the same idempotency key."},
	fault.Corrupt:          {http.StatusServiceUnavailable, "Stored value unreadable", "A stored value cannot be read. The operators have to look at it."},
	fault.Duplicate:        {http.StatusConflict, "Duplicate", "This exists already."},
	fault.Ended:            {http.StatusConflict, "Ended", "The sale has ended."},
	fault.ForeignKey:       {http.StatusServiceUnavailable, "Lock unusable", "A lock cannot be taken. The operators have to look at it."},
	fault.InFlight:         {http.StatusConflict, "In progress", "A request with this idempotency key is still running. Try again with the same key."},
	fault.Insufficient:     {http.StatusConflict, "Not enough", "There is not enough left."},
	fault.Internal:         {http.StatusInternalServerError, "Internal error", "Something went wrong."},
	fault.Interrupted:      {http.StatusConflict, "Interrupted", "An earlier request with this idempotency key was interrupted, and it is not known what it did. It is not run again."},
	fault.Invalid:          {http.StatusBadRequest, "Invalid request", "A part of the request is missing or wrong."},
	fault.KeyMalformed:     {http.StatusBadRequest, "Malformed idempotency key", "The idempotency key is not of its form."},
	fault.KeyMissing:       {http.StatusBadRequest, "No idempotency key", "This route needs an idempotency key."},
	fault.LeaseReleased:    {http.StatusInternalServerError, "Internal error", "The service has used a lock that it had released."},
	fault.LimitReached:     {http.StatusConflict, "Limit reached", "You have had as many as one may have."},
	fault.Lost:             {http.StatusServiceUnavailable, "Lock lost", "The lock was lost while the request was worked on. Try again with the same idempotency key."},
	fault.Mismatch:         {http.StatusUnprocessableEntity, "Idempotency key reused", "This idempotency key was used for another request."},
	fault.Misuse:           {http.StatusInternalServerError, "Internal error", "The service is not set up correctly."},
	fault.NotFound:         {http.StatusNotFound, "Not found", "This does not exist."},
	fault.NotHeld:          {http.StatusConflict, "Not held", "Nothing is held under this order."},
	fault.NotLanded:        {http.StatusConflict, "Not there yet", "There is no such order yet. If it was accepted a moment ago, try again in a second."},
	fault.NotStarted:       {http.StatusConflict, "Not started", "The sale has not started."},
	fault.NotWarmed:        {http.StatusServiceUnavailable, "Not ready", "The sale is not ready yet. Try again later."},
	fault.Overloaded:       {http.StatusServiceUnavailable, "Overloaded", "Too much is waiting to be worked on. Try again with the same idempotency key."},
	fault.Paused:           {http.StatusConflict, "Paused", "The sale is paused."},
	fault.RateLimited:      {http.StatusTooManyRequests, "Too many requests", "Too many requests. Try again with the same idempotency key."},
	fault.Released:         {http.StatusConflict, "Given back", "This request succeeded, and what it got was given back since."},
	fault.StaleFence:       {http.StatusConflict, "Overtaken", "Another request has changed the same thing meanwhile."},
	fault.TooManyKeys:      {http.StatusBadRequest, "Too many things at once", "The request names more things than one may lock at once."},
	fault.Unavailable:      {http.StatusServiceUnavailable, "Unavailable", "The service cannot work on this now; nothing was done. Try again with the same idempotency key."},
	fault.Unguarded:        {http.StatusInternalServerError, "Internal error", "The service has refused a write of its own."},
	fault.UnknownOutcome:   {http.StatusServiceUnavailable, "Outcome unknown", "It is not known whether the request has had its effect. Try again with the same idempotency key."},
	fault.VersionConflict:  {http.StatusConflict, "Changed meanwhile", "This was changed meanwhile. Read it again."},
	fault.Withdrawn:        {http.StatusConflict, "Withdrawn", "This request succeeded, and its success was withdrawn since."},
}

// Describe returns what [WriteProblem] answers for err. It never fails: an error without a type of the list, and nil,
// are "internal", 500.
func Describe(err error) Problem {
	typ := fault.TypeOf(err)
	answer, ok := rows[typ]
	if !ok {
		typ = fault.Internal
		answer = rows[typ]
	}
	p := Problem{
		Type: problemType + string(typ), Title: answer.title, Status: answer.status, Detail: answer.detail,
		Code: string(typ), Retryable: typ.Retryable(),
	}
	var own *refusal
	if errors.As(err, &own) {
		if own.detail != "" {
			p.Detail = own.detail
		}
		if own.status != 0 {
			p.Status = own.status
		}
	}
	var key *lockkey.KeyError
	if errors.As(err, &key) {
		p.fromKey(key, own)
	}
	if p.Retryable {
		p.RetryAfter = retryAfter(err)
	}
	return p
}

// fromKey says which part of the request is at fault, or takes over the status that a registered value asked for.
func (p *Problem) fromKey(key *lockkey.KeyError, own *refusal) {
	status := key.HTTPStatus()
	if status == 0 {
		if p.Status < 500 && (own == nil || own.detail == "") {
			p.Detail = "Wrong in the request: " + key.Reason + "."
		}
		return
	}
	if status == p.Status {
		return
	}
	// The service decides about this one, and only the status is known here.
	*p = Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: p.Code,
		Retryable: status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable,
	}
}

// retryAfter returns the wait that the error asks for, 1 s where it does not, and at most 1 min.
func retryAfter(err error) time.Duration {
	const least, most = time.Second, time.Minute
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) {
		return min(max(hint.RetryAfter(), least), most)
	}
	return least
}

// maxJitter is how much later, in seconds, some are told to return, so that the refused do not return in step.
const maxJitter = 2

// header returns the value of Retry-After: 1 to 60 seconds, rounded up.
func (p *Problem) retryHeader() string {
	s := int((p.RetryAfter + time.Second - 1) / time.Second)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		s = min(s, 60-maxJitter) + rand.IntN(maxJitter+1)
	}
	return strconv.Itoa(min(max(s, 1), 60))
}

// WriteProblem answers a request with the problem that err is: status, application/problem+json, Retry-After where it
// may be tried again, Cache-Control: no-store. It is for handlers, and answers the errors of lock, dedup, stock and
// gormplugin as the guard itself answers; every other error is a 500 whose text is neither shown nor logged, so log it
// before. An error that says the service has called holdfast wrongly is a 500 too, and its text, which holds no value, goes to
// [slog.Default]. On HEAD there is no body.
//
// An error that only says that the request's context has ended is answered by the cause of that, where it has one: a
// lock that was lost is a 503. Where the writer can tell that the answer has begun, WriteProblem does nothing. An error
// handler set with [WithErrorHandler] is not asked.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	if t := fault.TypeOf(err); t == fault.Misuse || t == fault.Unguarded {
		slog.LogAttrs(r.Context(), slog.LevelError, "holdfast: a handler cannot work", slog.String("error_type", string(t)), slog.String("error", fault.TextOf(err)))
	}
	writeProblem(w, r, err)
}

func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	if begun(w) {
		return
	}
	if fault.TypeOf(err) == fault.Internal && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		if cause := context.Cause(r.Context()); fault.TypeOf(cause) != fault.Internal && cause != nil {
			err = cause
		}
	}
	p := Describe(err)
	h := w.Header()
	for _, name := range [...]string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name) // of an answer that was begun and is not given
	}
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", p.retryHeader())
	} else {
		h.Del("Retry-After")
	}
	h.Set("Content-Type", contentType)
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, a number and a bool cannot fail
	}
	_, _ = w.Write(append(body, '\n')) // fails if the client has left, and then nobody reads it
}
