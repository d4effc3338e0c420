package stock

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

func (e *env) tokens(more ...Option) *Tokens {
	e.Helper()
	t, err := NewTokens(e.rdb, e.options(more...)...)
	if err != nil {
		e.Fatal(err)
	}
	return t
}

func seats(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("seat %d", i+1)
	}
	return all
}

func (e *env) batch(n int, perUser int64) Batch {
	return Batch{Item: 1001, Activity: "show", Tokens: seats(n), Ends: time.Now().Add(time.Hour), PerUser: perUser}
}

func (e *env) load(tokens *Tokens, b Batch) Loaded {
	e.Helper()
	got, err := tokens.Load(e.Context(), b)
	if err != nil {
		e.Fatal(err)
	}
	return got
}

func (e *env) ask(user ID) Order {
	return Order{Item: 1001, Activity: "show", User: user, RequestID: e.id()}
}

// C19, X21: 100 tokens, 500 buyers: 100 different tokens; loading again never doubles them, before or after a sale.
func TestTokensAreTakenOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		tokens := e.tokens()
		n := e.crowd(100)
		parallel(4, func(int) { e.load(tokens, e.batch(n, 1)) })
		if got := e.load(tokens, e.batch(n, 1)); got != (Loaded{Left: int64(n)}) {
			t.Errorf("loaded again: %+v", got)
		}
		var mu sync.Mutex
		taken := map[string]bool{}
		parallel(5*n, func(i int) {
			got, err := tokens.Take(t.Context(), e.ask(i))
			if err != nil {
				e.wants(err, ErrInsufficient, "buyer %d", i)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if taken[got.Token] {
				t.Errorf("%q was taken twice", got.Token)
			}
			taken[got.Token] = true
		})
		if len(taken) != n {
			t.Errorf("%d tokens were taken, want %d", len(taken), n)
		}
		if got := e.load(tokens, e.batch(n, 1)); got != (Loaded{}) {
			t.Errorf("loaded again when all are taken: %+v", got)
		}
		if left, sold, err := tokens.Left(t.Context(), 1001, "show"); err != nil || left != 0 || sold != int64(n) {
			t.Errorf("Left = %d, %d, %v", left, sold, err)
		}
		e.everyKeyExpires()
		other := e.batch(n+1, 1)
		_, err := tokens.Load(t.Context(), other)
		e.wants(err, ErrInvalid, "other tokens under the same name")
	})
}

// C20: the same user takes one; a repeat gets the same token; a token that is given back goes to the next, once.
func TestTokenOfAUser(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		tokens := e.tokens()
		e.unchanged("a take before the load", func() {
			_, err := tokens.Take(t.Context(), e.ask(1))
			e.wants(err, ErrNotWarmed, "Take")
			_, _, err = tokens.Left(t.Context(), 1001, "show")
			e.wants(err, ErrNotWarmed, "Left")
		})
		e.load(tokens, e.batch(2, 1))
		o := e.ask("user 1")
		first, err := tokens.Take(t.Context(), o)
		if err != nil || first != (Token{Token: "seat 1", Left: 1}) {
			t.Fatalf("Take = %+v, %v", first, err)
		}
		e.unchanged("what is refused, and repeats", func() {
			again, err := tokens.Take(t.Context(), o)
			if err != nil || again != (Token{Token: "seat 1", Replayed: true}) {
				t.Errorf("repeat = %+v, %v", again, err)
			}
			_, err = tokens.Take(t.Context(), e.ask("user 1"))
			e.wants(err, ErrLimitReached, "a second token")
			other := o
			other.User = 2
			_, err = tokens.Take(t.Context(), other)
			e.wants(err, ErrMismatch, "another user's request")
			e.wants(tokens.Return(t.Context(), o, "seat 2"), ErrNotHeld, "Return of another token")
			e.wants(tokens.Return(t.Context(), e.ask("user 1"), "seat 1"), ErrNotHeld, "Return by another request")
		})
		for range 2 {
			if err := tokens.Return(t.Context(), o, "seat 1"); err != nil {
				t.Error(err)
			}
		}
		_, err = tokens.Take(t.Context(), o)
		e.wants(err, ErrReleased, "the request whose token was given back")
		for _, want := range []string{"seat 2", "seat 1"} {
			got, err := tokens.Take(t.Context(), e.ask(want))
			if err != nil || got.Token != want {
				t.Errorf("Take = %+v, %v; want %s", got, err, want)
			}
		}
		// A late repeat does not take the seat away from whoever got it next.
		e.unchanged("a late return", func() {
			if err := tokens.Return(t.Context(), o, "seat 1"); err != nil {
				t.Error(err)
			}
			_, err := tokens.Take(t.Context(), e.ask("late"))
			e.wants(err, ErrInsufficient, "Take when all are taken")
		})
		e.everyKeyExpires()
	})
}

