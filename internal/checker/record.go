package checker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// What was asked for: values of Record.Op.
const (
	Deduct   = "deduct"   // units for a user; the empty Op too
	Confirm  = "confirm"  // they are paid for
	Release  = "release"  // they come back
	Restock  = "restock"  // more units
	Withdraw = "withdraw" // fewer units
	Write    = "write"    // a fenced write to a row of SQL
	Pay      = "pay"      // an order's row is to be paid
	Close    = "close"    // an order's row is to be closed
	Return   = "return"   // nobody's question: somebody has looked, and at the end of the look the units were back
)

// Answers that are no error types: values of Record.Outcome. The others are those of package fault.
const (
	Deducted  = "deducted"
	Replayed  = "replayed"
	Confirmed = "confirmed"
	Released  = "released"
	Applied   = "applied" // of a restock, a withdrawal or a write; a row that this call has paid or closed
	NoAnswer  = ""        // nobody knows what happened
)

// Record is one answer of a run, or a question that was never answered.
type Record struct {
	// ID, where given, is the question's: a later record with the same ID replaces the earlier one. So a question can be
	// written down before it is asked, and its answer after.
	ID string `json:"id,omitempty"`
	// Op is what was asked for, Deduct if empty.
	Op string `json:"op,omitempty"`
	// Request, Order and Operation are the ids of the step; the order of a refusal is empty, unless units were taken and
	// given back on the way to it.
	Request   string `json:"request,omitempty"`
	Order     string `json:"order,omitempty"`
	Operation string `json:"operation,omitempty"`
	User      string `json:"user,omitempty"`
	Item      string `json:"item,omitempty"`
	Activity  string `json:"activity,omitempty"`
	Units     int64  `json:"units,omitempty"`
	// Outcome is the answer.
	Outcome string `json:"outcome,omitempty"`
	// Reason is why units were released; those that SQL refused ("insufficient") do not come back.
	Reason string `json:"reason,omitempty"`
	// Fence is the one that SQL has accepted, for the row of the item or the one that Row names.
	Fence int64  `json:"fence,omitempty"`
	Row   string `json:"row,omitempty"`
	// Instance is who answered.
	Instance string `json:"instance,omitempty"`
	// Start and End are when the question was asked and when the answer was there, by one clock for the whole run.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
}

// Outcome returns done for nil, and else the error's type.
func Outcome(err error, done string) string {
	if err == nil {
		return done
	}
	return string(fault.TypeOf(err))
}

// taken tells whether units were taken for certain, and are the order's.
func (r *Record) taken() bool {
	return r.is(Deduct) && (r.Outcome == Deducted || r.Outcome == Replayed)
}

func (r *Record) is(op string) bool { return r.Op == op || r.Op == "" && op == Deduct }

// unknown tells whether the step may have happened or not.
func (r *Record) unknown() bool {
	switch r.Outcome {
	case NoAnswer, string(fault.UnknownOutcome), string(fault.Internal):
		return true
	}
	return false
}

// endsBefore tells whether r had been answered when the other one was asked.
func (r *Record) endsBefore(other *Record) bool { return !r.End.IsZero() && r.End.Before(other.Start) }

// Recorder collects records. It is safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex
	w    io.Writer
	recs []Record
	err  error
}

// NewRecorder returns a Recorder that keeps what is added, and also writes it to w unless that is nil: each record at
// once and with one Write, so that a process that is killed leaves whole lines, and several may append to one file.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w} }

// Add adds a record. An error of the writer is kept for Err.
func (r *Recorder) Add(rec Record) {
	var line []byte
	var err error
	if r.w != nil {
		line, err = json.Marshal(rec)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recs = append(r.recs, rec)
	if r.w != nil && err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = err
	}
}

// Err returns the first error of the writer.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Records returns what was added.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return merge(slices.Clone(r.recs))
}

// ReadRecords reads what Recorders have written. A last line that is cut off is left out: whoever wrote it was killed.
func ReadRecords(from io.Reader) ([]Record, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("checker: history: %w", err)
	}
	var recs []Record
	for n := 1; len(text) > 0; n++ {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		text = rest
		if len(line) == 0 {
			continue
		}
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			if !whole {
				break
			}
			return nil, fmt.Errorf("checker: history, line %d: %w", n, err)
		}
		recs = append(recs, rec)
	}
	return merge(recs), nil
}

// merge puts an answer in the place of its question.
func merge(recs []Record) []Record {
	at := map[string]int{}
	merged := recs[:0]
	for _, rec := range recs {
		if i, known := at[rec.ID]; known && rec.ID != "" {
			merged[i] = rec
			continue
		}
		at[rec.ID] = len(merged)
		merged = append(merged, rec)
	}
	return merged
}
