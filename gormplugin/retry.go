package gormplugin

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

const (
	retryAttempts = 5
	retryLeast    = 5 * time.Millisecond   // shortest wait between two attempts
	retryMost     = 250 * time.Millisecond // longest
	commitGrace   = 5 * time.Second        // how long a COMMIT may go on after ctx has ended
)

// Retry runs fn in a transaction and commits it, and runs the whole again, at most 5 times in all, while the database
// answers with a serialization failure, a deadlock or a lock wait that timed out. Between two attempts it waits 5 to 250 ms
// with full jitter, within ctx. It returns nil once a COMMIT has succeeded. db must not be in a transaction already.
//
// fn may run several times: it must have no effect outside its transaction, and what it keeps must be set afresh each time.
// Models that guarded statements and [InsertOnce] changed in memory are put back whenever the transaction is rolled back.
// An error of fn rolls back and is returned as it is; so is a panic passed on. The statements of fn belong to tx; ctx is
// already in it.
//
// Errors besides those of fn:
//
//   - [ErrConflict]: all attempts met a conflict, or ctx ended while waiting; its cause is the last one.
//   - [ErrUnknownOutcome]: the reply to COMMIT was lost. If an [InsertOnce] of that attempt had inserted its row, the whole
//     is repeated first: either the row is found, and the work has landed, or it is done now.
//   - [ErrStaleFence] with the reason "lease", and ErrorType of the lease's verdict: a lease in ctx was over before COMMIT,
//     so nothing was written.
//   - [ErrUnavailable]: ctx was over before COMMIT, or the database could not be reached; nothing was written.
//   - the error that ended the transaction, where fn has returned nil in spite of it.
//   - [ErrInvalid]: db is in a transaction, or has no plugin.
//
// Hold the lock longer than the transaction: acquire, then Retry, then release. A COMMIT on its way is waited for, up to 5 s
// after ctx has ended on PostgreSQL; MySQL's driver waits for it as long as the DSN's readTimeout says.
func Retry(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	p, err := pluginOf(db)
	if err != nil {
		return err
	}
	if inTransaction(db.Statement.ConnPool) {
		return fail(ErrInvalid, "nested", "Retry begins its own transaction: call it on the *gorm.DB outside, or use tx.Transaction inside")
	}
	var unknown error // a COMMIT whose reply was lost, and nobody has seen yet whether it landed
	for attempt := 1; ; attempt++ {
		end := p.attempt(ctx, db, fn)
		if end.resolved || end.err == nil {
			unknown = nil
		}
		if unknown != nil && !errors.Is(end.err, ErrUnknownOutcome) {
			end.err = &Error{sentinel: ErrUnknownOutcome, reason: "commit", cause: errors.Join(unknown, end.err)}
		}
		again := errors.Is(end.err, ErrConflict)
		if errors.Is(end.err, ErrUnknownOutcome) {
			again = end.inserted || unknown != nil && again
			unknown = end.err
		}
		if !again || attempt == retryAttempts {
			return end.err
		}
		if !sleep(ctx, backoff(attempt, rand.Int64N)) {
			return p.interrupted(ctx, end.err)
		}
	}
}

// attempt is how one run of fn ended.
type attemptEnd struct {
	err      error
	inserted bool // InsertOnce inserted a row
	resolved bool // InsertOnce inserted a row or found it
}

// attempt begins, runs fn and commits, once.
func (p *Plugin) attempt(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) attemptEnd {
	if over := leaseOver(ctx, &table{}); over != nil {
		return attemptEnd{err: over}
	}
	// The transaction ends with ctx, but a COMMIT under way does not: cut off, nobody would know what became of it.
	txCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	attached := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer attached()

	endMark := reqctx.BeginTx(ctx)
	defer endMark()
	begun := db.WithContext(txCtx).Begin()
	if begun.Error != nil {
		return attemptEnd{err: p.judge.beginError(begun.WithContext(ctx), begun.Error)}
	}
	tx := begun.WithContext(ctx)
	pool := tx.Statement.ConnPool
	state, forget := p.judge.txs.begin(pool)
	defer forget()

	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			rollback(pool)
			state.putBack()
		}
	}()
	err := fn(tx)
	returned = true

	if err == nil {
		if over := leaseOver(ctx, &table{}); over != nil {
			err = over
		} else if !attached() {
			err = contextOver(ctx)
		}
	} else {
		err = p.judge.conflictIn(tx, err)
	}
	if err != nil {
		rollback(pool)
		state.putBack()
		return endOf(state, err)
	}
	graced := context.AfterFunc(ctx, func() {
		time.AfterFunc(commitGrace, func() { cancel(context.Cause(ctx)) })
	})
	defer graced()
	if err := commit(txCtx, db.Name(), pool); err != nil {
		err = p.judge.commitError(tx, err, false)
		state.putBack()
		return endOf(state, err)
	}
	return attemptEnd{}
}

func endOf(s *txState, err error) attemptEnd {
	end := attemptEnd{err: err}
	end.inserted, end.resolved = s.onceSaw()
	return end
}

func rollback(pool gorm.ConnPool) {
	if tx, ok := pool.(gorm.TxCommitter); ok {
		_ = tx.Rollback() // the server rolls back what it loses the connection of
	}
}

// commit commits, and rolls back what could not be.
func commit(ctx context.Context, dialect string, pool gorm.ConnPool) error {
	committer, ok := pool.(gorm.TxCommitter)
	if !ok {
		return gorm.ErrInvalidTransaction
	}
	if tx := sqlTx(pool); tx != nil && dialect == dialectSQLite {
		// A COMMIT that finds readers is refused and leaves the transaction open, but database/sql would hand the
		// connection to somebody else. As a statement it can be rolled back afterwards.
		_, err := tx.ExecContext(ctx, "COMMIT")
		_ = tx.Rollback()
		return err
	}
	err := committer.Commit()
	if err != nil {
		_ = committer.Rollback() // where it was refused before it was sent
	}
	return err
}

// interrupted is the end of a Retry whose ctx ended while it waited.
func (p *Plugin) interrupted(ctx context.Context, err error) error {
	sentinel := ErrConflict
	if errors.Is(err, ErrUnknownOutcome) {
		sentinel = ErrUnknownOutcome
	}
	return &Error{sentinel: sentinel, reason: "context", cause: errors.Join(err, contextCause(ctx))}
}

// backoff returns how long to wait after an attempt: at random between the least and a ceiling that grows fourfold.
func backoff(attempt int, random func(n int64) int64) time.Duration {
	ceiling := retryLeast
	for range attempt {
		ceiling = min(4*ceiling, retryMost)
	}
	return retryLeast + time.Duration(random(int64(ceiling-retryLeast)+1))
}

// sleep waits and reports whether ctx lived that long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
