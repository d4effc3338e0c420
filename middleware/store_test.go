package middleware

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

// hooked is a store of which single calls are replaced.
type hooked struct {
	dedup.Store
	begin    func(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error)
	renew    func(ctx context.Context, o dedup.Owner, lease time.Duration) error
	complete func(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error
	fail     func(ctx context.Context, o dedup.Owner) error
}

func (h *hooked) Begin(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
	if h.begin != nil {
		return h.begin(ctx, b)
	}
	return h.Store.Begin(ctx, b)
}

func (h *hooked) Renew(ctx context.Context, o dedup.Owner, lease time.Duration) error {
	if h.renew != nil {
		return h.renew(ctx, o, lease)
	}
	return h.Store.Renew(ctx, o, lease)
}

func (h *hooked) Complete(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error {
	if h.complete != nil {
		return h.complete(ctx, o, r, ttl)
	}
	return h.Store.Complete(ctx, o, r, ttl)
}

func (h *hooked) Fail(ctx context.Context, o dedup.Owner) error {
	if h.fail != nil {
		return h.fail(ctx, o)
	}
	return h.Store.Fail(ctx, o)
}

// store returns the shop's own store, to hook into.
func (s *shop) store() *hooked {
	s.t.Helper()
	st, err := dedup.NewRedisStore(s.rdb, s.prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	return &hooked{Store: st}
}

// lapsing returns a store whose claims lapse after the given time, as those of a process that has stopped.
func (s *shop) lapsing(after time.Duration) *hooked {
	h := s.store()
	h.begin = func(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
		b.Lease = after
		return h.Store.Begin(ctx, b)
	}
	return h
}

// lapsed waits until the only record has lapsed by the clock of the store.
func (s *shop) lapsed(t *testing.T) {
	t.Helper()
	_, fields := s.record()
	if fields["lease"] == "" {
		t.Fatalf("no lease in %v", fields)
	}
	eventuallyPast(t, s, fields["lease"])
}
