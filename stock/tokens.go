package stock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/keyesc"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Tokens sells units that are not alike: seats, coupon codes, numbered places. Each is a text in a list; whoever takes one
// gets its text. It is made by [NewTokens] and safe for concurrent use.
type Tokens struct {
	c *Counter
}

// NewTokens returns Tokens on rdb. Of the options Prefix, WithPartitions, WithRetryWindow and the providers apply; the
// others are refused. Its errors are those of New.
func NewTokens(rdb redis.UniversalClient, opts ...Option) (*Tokens, error) {
	cfg, err := newConfig(opts)
	if err == nil && (cfg.hold > 0 || cfg.stream || cfg.filter > 0 || len(cfg.items) > 0) {
		return nil, errors.New("stock: NewTokens: WithHold, WithStream, WithSoldOutFilter and WithItemMetrics are for counters: leave them out")
	}
	c, err := newCounter(rdb, keyspace{tokens: true}, opts)
	if err != nil {
		return nil, err
	}
	return &Tokens{c}, nil
}

// Batch is a sale of tokens.
type Batch struct {
	// Item and Activity name the sale. The activity is optional.
	Item, Activity ID
	// Tokens are the texts, in the order in which they are taken: from 1 to 1 000 000 of them, each different and from 1 to
	// 128 bytes.
	Tokens []string
	// Starts is when Take begins; the zero value means at once. Ends is when it stops; required. Both by Redis's clock.
	Starts, Ends time.Time
	// PerUser is how many tokens a user may have at a time; 0 means no limit.
	PerUser int64
}

// Loaded says what a load did.
type Loaded struct {
	// Left is how many tokens the list has now.
	Left int64
	// First is true if the tokens were not there before.
	First bool
}

const (
	mostTokens = 1_000_000
	tokenChunk = 1000
	// asideLife is how long a list that is being built may take.
	asideLife = 10 * time.Minute
)

// Load opens a sale of tokens. The list is built aside and put in its place in one step, if no tokens were loaded before:
// so it may be called again at any time, by any number of instances, and there are never more tokens than given. Called
// again it changes the times and the limit to those of the call.
//
// Its errors: ErrInvalid, as misuse if other tokens were loaded for this item and activity; ErrEnded if the sale is over;
// ErrUnavailable, ErrUnknownOutcome: call it again.
func (t *Tokens) Load(ctx context.Context, b Batch) (Loaded, error) {
	c := t.c
	r, err := t.checkBatch(&b)
	if err != nil {
		return Loaded{}, err
	}
	if err := c.checkCluster(ctx); err != nil {
		return Loaded{}, err
	}
	a, err := c.claim(ctx, c.scripts.claim, c.keys.partitions(), strconv.Itoa(c.keys.parts), r)
	if err != nil {
		return Loaded{}, err
	}
	if a.code() == 0 {
		return Loaded{}, misuse(otherPartitions(a.text(1)))
	}
	part := c.home(r.item)
	keys := c.keys.sale(part, r.item, r.activity)
	aside := keys.list + ":aside:" + newOrderID()
	version := versionOf(b.Tokens)
	open := func(put bool) (answer, error) {
		return c.run(ctx, c.scripts.tokensOpen, []string{keys.control, keys.list, aside, keys.taken, keys.users},
			len(b.Tokens), r.starts, r.ends, b.PerUser, version, flag(put))
	}
	if a, err = open(false); err != nil {
		return Loaded{}, err
	}
	if a.code() == 2 {
		if err := t.push(ctx, aside, b.Tokens); err != nil {
			return Loaded{}, err
		}
		if a, err = open(true); err != nil {
			return Loaded{}, err
		}
	}
	switch a.code() {
	case 0, 1:
		return Loaded{Left: a.int(1), First: a.code() == 0}, nil
	case 3:
		return Loaded{}, misuse("other tokens were loaded for this item and activity: use another activity")
	case 4:
		return Loaded{}, &Error{sentinel: ErrUnavailable, reason: "the list could not be built in time"}
	case codeEnded:
		return Loaded{}, fail(ErrEnded, "Batch.Ends has passed")
	}
	return Loaded{}, corrupt("answer of a script")
}

