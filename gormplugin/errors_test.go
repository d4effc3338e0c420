package gormplugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// One sentinel, one type, and what Refused makes of it: a refusal is final and nothing was written, so what was taken
// elsewhere may be given back. "Already applied" and "unknown" must never be.
func TestSentinels(t *testing.T) {
	tests := map[error]struct {
		typ       fault.Type
		refused   bool
		retryable bool
		finds     error
	}{
		ErrInsufficient:    {fault.Insufficient, true, false, nil},
		ErrNotFound:        {fault.NotFound, true, false, gorm.ErrRecordNotFound},
		ErrStaleFence:      {fault.StaleFence, true, false, nil},
		ErrVersionConflict: {fault.VersionConflict, true, false, nil},
		ErrAlreadyApplied:  {fault.Duplicate, false, false, gorm.ErrDuplicatedKey},
		ErrDuplicate:       {fault.Duplicate, true, false, gorm.ErrDuplicatedKey},
		ErrUnguardedWrite:  {fault.Unguarded, true, false, nil},
		ErrInvalid:         {fault.Misuse, true, false, nil},
		ErrConflict:        {fault.Conflict, false, true, nil},
		ErrUnavailable:     {fault.Unavailable, false, true, nil},
		ErrUnknownOutcome:  {fault.UnknownOutcome, false, true, nil},
	}
	for sentinel, want := range tests {
		e := fail(sentinel, "reason", "")
		for _, err := range []error{e, fmt.Errorf("more: %w", e), errors.Join(errors.New("first"), e)} {
			if fault.TypeOf(err) != want.typ || Refused(err) != want.refused || !errors.Is(err, sentinel) {
				t.Errorf("%v: type %q, refused %v", err, fault.TypeOf(err), Refused(err))
			}
			if want.finds != nil && !errors.Is(err, want.finds) {
				t.Errorf("%v does not find %v", err, want.finds)
			}
			for other := range tests {
				if other != sentinel && errors.Is(err, other) { //nolint:errorlint // sentinels themselves
					t.Errorf("%v is %v too", err, other)
				}
			}
		}
		if e.Retryable() != want.retryable || !strings.HasPrefix(e.Error(), "gormplugin: ") {
			t.Errorf("%v: retryable %v", e, e.Retryable())
		}
	}
}

func TestRefusedIsFalseForWhatIsNotOurs(t *testing.T) {
	lost := fault.New(fault.Lost, "lock: lost")
	for name, err := range map[string]error{
		"nil":                    nil,
		"another error":          errors.New("x"),
		"a lost lease":           &Error{sentinel: ErrStaleFence, reason: "lease", typ: fault.Lost, cause: lost},
		"a refusal, but unknown": errors.Join(fail(ErrInsufficient, "below_min", ""), fail(ErrUnknownOutcome, "commit", "")),
	} {
		if Refused(err) {
			t.Errorf("%s counts as a refusal", name)
		}
	}
	if !Refused(&Error{sentinel: ErrInsufficient, reason: "raced", raced: true}) {
		t.Error("a refusal by a row that moved is none")
	}
}

// A lease that is over answers as its verdict does.
func TestLeaseThatIsOverHasTheTypeOfItsVerdict(t *testing.T) {
	lost := fault.New(fault.Lost, "lock: lost")
	e := &Error{sentinel: ErrStaleFence, reason: "lease", typ: fault.Lost, cause: lost}
	if e.ErrorType() != "lost" || !errors.Is(e, lost) || !errors.Is(e, ErrStaleFence) || !e.Retryable() {
		t.Errorf("type %q", e.ErrorType())
	}
}

// The text of an error goes to logs: no number, key, constraint or SQL is in it, whatever the driver says.
func TestTextHoldsNoValue(t *testing.T) {
	driver := &pgconn.PgError{Code: "23505", Message: "secret-value", ConstraintName: "secret-index", Detail: "Key (x)=(secret)"}
	e := &Error{
		sentinel: ErrDuplicate, mapped: errBought, cause: driver, reason: "reason", table: "orders", column: "user_id", index: "secret-index",
		available: "secret", requested: "secret", limit: "secret", ours: "secret", stored: "secret", line: 3,
	}
	if got, want := e.Error(), "gormplugin: duplicate of a unique index: orders.user_id (reason): already bought"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// gorm's driver for PostgreSQL translates by marshalling errors and looking for a field Code: ours must not look like one.
func TestErrorIsNothingToTheDriversTranslator(t *testing.T) {
	e := &Error{sentinel: ErrInsufficient, cause: &pgconn.PgError{Code: "23505"}}
	if got := (postgres.Dialector{}).Translate(e); got != error(e) { //nolint:errorlint // the value itself
		t.Errorf("translated to %v", got)
	}
}

func TestLineIsMinusOneWhereThereIsNone(t *testing.T) {
	if got := fail(ErrInvalid, "", "").Line(); got != -1 {
		t.Errorf("Line() = %d, want -1", got)
	}
	if got := (&Error{sentinel: ErrInvalid, line: 1}).Line(); got != 0 {
		t.Errorf("Line() = %d, want 0", got)
	}
}
