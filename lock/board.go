package lock

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// A BoardBackend can show who holds what, and take a lock away. It is optional.
type BoardBackend interface {
	Backend

	// Scan yields the keys that begin with prefix, in parts, each key at least once, until yield returns false. It may
	// yield keys of something else.
	Scan(ctx context.Context, prefix string, yield func(keys []string) bool) error

	// Look returns what is there under those of keys that have a value.
	Look(ctx context.Context, keys []string) ([]Seen, error)

	// Force removes the key if it has the token, and raises its number above that of the holder. The state is that
	// before.
	Force(ctx context.Context, key, token string) (fence int64, s State, err error)
}

// Seen is what a BoardBackend knows of one key.
type Seen struct {
	Key   string
	Token string
	Left  time.Duration // of its TTL; negative if it has none
	Fence int64         // 0 if it is not known
}

// Holder is who holds a lock. The owner token is not in it: whoever has that could release the lock.
type Holder struct {
	Key      string        // without prefix
	Instance string        // address and start of the process that holds it; empty if the holder is no Locker
	Fence    int64         // 0 if it is not known
	Since    time.Time     // when it was granted: by the server's clock and within what clocks differ; zero if it is not known
	Left     time.Duration // how long it lives without another renewal
	Local    *LocalHolder  // what this process knows of it; nil if another one holds it
}

// LocalHolder is what the process of a holder knows of it.
type LocalHolder struct {
	Rule        string // name of the rule it was taken under, if any
	RequestHash string // of the request it was taken for, if that has an id
	Renewals    int    // confirmed so far
	Nested      int    // leases nested in it at this moment
	Waiting     int    // how many wait for it in this process
}

// Holders returns who holds locks at this moment, up to limit of them, at least 1, in no particular order. It goes
// through the whole database step by step (SCAN, never KEYS), so a lock that is taken or released meanwhile may be in it
// or not. It is for operators: not for a decision, since it is out of date when it returns.
func (l *Locker) Holders(ctx context.Context, limit int) ([]Holder, error) {
	b, err := l.board()
	if err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, invalid("a limit of %d holders: at least 1", limit)
	}
	var all []Holder
	seen := map[string]bool{} // SCAN may give a key twice
	var lookErr error
	err = b.Scan(ctx, l.fullKey(""), func(keys []string) bool {
		found, err := b.Look(ctx, keys)
		if err != nil {
			lookErr = err
			return false
		}
		for _, s := range found {
			if h, ok := l.holder(s); ok && !seen[s.Key] && len(all) < limit {
				seen[s.Key] = true
				all = append(all, h)
			}
		}
		return len(all) < limit
	})
	if lookErr != nil {
		err = lookErr
	}
	if err != nil {
		return nil, l.boardError(nil, err)
	}
	return all, nil
}

// Holder returns who holds the key; ok is false if nobody does.
func (l *Locker) Holder(ctx context.Context, key string) (h Holder, ok bool, err error) {
	b, err := l.board()
	if err != nil {
		return Holder{}, false, err
	}
	_, full, err := l.lockKeys([]string{key})
	if err != nil {
		return Holder{}, false, err
	}
	found, err := b.Look(ctx, full)
	if err != nil {
		return Holder{}, false, l.boardError([]string{key}, err)
	}
	if len(found) == 0 {
		return Holder{}, false, nil
	}
	h, ok = l.holder(found[0])
	return h, ok, nil
}

// Forced is what ForceRelease has done.
type Forced struct {
	Holder       // who held the lock
	Raised int64 // the new number of the key, above that of the former holder
}