// push builds the list aside, in chunks: one script with all tokens would keep everybody waiting.
func (t *Tokens) push(ctx context.Context, aside string, tokens []string) error {
	for from := 0; from < len(tokens); from += tokenChunk {
		chunk := tokens[from:min(from+tokenChunk, len(tokens))]
		args := make([]any, 0, 2+len(chunk))
		args = append(args, from, asideLife.Milliseconds())
		for _, token := range chunk {
			args = append(args, token)
		}
		a, err := t.c.run(ctx, t.c.scripts.tokensPush, []string{aside}, args...)
		if err != nil {
			return err
		}
		if a.code() != 1 {
			return &Error{sentinel: ErrUnavailable, reason: "the list could not be built in time"}
		}
	}
	return nil
}

func (t *Tokens) checkBatch(b *Batch) (*sale, error) {
	r, err := t.c.checkSale(&Sale{Item: b.Item, Activity: b.Activity, Units: 1, Starts: b.Starts, Ends: b.Ends, Limit: Limit{Units: b.PerUser}})
	if err != nil {
		return nil, err
	}
	if len(b.Tokens) < 1 || len(b.Tokens) > mostTokens {
		return nil, &Error{sentinel: ErrInvalid, reason: "Batch.Tokens must be from 1 to 1 000 000"}
	}
	seen := make(map[string]struct{}, len(b.Tokens))
	for _, token := range b.Tokens {
		if _, twice := seen[token]; twice || token == "" || len(token) > maxID {
			return nil, &Error{sentinel: ErrInvalid, reason: "each of Batch.Tokens must be different and from 1 to 128 bytes"}
		}
		seen[token] = struct{}{}
	}
	return r, nil
}

