package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

// testModel plays random calls against the store and against [Memory], and wants the same answers.
func testModel(t *testing.T, newStore Factory) {
	const games, moves = 60, 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := newStore(t)
	for game := range games {
		g := newGame(t, s, rand.New(rand.NewPCG(seed, uint64(game))))
		for range moves {
			if !g.move() {
				t.Fatalf("seed %d, game %d: the last answers differ:\n%s", seed, game, strings.Join(g.log, "\n"))
			}
		}
	}
}

// game is one record with a few who fight for it.
type game struct {
	rnd       *rand.Rand
	store     client
	reference client
	owners    []dedup.Owner
	log       []string
}

func newGame(t *testing.T, s dedup.Store, rnd *rand.Rand) *game {
	c := newClient(t, s)
	g := &game{rnd: rnd, store: c, reference: client{t, NewMemory(), c.owner}}
	for n := range 4 {
		o := c.other().owner
		o.Fingerprint = [][]byte{[]byte("a"), []byte("a"), nil, []byte("b")}[n]
		g.owners = append(g.owners, o)
	}
	return g
}

// move makes one call to both and reports whether the answers agree.
func (g *game) move() bool {
	n := g.rnd.IntN(len(g.owners))
	if g.rnd.IntN(8) == 0 { // somebody new, in the place of somebody old
		g.owners[n].Token = g.store.other().owner.Token
		g.owners[n].Attempt = 1
	}
	o := g.owners[n]
	g.store.owner, g.reference.owner = o, o
	who := fmt.Sprintf("owner %d (fingerprint %q, attempt %d, token ...%s)", n, o.Fingerprint, o.Attempt, o.Token[len(o.Token)-4:])

	switch k := g.rnd.IntN(10); {
	case k < 4:
		b := dedup.BeginRequest{Owner: o, Lease: long, TTL: long, NoTakeover: g.rnd.IntN(3) == 0, TraceParent: o.Token}
		got, err1 := g.store.store.Begin(g.store.t.Context(), b)
		want, err2 := g.reference.store.Begin(g.store.t.Context(), b)
		if got.Verdict == dedup.VerdictRun {
			g.owners[n].Attempt = got.Attempt
		}
		g.note("%s: begin, no takeover %v: %+v, %v; want %+v, %v", who, b.NoTakeover, got, err1, want, err2)
		return sameAnswer(got, want) && sameError(err1, err2)
	case k < 5:
		return g.both(who+": renew", func(c client) error { return c.store.Renew(c.t.Context(), c.owner, long) })
	case k < 6:
		r := dedup.Result{Code: g.rnd.IntN(600), Data: []byte(o.Token), Omitted: g.rnd.IntN(4) == 0}
		return g.both(who+": complete", func(c client) error { return c.store.Complete(c.t.Context(), c.owner, r, long) })
	case k < 7:
		return g.both(who+": fail", func(c client) error { return c.store.Fail(c.t.Context(), c.owner) })
	case k < 8:
		return g.both(who+": forget", func(c client) error { return c.store.Forget(c.t.Context(), c.owner) })
	default:
		lapsed := true
		same := g.both(who+": lapse", func(c client) error {
			err := c.store.Renew(c.t.Context(), c.owner, short)
			lapsed = lapsed && err == nil
			return err
		})
		if same && lapsed {
			for _, c := range []client{g.store, g.reference} {
				eventually(c.t, "the lease has not lapsed", func() bool {
					c := c.other()
					a := c.ask(func(b *dedup.BeginRequest) { b.NoTakeover = true })
					return a.Verdict == dedup.VerdictInterrupted
				})
			}
		}
		return same
	}
}

func (g *game) both(what string, call func(c client) error) bool {
	got, want := call(g.store), call(g.reference)
	g.note("%s: %v; want %v", what, got, want)
	return sameError(got, want)
}

func (g *game) note(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

func sameAnswer(a, b dedup.Answer) bool {
	near := a.Rest - b.Rest
	return a.Verdict == b.Verdict && a.Attempt == b.Attempt && a.Takeover == b.Takeover && a.TraceParent == b.TraceParent &&
		a.Result.Code == b.Result.Code && a.Result.Omitted == b.Result.Omitted && bytes.Equal(a.Result.Data, b.Result.Data) &&
		near > -5*time.Second && near < 5*time.Second
}

func sameError(a, b error) bool {
	for _, e := range []error{dedup.ErrLeaseLost, dedup.ErrNoRecord, dedup.ErrInvalid, dedup.ErrCorrupt, dedup.ErrUnavailable, dedup.ErrUnknownOutcome} {
		if errors.Is(a, e) != errors.Is(b, e) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}
