package dedup_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// D09: the same request twice and the same user twice are different things. The same id gets the same result; a new id
// of the same user is new work, whose limit is somebody else's to know.
func TestSameRequestTwiceIsNotSameUserTwice(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	orders := 0
	order := func(id string) (string, bool) {
		res, replay, err := d.Do(t.Context(), buy(id), func(context.Context) ([]byte, error) {
			orders++
			return []byte("order " + strconv.Itoa(orders)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(res), replay
	}
	for _, step := range []struct {
		id, want string
		replay   bool
	}{{"r1", "order 1", false}, {"r1", "order 1", true}, {"r2", "order 2", false}, {"r1", "order 1", true}, {"r2", "order 2", true}} {
		if got, replay := order(step.id); got != step.want || replay != step.replay {
			t.Errorf("%s: got %q, replayed %v; want %q, %v", step.id, got, replay, step.want, step.replay)
		}
	}
}

// D57: the client makes the id and keeps it for all retries: without one nothing runs and nothing is made up.
func TestNoIDIsRefusedNeverReplaced(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	ran := false
	for _, req := range []dedup.Request{{Scope: "user-7"}, {Key: "k"}, {}} {
		_, _, err := d.Do(t.Context(), req, func(context.Context) ([]byte, error) { ran = true; return nil, nil })
		if !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", req, err)
		}
	}
	if ran {
		t.Error("the work ran without an id")
	}
}

// D58: a repeat of a finished request answers what the first attempt answered; "already processed" never turns a refusal
// into a success.
func TestRepeatAnswersWhatTheFirstAnswered(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	soldOut := errors.New("sold out")
	stock := 0
	order := func(key string) ([]byte, error) {
		res, _, err := d.Do(t.Context(), buy(key), func(context.Context) ([]byte, error) {
			if stock == 0 {
				return nil, soldOut
			}
			stock--
			return []byte("bought"), nil
		})
		return res, err
	}
	for range 3 {
		if res, err := order("k"); !errors.Is(err, soldOut) || res != nil {
			t.Fatalf("while sold out: %q, %v", res, err)
		}
	}
	stock = 1
	for range 3 {
		if res, err := order("k"); err != nil || string(res) != "bought" {
			t.Fatalf("once in stock, and repeated: %q, %v", res, err)
		}
	}
	if stock != 0 {
		t.Errorf("stock is %d, want 0", stock)
	}
}

// D59: the record covers the longest retry window. Ten minutes is the floor, a shorter setting is refused; a repeat after
// the end of the record is a new request.
func TestRecordCoversTheRetryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := engineOn(t, deduptest.NewMemory())
		req := buy("k")
		req.TTL = 10 * time.Minute
		runs := 0
		send := func() {
			t.Helper()
			if _, _, err := d.Do(t.Context(), req, func(context.Context) ([]byte, error) { runs++; return nil, nil }); err != nil {
				t.Fatal(err)
			}
		}
		send()
		<-time.After(9*time.Minute + 59*time.Second)
		if send(); runs != 1 {
			t.Errorf("at 9m59s the work ran again")
		}
		<-time.After(2 * time.Second)
		if send(); runs != 2 {
			t.Errorf("after the end of the record it is not a new request")
		}
		req.TTL = 10*time.Minute - 1
		if _, _, err := d.Begin(t.Context(), req); !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("a TTL under ten minutes: %v, want ErrInvalid", err)
		}
	})
}

// F026 (pathosDev/actor-ts#1082): the claim was deleted without an owner check, and a third request ran at the same
// time. Here A overruns its claim, B claims, A gives up: B's claim is still there.
func TestActorTS1082_GivingUpTouchesOnlyOnesOwnClaim(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	for name, giveUp := range map[string]func(c *dedup.Claim) error{
		"fail":   func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, nil) },
		"forget": func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			slow := dedup.Shorten{Lease: 20 * time.Millisecond, Call: 5 * time.Second}.Option()
			stuck := &gate{Store: store(t, rdb, srv.Prefix(t)), before: func(_ context.Context, call string) error {
				if call == "renew" {
					return dedup.ErrUnavailable
				}
				return nil
			}}
			overrunning := engineOn(t, stuck, slow)
			fresh, third := engineOn(t, stuck.Store, patient), engineOn(t, stuck.Store, patient)
			a := begun(t, overrunning, buy("k"))
			b := begun(t, fresh, buy("k")) // waits until A's lease has ended
			if b.Attempt() != 2 || !b.Takeover() {
				t.Fatalf("attempt %d, takeover %v; want 2, true", b.Attempt(), b.Takeover())
			}
			if err := giveUp(a); !errors.Is(err, dedup.ErrLeaseLost) {
				t.Errorf("A gives up: %v, want ErrLeaseLost", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, _, err := third.Begin(ctx, buy("k")); !errors.Is(err, dedup.ErrInFlight) {
				t.Errorf("a third request got %v, want ErrInFlight: B is at work", err)
			}
			if err := b.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
				t.Errorf("B: %v", err)
			}
		})
	}
}

