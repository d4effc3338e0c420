package checker

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/stock"
)

// What a Recorder writes is read back: each answer in the place of its question, and without the line that a killed
// process has left half.
func TestHistoryIsWrittenAndRead(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	rec := NewRecorder(&file)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	asked := Record{ID: "1", Request: "r1", User: "42", Item: "1001", Activity: "9", Units: 2, Instance: "a", Start: at}
	never := Record{ID: "2", Request: "r2", Start: at}
	answered := asked
	answered.Outcome, answered.Order, answered.Fence, answered.End = Deducted, "o1", 7, at.Add(time.Second)
	for _, r := range []Record{asked, never, answered} {
		rec.Add(r)
	}
	if err := rec.Err(); err != nil {
		t.Fatal(err)
	}
	want := []Record{answered, never}
	if diff := cmp.Diff(want, rec.Records()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	file.WriteString(`{"request":"r3","st`)
	got, err := ReadRecords(&file)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	if _, err := ReadRecords(strings.NewReader("{\"request\":\n{}\n")); err == nil {
		t.Error("a broken line in the middle is no error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRecorderKeepsItsWritersError(t *testing.T) {
	t.Parallel()
	rec := NewRecorder(failing{})
	rec.Add(Record{})
	if rec.Err() == nil || len(rec.Records()) != 1 {
		t.Errorf("Err = %v, %d records", rec.Err(), len(rec.Records()))
	}
}

func TestOutcomeIsTheErrorsType(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		Deducted: nil, "insufficient": fmt.Errorf("buy: %w", stock.ErrInsufficient), "internal": errors.New("x"),
	} {
		if got := Outcome(err, Deducted); got != want {
			t.Errorf("Outcome(%v) = %q, want %q", err, got, want)
		}
	}
}