func TestTokensHaveTimes(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		tokens := e.tokens()
		b := e.batch(3, 0)
		b.Starts = time.Now().Add(10 * time.Minute)
		e.load(tokens, b)
		_, err := tokens.Take(t.Context(), e.ask(1))
		if after := e.wants(err, ErrNotStarted, "Take before the start").RetryAfter(); after < 5*time.Minute || after > 10*time.Minute {
			t.Errorf("retry after %v", after)
		}
		b.Starts = time.Time{}
		e.load(tokens, b)
		for range 2 { // no limit: one user may take several
			if _, err := tokens.Take(t.Context(), e.ask(1)); err != nil {
				t.Error(err)
			}
		}
		b.Ends = time.Now().Add(-time.Second)
		_, err = tokens.Load(t.Context(), b)
		e.wants(err, ErrEnded, "Load of a sale that is over")
	})
}

// C20: a sale that is prolonged remembers who has which token: no second one for a user, and the first can be given back.
func TestProlongedTokensRememberTheirUsers(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		tokens := e.tokens()
		b := e.batch(5, 1)
		e.load(tokens, b)
		o := e.ask(7)
		got, err := tokens.Take(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, ends := range []time.Duration{8 * 24 * time.Hour, 7 * 24 * time.Hour} { // the later one counts
			b.Ends = time.Now().Add(ends)
			e.load(tokens, b)
			again := e.ask(8)
			got, err := tokens.Take(t.Context(), again)
			if err != nil {
				t.Fatal(err)
			}
			if err := tokens.Return(t.Context(), again, got.Token); err != nil {
				t.Error(err)
			}
			for _, key := range []string{"", ":ctl", ":taken", ":users"} {
				e.ttl("tokens:item:1001:act:show"+key, 9*24*time.Hour)
			}
		}
		if e.mini != nil {
			e.mini.FastForward(26 * time.Hour)
		}
		_, err = tokens.Take(t.Context(), e.ask(7))
		e.wants(err, ErrLimitReached, "a second token")
		if err := tokens.Return(t.Context(), o, got.Token); err != nil {
			t.Error(err)
		}
		e.everyKeyExpires()
	})
}

func TestWrongTokens(t *testing.T) {
	e := newMini(t, 0)
	tokens := e.tokens()
	good := e.batch(2, 1)
	for name, change := range map[string]func(b *Batch){
		"none":        func(b *Batch) { b.Tokens = nil },
		"twice":       func(b *Batch) { b.Tokens = []string{"a", "a"} },
		"empty":       func(b *Batch) { b.Tokens = []string{"a", ""} },
		"no item":     func(b *Batch) { b.Item = nil },
		"no end":      func(b *Batch) { b.Ends = time.Time{} },
		"wrong limit": func(b *Batch) { b.PerUser = -1 },
	} {
		b := good
		change(&b)
		e.unchanged(name, func() {
			_, err := tokens.Load(t.Context(), b)
			e.wants(err, ErrInvalid, "%s", name)
		})
	}
	o := e.ask(1)
	o.Units = 2
	_, err := tokens.Take(t.Context(), o)
	e.wants(err, ErrInvalid, "two tokens at once")
	e.wants(tokens.Return(t.Context(), e.ask(1), ""), ErrInvalid, "Return of nothing")
	for _, opt := range []Option{WithHold(time.Minute), WithStream(), WithSoldOutFilter(time.Second), WithItemMetrics(1)} {
		if _, err := NewTokens(e.rdb, opt); err == nil {
			t.Error("an option for counters was accepted")
		}
	}
	if _, err := NewTokens(e.rdb, WithHold(0)); err == nil {
		t.Error("a wrong option was accepted")
	}
}

// Whichever command loses its reply or is carried out twice, each token is there once.
func TestTokensWithLostReplies(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 9; nth++ {
		for _, fault := range []faultproxy.Action{faultproxy.LoseReply(), faultproxy.Repeat()} {
			f := newFaulty(t, 0, patient)
			tokens, err := NewTokens(f.through, f.options()...)
			if err != nil {
				t.Fatal(err)
			}
			rule := f.proxy.On(faultproxy.Named("EVALSHA").Nth(nth), fault)
			f.load(tokens, f.batch(2500, 1))
			o := f.ask(1)
			got, err := tokens.Take(t.Context(), o)
			if err != nil || got != (Token{Token: "seat 1", Left: 2499}) { // no replay: it was this call that took it
				t.Errorf("command %d: Take = %+v, %v", nth, got, err)
			}
			if err := tokens.Return(t.Context(), o, got.Token); err != nil && !errors.Is(err, ErrNotHeld) {
				t.Errorf("command %d: Return = %v", nth, err)
			}
			if left, taken, err := tokens.Left(t.Context(), 1001, "show"); err != nil || left != 2500 || taken != 0 {
				t.Errorf("command %d: %d left and %d taken, %v", nth, left, taken, err)
			}
			if nth < 8 && rule.Fired() == 0 {
				t.Errorf("command %d was never sent", nth)
			}
		}
	}
}