// ForceRelease takes the lock on key from whoever holds it, for an operator who knows that this holder will not come
// back, or does harm. The holder is told at its next renewal, within a third of its TTL, or at once if it is in this
// process; what it still writes under its fence is refused as soon as a row has seen a higher one. The fence is raised:
// an operator may write Raised into the rows himself.
//
// Each call leaves one line in the log, at level warn, with the reason, which must say who does it and why and must not
// be empty. ok is false if nobody holds the key; with an empty [Prefix] also where something else than a lock of this
// package lies under it. If it changes hands meanwhile, the new holder keeps it and the error matches ErrBusy.
func (l *Locker) ForceRelease(ctx context.Context, key, reason string) (f Forced, ok bool, err error) {
	if strings.TrimSpace(reason) == "" || len(reason) > 256 {
		return Forced{}, false, invalid("ForceRelease needs a reason of 1 to 256 bytes for the log")
	}
	b, err := l.board()
	if err != nil {
		return Forced{}, false, err
	}
	sorted, full, err := l.lockKeys([]string{key})
	if err != nil {
		return Forced{}, false, err
	}
	found, err := b.Look(ctx, full)
	if err != nil {
		return Forced{}, false, l.boardError(sorted, err)
	}
	if len(found) == 0 {
		return Forced{}, false, nil
	}
	h, isLock := l.holder(found[0])
	if !isLock && l.noPrefix {
		return Forced{}, false, nil // a value of somebody else's: without a prefix it may be anything
	}
	f.Holder, f.Key, f.Left = h, key, found[0].Left
	raised, s, err := b.Force(ctx, full[0], found[0].Token)
	switch {
	case err != nil:
		return f, false, l.boardError(sorted, err)
	case s == Foreign:
		return f, false, &BusyError{Keys: sorted, Reason: NoWait, Attempts: 1}
	case s == Missing:
		return f, false, nil
	}
	f.Raised = raised
	if h := l.queue.holder(full[0]); h != nil && h.held.Token == found[0].Token {
		h.end(Gone)
	}
	rule := reqctx.RuleOf(ctx)
	add(ctx, l.tel.forcedOff, l.tel.of(rule).rule)
	l.tel.write(ctx, slog.LevelWarn, "lock: taken from its holder by force", rule, sorted, 0,
		slog.String("instance", f.Instance), slog.Int64("fence", f.Fence), slog.Int64("raised_fence", raised), slog.String("reason", reason))
	return f, true, nil
}

// holder makes a Holder of what was seen. Without a prefix of our own only tokens of ours count as locks.
func (l *Locker) holder(s Seen) (Holder, bool) {
	key, ok := strings.CutPrefix(s.Key, l.fullKey(""))
	instance := instanceOf(s.Token)
	if !ok || s.Left < 0 || instance == "" && l.noPrefix {
		return Holder{}, false
	}
	h := Holder{Key: key, Instance: instance, Fence: s.Fence, Left: s.Left}
	// A number is the server's clock in microseconds unless several were given in one of them, or the clock stepped back.
	if since := time.UnixMicro(s.Fence); s.Fence > 0 && time.Since(since) > -time.Minute {
		h.Since = since
	}
	if own := l.queue.holder(s.Key); own != nil && own.held.Token == s.Token {
		h.Local = own.local(l.queue.waitingFor(s.Key))
		h.Since = own.started.Round(0)
	}
	return h, true
}

func (h *hold) local(waiting int) *LocalHolder {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &LocalHolder{Renewals: h.renewals, Nested: h.nested, Waiting: waiting}
	if h.rule != nil {
		x.Rule = h.rule.Name
	}
	if r, ok := reqctx.RequestOf(h.ctx); ok {
		x.RequestHash = r.Hash
	}
	return x
}

func (l *Locker) board() (BoardBackend, error) {
	b, ok := l.backend.(BoardBackend)
	if !ok {
		return nil, invalid("this backend cannot show who holds what")
	}
	return b, nil
}

func (l *Locker) boardError(keys []string, err error) error {
	sentinel := ErrUnknownOutcome
	if fault.TypeOf(err) == fault.Unavailable {
		sentinel = ErrUnavailable
	}
	return &Error{Keys: keys, sentinel: sentinel, cause: err}
}
