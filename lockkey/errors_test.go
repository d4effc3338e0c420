package lockkey

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/fault"
)

func TestKeyErrorText(t *testing.T) {
	tests := map[string]struct {
		err  *KeyError
		want string
	}{
		"a placeholder": {
			&KeyError{Template: "q:{header.A}", Placeholder: "{header.A}", Reason: "header A is absent", sentinel: ErrInvalid},
			`lockkey: header A is absent (placeholder {header.A}, template "q:{header.A}")`,
		},
		"no single placeholder": {
			&KeyError{Template: "q:{header.A}", Reason: "the request asks for more than 32 keys", sentinel: ErrTooManyKeys},
			`lockkey: the request asks for more than 32 keys (template "q:{header.A}")`,
		},
		"no template": {
			&KeyError{Reason: "the body is too large", sentinel: ErrBodyTooLarge},
			`lockkey: the body is too large`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("Error() = %q, want %q", got, tt.want)
			}
		})
	}
}

// The sentinels have types of the one list, and none of them is worth a retry.
func TestSentinels(t *testing.T) {
	for want, sentinel := range map[fault.Type]error{
		fault.Invalid: ErrInvalid, fault.TooManyKeys: ErrTooManyKeys, fault.BodyTooLarge: ErrBodyTooLarge,
		fault.BodyEncoding: ErrBodyEncoding, fault.Misuse: ErrMisuse,
	} {
		failed := &KeyError{sentinel: sentinel}
		if got := fault.TypeOf(failed); got != want || !slices.Contains(fault.All(), got) {
			t.Errorf("type of %v = %q, want %q", sentinel, got, want)
		}
		var retry interface{ Retryable() bool }
		if errors.As(failed, &retry) && retry.Retryable() {
			t.Errorf("%v is worth a retry", sentinel)
		}
	}
}
