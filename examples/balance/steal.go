package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/lock"
)

// steal shows why a lock alone is not enough. Redis forgets a lock, as in a failover, and another process gets it while its
// holder, who knows nothing of it, is about to write. The first error is what the first holder hears.
func (b *bank) steal(ctx context.Context, from, to int64) (refused, err error) {
	keys := []string{fmt.Sprintf("account:%d", from), fmt.Sprintf("account:%d", to)}
	first, err := b.locker.Acquire(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer func() {
		if released := first.Release(ctx); !errors.Is(released, lock.ErrLost) {
			err = errors.Join(err, fmt.Errorf("a stolen lock was released as if it were held: %w", released))
		}
	}()
	for _, key := range keys {
		if err := b.Redis.Del(ctx, b.Prefix+"lock:"+key).Err(); err != nil {
			return nil, err
		}
	}
	elsewhere, err := b.newLocker() // as another process has one
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, elsewhere.Close(ctx)) }()
	err = elsewhere.Do(ctx, keys, func(ctx context.Context) error { return b.move(ctx, "second holder", from, to) })
	if err != nil {
		return nil, err
	}
	return b.move(first.Context(ctx), "first holder", from, to), nil
}

// move is a transfer without HTTP.
func (b *bank) move(ctx context.Context, request string, from, to int64) error {
	return b.transfer(gormplugin.ContextWithRequest(ctx, request, 1), &Transfer{From: from, To: to, Cents: 1})
}