// versionOf tells two loads of the same tokens from two of others.
func versionOf(tokens []string) string {
	h := sha256.New()
	for _, token := range tokens {
		h.Write(strconv.AppendInt(nil, int64(len(token)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(token))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Token is what Take gives.
type Token struct {
	// Token is the text.
	Token string
	// Left is how many were left right after it was taken; a replay does not know.
	Left int64
	// Replayed is true if this request had been done before: nothing was taken now.
	Replayed bool
}

// Take takes the next token for a user. Of the order, Item, Activity, User and RequestID count; Units must be 1, or 0 which
// means the same. A nil error means that the token is the user's. Its errors are ErrNotWarmed, ErrInsufficient when no token
// is left, ErrLimitReached, ErrReleased, ErrMismatch, ErrNotStarted, ErrEnded, ErrInvalid, ErrUnavailable and
// ErrUnknownOutcome; as with [Counter.Deduct] it may be called again with the same request id after any of them.
func (t *Tokens) Take(ctx context.Context, o Order) (Token, error) {
	c := t.c
	began := time.Now()
	ctx, span := c.tel.tracer.Start(ctx, telemetry.SpanStockDeduct)
	tell := told{what: "take", outcome: outcomeDeducted, request: o.RequestID, units: 1}
	got, err := t.take(ctx, &o, &tell)
	switch {
	case err != nil:
		tell.err, tell.outcome = err, outcomeOf(err)
	case got.Replayed:
		tell.outcome = outcomeReplayed
	}
	c.tel.deducted(ctx, span, began, &tell)
	return got, err
}

func (t *Tokens) take(ctx context.Context, o *Order, tell *told) (Token, error) {
	c := t.c
	r, part, keys, err := t.order(ctx, o)
	if err != nil {
		return Token{}, err
	}
	l := &r.lines[0]
	tell.item = l.item
	a, err := c.run(ctx, c.scripts.tokensTake, []string{keys.control, keys.list, keys.taken, keys.users, c.keys.request(part, r.id)},
		escaped(r.id), l.user, l.what, c.cfg.keep.Milliseconds(), newOrderID())
	if err != nil {
		return Token{}, err
	}
	switch a.code() {
	case 0:
		return Token{Token: a.text(1), Left: a.int(2)}, nil
	case codeReplayed:
		if a.text(2) == stateReleased {
			return Token{}, fail(ErrReleased, "")
		}
		if left := a.int(3); left >= 0 { // a send of this call took it, and its reply was lost
			return Token{Token: a.text(1), Left: left}, nil
		}
		return Token{Token: a.text(1), Replayed: true}, nil
	case codeNotStarted:
		return Token{}, &Error{sentinel: ErrNotStarted, after: time.Duration(a.int(1)) * time.Millisecond}
	}
	return Token{}, r.refusal(a)
}

// order checks an order of one token and finds its keys.
func (t *Tokens) order(ctx context.Context, o *Order) (*request, int, tokenKeys, error) {
	one := *o
	if one.Units == 0 && len(one.Lines) == 0 {
		one.Units = 1
	}
	if one.Units != 1 {
		return nil, 0, tokenKeys{}, misuse("one Take takes one token: leave Order.Units and Order.Lines empty")
	}
	r, err := t.c.check(ctx, &one)
	if err != nil {
		return nil, 0, tokenKeys{}, err
	}
	l := &r.lines[0]
	part := t.c.home(l.item)
	return r, part, t.c.keys.sale(part, l.item, l.activity), nil
}

// Return gives back the token that an order has taken: a later Take may get it, its user may take another, and the order's
// request is no success any more. Call it only when the token can never be used, for certain. A repeat returns nil as long
// as the request is remembered (WithRetryWindow), and never takes the token away from whoever got it next.
//
// Its errors: ErrNotHeld if the order's request does not have the token, ErrNotWarmed if the sale is forgotten, ErrInvalid,
// ErrUnavailable, ErrUnknownOutcome. It goes on for up to 5 s when ctx is over.
func (t *Tokens) Return(ctx context.Context, o Order, token string) error {
	c := t.c
	ctx, span := c.tel.tracer.Start(ctx, telemetry.SpanStockRelease)
	tell := told{what: "return", request: o.RequestID, units: 1, why: Operator}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	err := t.giveBack(work, &o, token, &tell)
	if err != nil {
		tell.err, tell.outcome = err, outcomeOf(err)
	}
	c.tel.ended(ctx, span, &tell)
	return err
}

func (t *Tokens) giveBack(ctx context.Context, o *Order, token string, tell *told) error {
	c := t.c
	if token == "" || len(token) > maxID {
		return &Error{sentinel: ErrInvalid, reason: "the token must be from 1 to 128 bytes"}
	}
	r, part, keys, err := t.order(ctx, o)
	if err != nil {
		return err
	}
	tell.item = r.lines[0].item
	a, err := c.run(ctx, c.scripts.tokensReturn,
		[]string{keys.control, keys.list, keys.taken, keys.users, c.keys.request(part, r.id)}, token, escaped(r.id), r.lines[0].user)
	if err != nil {
		return err
	}
	switch a.code() {
	case 1:
		tell.outcome = OutcomeReleased
		return nil
	case 2:
		tell.outcome = OutcomeAlreadyReleased
		return nil
	case 0:
		return fail(ErrNotHeld, "")
	case codeNotWarmed:
		return fail(ErrNotWarmed, "")
	}
	return corrupt("answer of a script")
}

// Left returns how many tokens are left, and how many are taken: together as many as were loaded. Its errors: ErrNotWarmed,
// ErrInvalid, ErrUnavailable.
func (t *Tokens) Left(ctx context.Context, item, activity ID) (left, taken int64, err error) {
	var i, act string
	if err := checkID("the item", item, &i, true); err != nil {
		return 0, 0, err
	}
	if err := checkID("the activity", activity, &act, false); err != nil {
		return 0, 0, err
	}
	keys := t.c.keys.sale(t.c.home(i), i, act)
	a, err := t.c.run(ctx, t.c.scripts.tokensLook, []string{keys.control, keys.list, keys.taken})
	if err != nil {
		return 0, 0, reading(err)
	}
	if a.code() != 0 {
		return 0, 0, fail(ErrNotWarmed, "")
	}
	return a.int(1), a.int(2), nil
}

// escaped is a request id without white space.
func escaped(id string) string { return string(keyesc.Append(nil, id)) }