// F027 (pathosDev/actor-ts#984): the work fails after its effect, and the retry must not have it again. The effect
// carries the request id, which is the same for every attempt, and the attempt says that there was one before.
func TestActorTS984_EveryAttemptHasTheSameRequestID(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	charged := map[string]int{} // what a unique index does
	work := func(ctx context.Context) ([]byte, error) {
		e := dedup.FromContext(ctx)
		if _, done := charged[e.RequestID()]; done {
			return []byte("charged once, as attempt " + strconv.Itoa(charged[e.RequestID()])), nil
		}
		charged[e.RequestID()] = e.Attempt()
		return nil, errors.New("500 after the effect")
	}
	if _, _, err := d.Do(t.Context(), buy("k"), work); err == nil {
		t.Fatal("the first attempt does not fail")
	}
	res, _, err := d.Do(t.Context(), buy("k"), work)
	if err != nil || string(res) != "charged once, as attempt 1" || len(charged) != 1 {
		t.Errorf("got %q, %v; charged %v", res, err, charged)
	}
}

// F029 (KanishJebaMathewM/Truxify#2869): a key scoped by user alone gave a second endpoint the first one's body.
func TestTruxify2869_OneKeyOnTwoRoutesIsTwoRequests(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	for _, route := range []string{"POST /orders", "POST /refunds", "PATCH /orders"} {
		req := buy("k")
		req.Name = route
		for range 2 {
			res, _, err := d.Do(t.Context(), req, func(context.Context) ([]byte, error) { return []byte(route), nil })
			if err != nil || string(res) != route {
				t.Errorf("%s got %q, %v", route, res, err)
			}
		}
	}
}

// F030 (KanishJebaMathewM/Truxify#6898): a waiter saw the claim gone before the result was stored, and ran again.
func TestTruxify6898_TwoAtOnceRunOnce(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), dedup.Prefix(srv.Prefix(t))
	one := engine(t, rdb, prefix)
	for where, pair := range map[string][2]*dedup.Dedup{"one process": {one, one}, "two processes": {one, engine(t, rdb, prefix)}} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rounds := 1000
			if where == "two processes" {
				rounds = 200 // each waits for a question
			}
			for round := range rounds {
				var runs atomic.Int32
				var wg sync.WaitGroup
				for _, d := range pair {
					wg.Go(func() {
						_, _, err := d.Do(context.Background(), buy(where+strconv.Itoa(round)), func(context.Context) ([]byte, error) {
							runs.Add(1)
							return nil, nil
						})
						if err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					})
				}
				wg.Wait()
				if runs.Load() != 1 {
					t.Fatalf("round %d: ran %d times, want 1", round, runs.Load())
				}
			}
		})
	}
}

// F031 (KanishJebaMathewM/Truxify PR2482): a Redis error after a hit fell through to the handler. After a hit the work is
// never called: the answer is replayed, or refused.
func TestTruxify2482_ErrorAfterAHitNeverRuns(t *testing.T) {
	l := newLink(t)
	if err := begun(t, l.direct, l.req).Complete(t.Context(), dedup.Result{Data: []byte("first")}, 0); err != nil {
		t.Fatal(err)
	}
	for name, action := range map[string]faultproxy.Action{"reply lost": faultproxy.LoseReply(), "reply cut": faultproxy.CutReply(12), "request lost": faultproxy.LoseRequest()} {
		for _, times := range []int{1, 20} {
			l.proxy.On(l.nth(1).Times(times), action)
			res, replay, err := l.near.Do(t.Context(), l.req, func(context.Context) ([]byte, error) {
				t.Errorf("%s: the work ran again", name)
				return nil, nil
			})
			replayed := err == nil && replay && string(res) == "first"
			refused := errors.Is(err, dedup.ErrUnknownOutcome) || errors.Is(err, dedup.ErrUnavailable)
			if times == 1 && !replayed || times > 1 && !refused {
				t.Errorf("%s, %d times: got %q, %v, %v", name, times, res, replay, err)
			}
			l.proxy.Heal(t)
		}
	}
}

