package deduptest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

// Memory is a store in memory, for tests: it obeys the contract and is what other stores are compared with. It reads
// the time with time.Now, so in a bubble of testing/synctest its records lapse by the bubble's clock. Safe for
// concurrent use.
type Memory struct {
	mu      sync.Mutex
	records map[string]*record
}

type record struct {
	state       string
	token       string
	attempt     int
	takeover    bool
	fingerprint []byte
	traceParent string
	lease       int64 // deadline, Unix milliseconds
	gone        int64 // end of life, Unix milliseconds
	result      dedup.Result
}

const (
	running = "running"
	done    = "done"
	failed  = "failed"
)

var _ dedup.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{records: map[string]*record{}} }

// Begin implements dedup.Store.
func (m *Memory) Begin(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
	if err := check(ctx, b.Owner, b.Lease, b.TTL); err != nil {
		return dedup.Answer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMilli()
	r := m.find(b.ID, now)
	if r == nil {
		r = &record{traceParent: b.TraceParent}
		m.records[b.ID] = r
		return r.run(b, now, 1, false), nil
	}
	switch {
	case len(r.fingerprint) > 0 && len(b.Fingerprint) > 0 && !bytes.Equal(r.fingerprint, b.Fingerprint):
		return dedup.Answer{Verdict: dedup.VerdictMismatch}, nil
	case r.state == done:
		result := r.result
		result.Data = slices.Clone(result.Data)
		return dedup.Answer{Verdict: dedup.VerdictReplay, Attempt: r.attempt, Result: result, TraceParent: r.traceParent}, nil
	case r.token == b.Token && r.state == failed:
		return dedup.Answer{Verdict: dedup.VerdictInFlight, Attempt: r.attempt, TraceParent: r.traceParent}, nil
	case r.token == b.Token:
		return r.run(b, now, r.attempt, r.takeover), nil
	case r.state == failed:
		return r.run(b, now, r.attempt+1, false), nil
	case r.lease > now:
		rest := time.Duration(r.lease-now) * time.Millisecond
		return dedup.Answer{Verdict: dedup.VerdictInFlight, Attempt: r.attempt, Rest: rest, TraceParent: r.traceParent}, nil
	case b.NoTakeover:
		return dedup.Answer{Verdict: dedup.VerdictInterrupted, Attempt: r.attempt, TraceParent: r.traceParent}, nil
	}
	return r.run(b, now, r.attempt+1, true), nil
}

func (r *record) run(b dedup.BeginRequest, now int64, attempt int, takeover bool) dedup.Answer {
	r.state, r.token, r.attempt, r.takeover = running, b.Token, attempt, takeover
	if len(r.fingerprint) == 0 {
		r.fingerprint = slices.Clone(b.Fingerprint)
	}
	r.lease, r.gone = now+milliseconds(b.Lease), now+milliseconds(b.TTL)
	return dedup.Answer{Verdict: dedup.VerdictRun, Attempt: attempt, Takeover: takeover, TraceParent: r.traceParent}
}

// Renew implements dedup.Store.
func (m *Memory) Renew(ctx context.Context, o dedup.Owner, lease time.Duration) error {
	if err := check(ctx, o, lease); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMilli()
	switch r := m.find(o.ID, now); {
	case r == nil:
		return dedup.ErrNoRecord
	case r.token != o.Token || r.state != running:
		return dedup.ErrLeaseLost
	default:
		r.lease = now + milliseconds(lease)
		return nil
	}
}

// Complete implements dedup.Store.
func (m *Memory) Complete(ctx context.Context, o dedup.Owner, res dedup.Result, ttl time.Duration) error {
	if err := check(ctx, o, ttl); err != nil {
		return err
	}
	if o.Attempt < 1 || res.Code < 0 {
		return dedup.ErrInvalid
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMilli()
	r := m.find(o.ID, now)
	switch {
	case r == nil:
		r = &record{token: o.Token, attempt: o.Attempt, fingerprint: slices.Clone(o.Fingerprint)}
		m.records[o.ID] = r
	case r.token != o.Token || r.state == failed:
		return dedup.ErrLeaseLost
	}
	r.state, r.result, r.gone = done, res, now+milliseconds(ttl)
	r.result.Data = append([]byte{}, res.Data...)
	return nil
}

// Fail implements dedup.Store.
func (m *Memory) Fail(ctx context.Context, o dedup.Owner) error { return m.giveUp(ctx, o, false) }

// Forget implements dedup.Store.
func (m *Memory) Forget(ctx context.Context, o dedup.Owner) error { return m.giveUp(ctx, o, true) }

func (m *Memory) giveUp(ctx context.Context, o dedup.Owner, forget bool) error {
	if err := check(ctx, o); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(o.ID, time.Now().UnixMilli())
	switch {
	case r == nil:
		return dedup.ErrNoRecord
	case r.token != o.Token || r.state == done:
		return dedup.ErrLeaseLost
	case forget && r.state == running && r.attempt == 1:
		delete(m.records, o.ID)
	default:
		r.state = failed
	}
	return nil
}

// Remove makes the store forget a record, as a server that evicts, is flushed or loses a failover would.
func (m *Memory) Remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
}

// find returns the record, nil if there is none or its life is over.
func (m *Memory) find(id string, now int64) *record {
	r := m.records[id]
	if r != nil && r.gone <= now {
		delete(m.records, id)
		return nil
	}
	return r
}

func check(ctx context.Context, o dedup.Owner, durations ...time.Duration) error {
	if ctx.Err() != nil {
		return &dedup.Error{Err: dedup.ErrUnavailable, Cause: context.Cause(ctx)}
	}
	if o.ID == "" || o.Token == "" {
		return dedup.ErrInvalid
	}
	for _, d := range durations {
		if d < time.Millisecond {
			return dedup.ErrInvalid
		}
	}
	return nil
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
