package dedup

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// BoardStore is a store whose records an operator can look at and reopen. It is optional; RedisStore is one.
type BoardStore interface {
	Store

	// Scan yields the ids of records, in parts, each at least once, until yield returns false.
	Scan(ctx context.Context, yield func(ids []string) bool) error
	// Look returns what is known of a record; ok is false if there is none.
	Look(ctx context.Context, id string) (e Entry, ok bool, err error)
	// Reopen makes the record one that has failed, whatever it was. It returns ErrInFlight if it is running and its lease
	// is alive, ErrNoRecord if there is none.
	Reopen(ctx context.Context, id string) error
}

// State is the state of a record, as an operator sees it.
type State string

// The states. A lapsed record was running when its owner ended without a word.
const (
	StateRunning State = "running"
	StateLapsed  State = "lapsed"
	StateFailed  State = "failed"
	StateDone    State = "done"
	StateCorrupt State = "corrupt"
)

// Entry is what an operator sees of a record. It holds neither token nor fingerprint nor the client's key: who has that
// key finds the record id in the log, under its request_hash.
type Entry struct {
	ID          string
	State       State
	Attempt     int           // 0 if it cannot be read
	Takeover    bool          // this attempt has taken over from one that had lapsed
	Began       time.Time     // the first attempt, by the store's clock; zero if it is not known
	Lease       time.Duration // until the lease ends; negative: since when it has; 0 unless running or lapsed
	Life        time.Duration // until the record ends
	Code        int           // done
	Omitted     bool          // done: a tombstone
	Size        int           // done: bytes of data
	TraceParent string        // of the first execution
}

// Entries returns up to limit records, at least 1, in no particular order: those in one of the states, or all if none is
// named. It goes through the whole database step by step (SCAN, never KEYS) and asks for each record, so a record that
// changes meanwhile may be in it or not. It is for operators.
func (d *Dedup) Entries(ctx context.Context, limit int, states ...State) ([]Entry, error) {
	b, err := d.board()
	if err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, invalid(fmt.Sprintf("a limit of %d records: at least 1", limit))
	}
	var entries []Entry
	var lookErr error
	seen := map[string]bool{} // a scan may give an id twice
	err = b.Scan(ctx, func(ids []string) bool {
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			e, ok, err := b.Look(ctx, id)
			if err != nil {
				lookErr = err
				return false
			}
			if ok && (len(states) == 0 || slices.Contains(states, e.State)) {
				entries = append(entries, e)
			}
			if len(entries) == limit {
				return false
			}
		}
		return true
	})
	if lookErr != nil {
		err = lookErr
	}
	if err != nil {
		return nil, typed(err)
	}
	return entries, nil
}

// Entry returns the record with that id; ok is false if there is none.
func (d *Dedup) Entry(ctx context.Context, id string) (e Entry, ok bool, err error) {
	b, err := d.board()
	if err != nil {
		return Entry{}, false, err
	}
	e, ok, err = b.Look(ctx, id)
	return e, ok, typed(err)
}

// Settle ends a record that has lapsed or failed, for an operator who knows that the effect has happened: from now on it
// is done, and repeats get r, whose Data only the code that made the other results can have written, so mostly a
// tombstone: a Code, and Omitted. It lives for ttl, or for DefaultTTL if ttl is 0. settled is false if it was done
// already; then nothing is changed. The error is ErrInFlight if somebody is at work, ErrNoRecord if there is none,
// ErrClosed after Close, or what Begin and Complete of a store return.
//
// The reason is for the log, at level warn: who does it and why, 1 to 256 bytes.
func (d *Dedup) Settle(ctx context.Context, id string, r Result, ttl time.Duration, reason string) (settled bool, err error) {
	if err := checkReason(reason); err != nil {
		return false, err
	}
	if !d.work.enter() {
		return false, &Error{Err: ErrClosed}
	}
	defer d.work.leave()
	if ttl == 0 {
		ttl = DefaultTTL
	}
	o := Owner{ID: id, Token: rand.Text()}
	a, err := d.store.Begin(ctx, BeginRequest{Owner: o, Lease: d.cfg.lease, TTL: ttl})
	o.Attempt = a.Attempt
	switch {
	case err != nil:
		d.abandon(o)
		return false, typed(err)
	case a.Verdict == VerdictReplay:
		return false, nil
	case a.Verdict == VerdictInFlight:
		return false, &Error{Err: ErrInFlight, Reason: "its lease ends in " + a.Rest.String()}
	case a.Verdict == VerdictCorrupt:
		return false, &Error{Err: ErrCorrupt, Code: a.Result.Code}
	case a.Verdict != VerdictRun:
		return false, &Error{Err: ErrUnknownOutcome, Reason: "the store gave no verdict"}
	case a.Attempt == 1: // there was none, and now there is one of ours
		if err := d.store.Forget(ctx, o); err != nil {
			d.abandon(o)
		}
		return false, &Error{Err: ErrNoRecord}
	}
	if err := d.store.Complete(ctx, o, r, ttl); err != nil {
		if failed := d.store.Fail(context.WithoutCancel(ctx), o); failed != nil {
			d.abandon(o) // of a later attempt: it becomes one that has failed
		}
		return false, typed(err)
	}
	d.tel.byHand(ctx, id, "dedup: settled by hand", reason, slog.Int("code", r.Code))
	return true, nil
}

// Reopen lets a request run again, as the next attempt, for an operator who knows that its effect has not happened, or
// may happen again: the record is then one that has failed, whether it had lapsed, failed or was done. The result of a
// done one is lost. The error is ErrInFlight if somebody is at work, ErrNoRecord if there is none, ErrCorrupt if what is
// there is no record. The reason is as in Settle. It may be called twice.
func (d *Dedup) Reopen(ctx context.Context, id, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	b, err := d.board()
	if err != nil {
		return err
	}
	if err := b.Reopen(ctx, id); err != nil {
		return typed(err)
	}
	d.tel.byHand(ctx, id, "dedup: reopened by hand", reason)
	return nil
}

func (d *Dedup) board() (BoardStore, error) {
	if b, ok := d.store.(BoardStore); ok {
		return b, nil
	}
	return nil, invalid("this store cannot show its records: it is no BoardStore")
}

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > 256 {
		return invalid("a reason of 1 to 256 bytes is needed for the log: who does it, and why")
	}
	return nil
}

// byHand logs what an operator has done.
func (i *instruments) byHand(ctx context.Context, id, text, reason string, more ...slog.Attr) {
	t := told{outcome: "by_hand", id: id}
	i.write(ctx, slog.LevelWarn, text, reqctx.RuleOf(ctx), &t, 0, append(more, slog.String("reason", reason))...)
}
