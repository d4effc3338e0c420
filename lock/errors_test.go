package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

func TestTextsNameTheRuleAndNothingSecret(t *testing.T) {
	rule := &reqctx.Rule{Name: "POST /items/{itemID}/orders"}
	secret := errors.New("dial tcp 10.0.0.7:6379: refused")
	k := keys("stock:secret")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&BusyError{Keys: k, Reason: Budget, Attempts: 7, Waited: 2*time.Second + 345*time.Microsecond, rule: rule}, `lock: busy after 7 attempts in 2s (rule "POST /items/{itemID}/orders")`},
		{&BusyError{Keys: k, Reason: Cancelled, Attempts: 1, Waited: 1234567, cause: context.Canceled}, `lock: busy after 1 attempt in 1.23ms`},
		{&LostError{Keys: k, Reason: Taken, rule: rule}, `lock: lost (taken) (rule "POST /items/{itemID}/orders")`},
		{&Error{Keys: k, sentinel: ErrUnavailable, rule: rule, cause: secret}, `lock: Redis is unavailable (rule "POST /items/{itemID}/orders")`},
		{&Error{Keys: k, sentinel: ErrUnknownOutcome, cause: secret}, `lock: no reply from Redis`},
		{&Error{Keys: k, cause: secret}, `lock: the context ended before the lock was tried`},
		{invalid("TTL(%v) is too short", time.Millisecond), `lock: invalid argument: TTL(1ms) is too short`},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("text %q, want %q", got, tt.want)
		}
		if strings.Contains(tt.err.Error(), "secret") || strings.Contains(tt.err.Error(), "10.0.0.7") {
			t.Errorf("%q tells a key or an address", tt.err)
		}
	}
}

// Each error says by its type how it is answered and whether to try again, and matches what it wraps.
func TestErrorsMatchTheirSentinelAndCause(t *testing.T) {
	cause := errors.New("cause")
	for _, tt := range []struct {
		err       error
		is        []error
		isNot     []error
		typ       fault.Type
		retryable bool
	}{
		{&BusyError{cause: context.Canceled}, []error{ErrBusy, context.Canceled}, []error{ErrUnavailable}, fault.Busy, true},
		{&LostError{}, []error{ErrLost}, []error{ErrReleased}, fault.Lost, true},
		{&Error{sentinel: ErrReleased}, []error{ErrReleased}, []error{ErrLost}, fault.LeaseReleased, false},
		{&Error{sentinel: ErrUnavailable, cause: cause}, []error{ErrUnavailable, cause}, []error{ErrUnknownOutcome}, fault.Unavailable, true},
		{&Error{sentinel: ErrUnknownOutcome}, []error{ErrUnknownOutcome}, []error{ErrUnavailable}, fault.UnknownOutcome, true},
		{&Error{sentinel: ErrClosed}, []error{ErrClosed}, nil, fault.Closed, true},
		{&Error{sentinel: ErrForeignKey}, []error{ErrForeignKey}, []error{ErrBusy}, fault.ForeignKey, false},
		{invalid("x"), []error{ErrInvalid}, nil, fault.Misuse, false},
	} {
		for _, want := range tt.is {
			if !errors.Is(tt.err, want) {
				t.Errorf("%v does not match %v", tt.err, want)
			}
		}
		for _, no := range tt.isNot {
			if errors.Is(tt.err, no) {
				t.Errorf("%v matches %v", tt.err, no)
			}
		}
		var behaviour interface{ Retryable() bool }
		if got := fault.TypeOf(tt.err); got != tt.typ || !errors.As(tt.err, &behaviour) || behaviour.Retryable() != tt.retryable {
			t.Errorf("%v: type %q, want %q, retryable %v", tt.err, got, tt.typ, tt.retryable)
		}
	}
	if d := (&BusyError{}).RetryAfter(); d != time.Millisecond {
		t.Errorf("RetryAfter of a busy lock of which nothing is known is %v, want 1ms", d)
	}
}

// What the transport knows decides: nothing was done, or nobody knows.
func TestErrorsOfTheTransport(t *testing.T) {
	for kind, want := range map[redisx.Kind]error{redisx.Unavailable: ErrUnavailable, redisx.Unknown: ErrUnknownOutcome, redisx.Failed: ErrUnknownOutcome} {
		if err := translate(&redisx.Error{Kind: kind, Err: errors.New("x")}); !errors.Is(err, want) {
			t.Errorf("kind %d: %v, want %v", kind, err, want)
		}
	}
	if translate(nil) != nil {
		t.Error("no error became one")
	}
	for _, val := range []any{nil, "x", []any{}, []any{"x"}, []any{int64(1), 1.5}, []any{int64(1), "1e17"}, []any{int64(1), int64(1), int64(1), int64(1)}} {
		if _, err := parse(scripts.acquire, val); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("answer %v: %v, want ErrUnknownOutcome", val, err)
		}
	}
}
