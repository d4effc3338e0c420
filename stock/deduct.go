package stock

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"
)

// codes of deduct.lua.
const (
	codeNotWarmed    = -1
	codeInsufficient = -2
	codeLimit        = -3
	codeReplayed     = -4
	codeMismatch     = -5
	codeInFlight     = -6
	codePaused       = -7
	codeNotStarted   = -8
	codeEnded        = -9
	codeScope        = -20
)

// Deduct takes the order's units, all or nothing, in one script and one round trip. It decides everything there: the
// request id, the sale's switch and times, the stock and the user's limit. It needs no lock.
//
// A nil error means that the units are the user's, now or since an earlier try with the same request id
// ([Result.Replayed]). Every refusal leaves everything as it was and is not remembered: the same request id is judged
// afresh next time.
//
// Its errors: ErrNotWarmed, ErrInsufficient, ErrLimitReached, ErrReleased, ErrMismatch, ErrInFlight, ErrPaused,
// ErrNotStarted, ErrEnded, ErrInvalid, ErrUnavailable and, when the reply was lost three times or ctx ended while it was
// under way, ErrUnknownOutcome. It may be called again with the same request id after any of them. It waits for Redis
// only, within ctx and the client's time-outs.
func (c *Counter) Deduct(ctx context.Context, o Order) (Result, error) {
	r, err := o.check(ctx)
	if err != nil {
		return Result{}, err
	}
	if r.order == "" {
		r.order = rand.Text()
	}
	over := c.scopeOf(&r.line)
	a, err := c.deduct(ctx, &r, over)
	if err == nil && a.code() == codeScope {
		over = scope(a.text(2))
		c.learn(r.line.item, r.line.activity, over)
		a, err = c.deduct(ctx, &r, over)
	}
	if err != nil {
		return Result{}, err
	}
	return result(a)
}

func (c *Counter) deduct(ctx context.Context, r *request, over Scope) (answer, error) {
	l := &r.line
	keys := make([]string, 0, 7)
	keys = append(keys, c.keys.counter(l.item), c.keys.control(l.item), c.keys.marker(over, l), c.keys.request(r.id))
	if c.cfg.hold > 0 {
		keys = append(keys, c.keys.hold(r.order), c.keys.deadlines())
	}
	if c.cfg.stream {
		keys = append(keys, c.keys.stream())
	}
	return c.run(ctx, c.scripts.deduct, keys,
		1, r.order, r.id, l.user, l.activity, actField(l.activity), c.cfg.keep.Milliseconds(), c.cfg.hold.Milliseconds(),
		flag(c.cfg.stream), "", "", l.item, l.variant, l.units, l.what, int(over))
}

// result turns the script's answer into what Deduct returns.
func result(a answer) (Result, error) {
	code := a.code()
	if code >= 0 {
		return Result{Left: code, Order: a.text(1), Nth: int(a.int(2))}, nil
	}
	switch code {
	case codeReplayed:
		if a.text(2) == "released" {
			return Result{}, fail(ErrReleased, "")
		}
		left, err := strconv.ParseInt(a.text(4), 10, 64)
		if err != nil {
			return Result{}, corrupt("request record")
		}
		nth, err := strconv.Atoi(a.text(3))
		if err != nil {
			return Result{}, corrupt("request record")
		}
		return Result{Left: left, Order: a.text(1), Nth: nth, Replayed: true}, nil
	case codeNotStarted:
		return Result{}, &Error{sentinel: ErrNotStarted, after: time.Duration(a.int(2)) * time.Millisecond}
	case codePaused:
		return Result{}, fail(ErrPaused, a.text(2))
	}
	if sentinel, ok := map[int64]error{
		codeNotWarmed: ErrNotWarmed, codeInsufficient: ErrInsufficient, codeLimit: ErrLimitReached,
		codeMismatch: ErrMismatch, codeInFlight: ErrInFlight, codeEnded: ErrEnded,
	}[code]; ok {
		return Result{}, fail(sentinel, "")
	}
	return Result{}, corrupt("answer of a script")
}

func scope(text string) Scope {
	n, _ := strconv.Atoi(text) // one digit: warm.lua and deduct.lua have checked it
	return Scope(n)
}
