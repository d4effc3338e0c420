package stock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// history runs random orders, repeats and ends from many goroutines and then checks the invariants on what is stored and on
// what was answered.
type history struct {
	e     *env
	c     *Counter
	limit int64

	mu    sync.Mutex
	taken map[string]*takenOrder // by request id
}

type takenOrder struct {
	order               string
	user                int
	units               int64
	confirmed, released int64
}

// Invariants 1 to 6 and 9 on the Redis side, after any mixture of orders, repeats, confirmations and releases.
func TestInvariantsAfterRandomOperations(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"hold": {WithHold(time.Hour)}, "record": nil} {
			own := &env{T: t, rdb: e.rdb, prefix: e.prefix + name + ":", parts: e.parts, mini: e.mini}
			h := &history{e: own, c: own.counter(opts...), limit: 4, taken: map[string]*takenOrder{}}
			segments := 1
			if e.parts > 0 {
				segments = 5
			}
			const units = 60
			own.warm(h.c, Sale{Units: units, Segments: segments, Limit: Limit{Units: h.limit}})
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			parallel(16, func(w int) { h.work(rand.New(rand.NewPCG(seed, uint64(w))), own.crowd(120)/4) })
			h.check(units)
		}
	})
}

func (h *history) work(rnd *rand.Rand, steps int) {
	for range steps {
		o := Order{Item: 1001, User: rnd.IntN(20), Units: 1 + rnd.Int64N(3), RequestID: fmt.Sprint("q", rnd.IntN(200))}
		o.User, o.Units = userOf(o.RequestID), unitsOf(o.RequestID) // one request id is one request
		switch rnd.IntN(5) {
		case 0, 1, 2:
			h.deduct(o)
		case 3:
			h.end(o, true)
		case 4:
			h.end(o, false)
		}
	}
}

func userOf(id string) int    { return spread(id, 20) }
func unitsOf(id string) int64 { return 1 + int64(spread(id+"x", 3)) }

func (h *history) deduct(o Order) {
	res, err := h.c.Deduct(h.e.Context(), o)
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.taken[o.RequestID]
	switch {
	case err == nil && known == nil:
		h.taken[o.RequestID] = &takenOrder{order: res.Order, user: o.User.(int), units: o.Units}
	case err == nil && known.order != res.Order:
		h.e.Errorf("request %s has the orders %s and %s", o.RequestID, known.order, res.Order)
	case err == nil, errors.Is(err, ErrInsufficient), errors.Is(err, ErrLimitReached), errors.Is(err, ErrReleased):
	default:
		h.e.Errorf("Deduct: %v", err)
	}
}

func (h *history) end(o Order, confirm bool) {
	h.mu.Lock()
	known := h.taken[o.RequestID]
	h.mu.Unlock()
	if known == nil {
		return
	}
	var got Ended
	var err error
	if confirm {
		got, err = h.c.Confirm(h.e.Context(), known.order, Of(o))
	} else {
		got, err = h.c.Release(h.e.Context(), known.order, Operator, Of(o))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		if !errors.Is(err, ErrAlreadyConfirmed) && !errors.Is(err, ErrAlreadyReleased) {
			h.e.Errorf("end of %s: %v", o.RequestID, err)
		}
	case got.Outcome == OutcomeConfirmed:
		known.confirmed += got.Units
	case got.Outcome == OutcomeReleased:
		known.released += got.Units
	}
}

func (h *history) check(units int64) {
	e := h.e
	s, err := h.c.Status(e.Context(), 1001)
	if err != nil {
		e.Fatal(err)
	}
	held, users := int64(0), map[int]int64{}
	for id, o := range h.taken {
		if o.confirmed+o.released > o.units || o.confirmed > 0 && o.released > 0 {
			e.Errorf("request %s of %d units: %d confirmed, %d released", id, o.units, o.confirmed, o.released)
		}
		held += o.units - o.released
		users[o.user] += o.units - o.released
	}
	if s.Left+s.Moving+held != units || s.Left < 0 || s.Moving != 0 {
		e.Errorf("%d left, %d moving, %d held or sold; want %d together", s.Left, s.Moving, held, units)
	}
	for user, n := range users {
		if n > h.limit {
			e.Errorf("user %d has %d units, the limit is %d", user, n, h.limit)
		}
		p, _ := h.c.places.load("1001", "")
		if p.segments == 0 {
			p = h.c.usual("1001")
		}
		marker := h.c.keys.marker(h.c.partOf(p, fmt.Sprint(user)), ItemInActivity, &line{item: "1001", user: fmt.Sprint(user)})
		sum := int64(0)
		for _, entry := range e.rdb.HGetAll(e.Context(), marker).Val() {
			var n int64
			fmt.Sscan(entry, &n) // "units:nth": Sscan stops at the colon
			sum += n
		}
		if sum != n {
			e.Errorf("user %d has %d units, the marker says %d", user, n, sum)
		}
	}
	e.everyKeyExpires()
}
