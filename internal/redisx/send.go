package redisx

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// attempts is how often Run sends before it gives up.
const attempts = 3

// Once runs the script once, in whatever batch is leaving. It returns what the script returned: int64, string, []any
// or nil. Its error is an *Error. keys must not be empty and must share a slot.
func (c *Client) Once(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Unavailable, context.Cause(ctx)}
	}
	node, b, err := c.route(ctx, keys[0])
	if err != nil {
		return nil, &Error{Unavailable, err}
	}
	val, err := b.do(ctx, node, s.evalsha(ctx, keys, args))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		val, err = b.do(ctx, node, s.eval(ctx, keys, args))
	}
	return answer(val, err)
}

// Alone runs the script once, outside any batch and, on a cluster, along redirections: how a script is sent again by
// somebody who keeps count himself, and not with Run.
func (c *Client) Alone(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	if ctx.Err() != nil {
		return nil, &Error{Unavailable, context.Cause(ctx)}
	}
	cmd := s.evalsha(ctx, keys, args)
	err := c.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.eval(ctx, keys, args)
		err = c.Process(ctx, cmd)
	}
	return answer(cmd.Val(), err)
}

func answer(val any, err error) (any, error) {
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, classify(err)
	}
	return val, nil
}

// Reply is the answer to Run.
type Reply struct {
	Val  any // int64, string, []any or nil
	Sent int // how often the script was sent; above 1 an earlier send may have run too
}

// Run is Once with repeats: without an answer the same call is sent again, alone, while ctx lasts and up to three sends
// in all. If none was answered, the error is Unknown as soon as one of them may have run, else Unavailable. A script
// that failed is not repeated.
func (c *Client) Run(ctx context.Context, s *Script, keys []string, args ...any) (Reply, error) {
	val, err := c.Once(ctx, s, keys, args...)
	unknown := KindOf(err) == Unknown
	sent := 1
	for ; err != nil && KindOf(err) != Failed && sent < attempts; sent++ {
		if !pause(ctx, sent) {
			break
		}
		val, err = c.Alone(ctx, s, keys, args...)
		unknown = unknown || KindOf(err) == Unknown
	}
	if err != nil && unknown && KindOf(err) == Unavailable {
		err = &Error{Unknown, errors.Unwrap(err)}
	}
	return Reply{val, sent}, err
}

// pause waits before the send after the n-th, 10-20 ms and then 40-80 ms: enough for a connection to be made anew. It
// reports whether ctx still lives.
func pause(ctx context.Context, n int) bool {
	base := 10 * time.Millisecond << (2 * (n - 1))
	timer := time.NewTimer(base + rand.N(base))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// sender is what a batch goes out on: the user's client, or one master of a cluster.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func (c *Client) route(ctx context.Context, key string) (sender, *batcher, error) {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		b := c.batcher("")
		return c, b, nil // not what it wraps, whose type may not be comparable
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	return node, c.batcher(node.Options().Addr), nil
}

func (c *Client) batcher(addr string) *batcher {
	if b, ok := c.batchers.Load(addr); ok {
		return b.(*batcher)
	}
	b, _ := c.batchers.LoadOrStore(addr, new(batcher))
	return b.(*batcher)
}