// F032 (useautumn/autumn PR1851): a failure kept the key, and the retry got a false 409. A failure gives the key free at
// once, a success keeps it.
func TestAutumn1851_FailureFreesTheKeySuccessKeepsIt(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	var attempts []int
	fail := true
	send := func() error {
		_, _, err := d.Do(t.Context(), buy("k"), func(ctx context.Context) ([]byte, error) {
			attempts = append(attempts, dedup.FromContext(ctx).Attempt())
			if fail {
				return nil, errors.New("500")
			}
			return nil, nil
		})
		return err
	}
	started := time.Now()
	for range 2 {
		if send() == nil {
			t.Fatal("a failure is answered with success")
		}
	}
	fail = false
	if err := errors.Join(send(), send(), send()); err != nil {
		t.Fatal(err)
	}
	if len(attempts) != 3 || attempts[2] != 3 {
		t.Errorf("ran as attempts %v, want 1, 2, 3 and then replays", attempts)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("it took %v: a retry has waited", took)
	}
}

// F033 (KanishJebaMathewM/Truxify#14932, ProgixDev/incacook-app#36): a client that makes a new id for each attempt is a
// new request each time, here; the user's limit is the second net, and its effect carries another id.
func TestTruxify14932_NewIDPerAttemptIsANewRequest(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	ids := map[string]bool{}
	for _, id := range []string{"attempt-1", "attempt-2"} {
		_, replay, err := d.Do(t.Context(), buy(id), func(ctx context.Context) ([]byte, error) {
			ids[dedup.FromContext(ctx).RequestID()] = true
			return nil, nil
		})
		if err != nil || replay {
			t.Errorf("%s: replayed %v, %v", id, replay, err)
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d request ids, want 2", len(ids))
	}
}

// Two users, one key: two executions, and a failing caller takes only its own claim along.
func TestTwoUsersWithOneKey(t *testing.T) {
	_, rdb := mini(t)
	d := engine(t, rdb)
	req := func(user string) dedup.Request { r := buy("k"); r.Scope = user; return r }
	a, b := begun(t, d, req("a")), begun(t, d, req("b"))
	if err := a.Fail(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Complete(t.Context(), dedup.Result{Data: []byte("b's")}, 0); err != nil {
		t.Fatal(err)
	}
	if rec := replayed(t, d, req("b")); string(rec.Data) != "b's" {
		t.Errorf("b got %q", rec.Data)
	}
	again := begun(t, d, req("a"))
	if again.Attempt() != 2 {
		t.Errorf("a: attempt %d, want 2", again.Attempt())
	}
	_ = again.Forget(t.Context(), nil, nil)
}

// TakeoverReject, for work without a guard in SQL: a lapsed record waits for an operator, and a failed one does not.
func TestInterruptedWorkIsNotRunAgainWhereThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deduptest.NewMemory()
		d := engineOn(t, s)
		req := buy("k")
		req.NoTakeover = true
		dead := dedup.BeginRequest{Owner: dedup.Owner{ID: req.ID(), Token: "dead", Fingerprint: req.Fingerprint}, Lease: 30 * time.Second, TTL: time.Hour}
		if _, err := s.Begin(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		<-time.After(31 * time.Second)
		for range 2 {
			if _, _, err := d.Begin(t.Context(), req); !errors.Is(err, dedup.ErrInterrupted) {
				t.Fatalf("got %v, want ErrInterrupted", err)
			}
		}
		req.NoTakeover = false // as an operator does
		claim := begun(t, d, req)
		if err := claim.Fail(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		req.NoTakeover = true
		claim = begun(t, d, req)
		if claim.Attempt() != 3 || claim.Takeover() {
			t.Errorf("attempt %d, takeover %v; want 3, false", claim.Attempt(), claim.Takeover())
		}
		_ = claim.Complete(t.Context(), dedup.Result{}, 0)
	})
}
