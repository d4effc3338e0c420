package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// shelf is a server with one record in each state.
type shelf struct {
	d     *dedup.Dedup
	s     *dedup.RedisStore
	logs  logbook
	ids   map[dedup.State]string
	claim *dedup.Claim // of the running one
}

func newShelf(t *testing.T, rdb redis.UniversalClient, prefix string) *shelf {
	t.Helper()
	sh := &shelf{ids: map[dedup.State]string{}}
	sh.d = engine(t, rdb, dedup.Prefix(prefix), dedup.WithLogger(sh.logs.logger()))
	sh.s = store(t, rdb, prefix)
	begin := func(state dedup.State) *dedup.Claim {
		claim := begun(t, sh.d, buy(string(state)))
		sh.ids[state] = claim.RequestID()
		return claim
	}
	sh.claim = begin(dedup.StateRunning)
	t.Cleanup(func() { _ = sh.claim.Forget(t.Context(), nil, nil) })
	if err := begin(dedup.StateFailed).Fail(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := begin(dedup.StateDone).Complete(t.Context(), dedup.Result{Code: 201, Data: []byte("12345")}, 0); err != nil {
		t.Fatal(err)
	}
	sh.ids[dedup.StateLapsed] = buy("lapsed").ID()
	dead := dedup.BeginRequest{Owner: dedup.Owner{ID: sh.ids[dedup.StateLapsed], Token: "dead"}, Lease: time.Millisecond, TTL: time.Hour}
	if _, err := sh.s.Begin(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	sh.ids[dedup.StateCorrupt] = buy("corrupt").ID()
	key := prefix + "idem:" + sh.ids[dedup.StateCorrupt]
	if err := rdb.HSet(t.Context(), key, "v", "2", "st", "done", "code", "204").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Expire(t.Context(), key, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease has not lapsed", func() bool { return sh.state(t, dedup.StateLapsed) == dedup.StateLapsed })
	return sh
}

// state returns the state of the record that was put there in that state.
func (sh *shelf) state(t *testing.T, of dedup.State) dedup.State {
	t.Helper()
	e, ok, err := sh.d.Entry(t.Context(), sh.ids[of])
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return e.State
}

func TestOperatorSeesEachState(t *testing.T) {
	for _, dep := range testserver.Deployments() {
		t.Run(dep.Name, func(t *testing.T) {
			rdb, prefix := dep.Open(t)
			sh := newShelf(t, rdb, prefix)
			entries, err := sh.d.Entries(t.Context(), 100)
			if err != nil || len(entries) != 5 {
				t.Fatalf("%d entries, %v; want 5", len(entries), err)
			}
			for _, e := range entries {
				if sh.ids[e.State] != e.ID {
					t.Errorf("%+v is not the one in that state", e)
				}
				if e.Life <= 0 || e.Life > 24*time.Hour {
					t.Errorf("%s lives for %v", e.State, e.Life)
				}
				if e.State != dedup.StateCorrupt && (time.Since(e.Began).Abs() > time.Minute || e.Attempt != 1) {
					t.Errorf("%s began at %v as attempt %d", e.State, e.Began, e.Attempt)
				}
				switch e.State {
				case dedup.StateRunning:
					if e.Lease < 20*time.Second || e.Lease > 30*time.Second {
						t.Errorf("running: lease %v", e.Lease)
					}
				case dedup.StateLapsed:
					if e.Lease > 0 || e.Lease < -time.Minute {
						t.Errorf("lapsed: lease %v", e.Lease)
					}
				case dedup.StateDone:
					if e.Code != 201 || e.Size != 5 || e.Omitted {
						t.Errorf("done: %+v", e)
					}
				}
			}
			for _, wanted := range [][]dedup.State{{dedup.StateLapsed}, {dedup.StateDone, dedup.StateFailed}} {
				entries, err := sh.d.Entries(t.Context(), 100, wanted...)
				if err != nil || len(entries) != len(wanted) {
					t.Errorf("%v: %d entries, %v", wanted, len(entries), err)
				}
				for _, e := range entries {
					if !slices.Contains(wanted, e.State) {
						t.Errorf("asked for %v, got %+v", wanted, e)
					}
				}
			}
			if entries, err := sh.d.Entries(t.Context(), 2); err != nil || len(entries) != 2 {
				t.Errorf("up to 2: %d, %v", len(entries), err)
			}
		})
	}
}

func TestOperatorSettles(t *testing.T) {
	srv := testserver.Redis(t)
	sh := newShelf(t, srv.Client(t), srv.Prefix(t))
	settle := func(id string) (bool, error) {
		return sh.d.Settle(t.Context(), id, dedup.Result{Code: 201, Omitted: true}, 0, "paid, says the bank; ann")
	}
	for state, want := range map[dedup.State]struct {
		settled bool
		err     error
	}{
		dedup.StateRunning: {false, dedup.ErrInFlight}, dedup.StateLapsed: {true, nil}, dedup.StateFailed: {true, nil},
		dedup.StateDone: {false, nil}, dedup.StateCorrupt: {false, dedup.ErrCorrupt},
	} {
		if settled, err := settle(sh.ids[state]); settled != want.settled || !errors.Is(err, want.err) {
			t.Errorf("%s: %v, %v; want %v, %v", state, settled, err, want.settled, want.err)
		}
	}
	for _, state := range []dedup.State{dedup.StateLapsed, dedup.StateFailed} {
		req := buy(string(state))
		req.NoTakeover = true
		if rec := replayed(t, sh.d, req); rec.Code != 201 || !rec.Omitted || rec.Attempt != 2 {
			t.Errorf("%s is replayed as %+v", state, rec)
		}
	}
	if rec := replayed(t, sh.d, buy("done")); string(rec.Data) != "12345" {
		t.Errorf("what was done is replayed as %+v", rec)
	}
	if _, err := settle(buy("nobody").ID()); !errors.Is(err, dedup.ErrNoRecord) {
		t.Errorf("no record: %v, want ErrNoRecord", err)
	}
	if _, ok, err := sh.d.Entry(t.Context(), buy("nobody").ID()); ok || err != nil {
		t.Errorf("settling made a record: %v, %v", ok, err)
	}
	if n := sh.logs.count("reason", "paid, says the bank; ann"); n != 2 || sh.logs.count("level", slog.LevelWarn) != 2 {
		t.Errorf("%d log records with the reason, want 2", n)
	}
}

func TestOperatorReopens(t *testing.T) {
	srv := testserver.Redis(t)
	sh := newShelf(t, srv.Client(t), srv.Prefix(t))
	reopen := func(id string) error { return sh.d.Reopen(t.Context(), id, "nothing was sent; ann") }
	for state, want := range map[dedup.State]error{
		dedup.StateRunning: dedup.ErrInFlight, dedup.StateLapsed: nil, dedup.StateFailed: nil, dedup.StateDone: nil, dedup.StateCorrupt: dedup.ErrCorrupt,
	} {
		for range 2 {
			if err := reopen(sh.ids[state]); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", state, err, want)
			}
		}
	}
	for _, state := range []dedup.State{dedup.StateLapsed, dedup.StateFailed, dedup.StateDone} {
		req := buy(string(state))
		req.NoTakeover = true
		claim := begun(t, sh.d, req)
		if claim.Attempt() != 2 || claim.Takeover() {
			t.Errorf("%s runs again as attempt %d, takeover %v; want 2, false", state, claim.Attempt(), claim.Takeover())
		}
		_ = claim.Fail(t.Context(), nil, nil)
	}
	if err := reopen(buy("nobody").ID()); !errors.Is(err, dedup.ErrNoRecord) {
		t.Errorf("no record: %v, want ErrNoRecord", err)
	}
	late := dedup.Owner{ID: sh.ids[dedup.StateLapsed], Token: "dead", Attempt: 1}
	if err := sh.s.Complete(t.Context(), late, dedup.Result{}, time.Hour); !errors.Is(err, dedup.ErrLeaseLost) {
		t.Errorf("the owner who is late after all: %v, want ErrLeaseLost", err)
	}
}

// An operator who comes after Close starts nothing: what is left to undo would have nobody to wait for it.
func TestOperatorComesAfterClose(t *testing.T) {
	away := &gate{Store: deduptest.NewMemory(), before: func(context.Context, string) error { return dedup.ErrUnknownOutcome }}
	d := engineOn(t, away)
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if settled, err := d.Settle(t.Context(), buy("1").ID(), dedup.Result{}, 0, "paid; ann"); settled || !errors.Is(err, dedup.ErrClosed) {
		t.Errorf("Settle after Close: %v, %v; want ErrClosed", settled, err)
	}
}

func TestOperatorMustSayWhat(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	_, noReason := d.Settle(t.Context(), "id", dedup.Result{}, 0, " ")
	_, noLimit := d.Entries(t.Context(), 0)
	_, _, noID := d.Entry(t.Context(), "")
	_, noBoard := engineOn(t, deduptest.NewMemory()).Entries(t.Context(), 1)
	for name, err := range map[string]error{
		"settle without a reason": noReason, "reopen without a reason": d.Reopen(t.Context(), "id", ""), "no limit": noLimit, "no id": noID,
		"reopen without an id": d.Reopen(t.Context(), "", "x"), "a store without a board": noBoard,
	} {
		if !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestListingIsComplete(t *testing.T) {
	srv := testserver.Redis(t)
	d := engine(t, srv.Client(t), dedup.Prefix(srv.Prefix(t)))
	const n = 1500
	for i := range n {
		_ = begun(t, d, buy(fmt.Sprint(i))).Complete(t.Context(), dedup.Result{}, 0)
	}
	entries, err := d.Entries(t.Context(), 2*n)
	if err != nil || len(entries) != n {
		t.Errorf("%d entries, %v; want %d", len(entries), err, n)
	}
}
