package dedup

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

var (
	//go:embed lua/look.lua
	lookSource string
	//go:embed lua/reopen.lua
	reopenSource string

	lookScript   = redisx.NewScript("dedup/look.lua", lookSource)
	reopenScript = redisx.NewScript("dedup/reopen.lua", reopenSource)
)

var _ BoardStore = (*RedisStore)(nil)

// Scan implements BoardStore, with SCAN on each master.
func (s *RedisStore) Scan(ctx context.Context, yield func(ids []string) bool) error {
	err := s.rdb.ScanHashes(ctx, s.prefix, func(keys []string) bool {
		ids := make([]string, len(keys))
		for i, key := range keys {
			ids[i] = strings.TrimPrefix(key, s.prefix)
		}
		return yield(ids)
	})
	return sendError(nil, err)
}

// Look implements BoardStore.
func (s *RedisStore) Look(ctx context.Context, id string) (e Entry, ok bool, err error) {
	if id == "" {
		return Entry{}, false, invalid("the record id is empty")
	}
	reply, err := s.rdb.Run(ctx, lookScript, []string{s.prefix + id})
	if err != nil {
		return Entry{}, false, sendError(lookScript, err)
	}
	list, isList := reply.Val.([]any)
	if isList && len(list) == 0 {
		return Entry{}, false, nil
	}
	in := answerReader{list: list}
	v, st := in.string(), in.string()
	attempt, lease := in.string(), in.string()
	e = Entry{ID: id, State: State(st), Takeover: in.string() == "1", TraceParent: in.string()}
	code := in.string()
	e.Omitted = in.string() == "1"
	born, size, life, now := in.string(), in.int(), in.int(), in.int()
	if in.bad {
		return Entry{}, false, &Error{Err: ErrUnknownOutcome, Reason: fmt.Sprintf("look answered %T of %d", reply.Val, len(list))}
	}
	e.Size, e.Life = size, time.Duration(life)*time.Millisecond
	attemptErr, codeErr := error(nil), error(nil)
	e.Attempt, attemptErr = strconv.Atoi(attempt)
	if ms, err := strconv.ParseInt(born, 10, 64); err == nil {
		e.Began = time.UnixMilli(ms)
	}
	ends, leaseErr := strconv.Atoi(lease)
	switch e.State {
	case StateRunning:
		if e.Lease = time.Duration(ends-now) * time.Millisecond; e.Lease <= 0 {
			e.State = StateLapsed
		}
	case StateDone:
		e.Code, codeErr = strconv.Atoi(code)
	}
	if v != "1" || errors.Join(attemptErr, leaseErr, codeErr) != nil ||
		e.State != StateRunning && e.State != StateLapsed && e.State != StateFailed && e.State != StateDone {
		e.State = StateCorrupt
	}
	return e, true, nil
}

// Reopen implements BoardStore.
func (s *RedisStore) Reopen(ctx context.Context, id string) error {
	if id == "" {
		return invalid("the record id is empty")
	}
	reply, err := s.rdb.Run(ctx, reopenScript, []string{s.prefix + id})
	if err == nil && reply.Val == int64(-1) {
		return ErrInFlight
	}
	return verdict(reply, sendError(reopenScript, err))
}
