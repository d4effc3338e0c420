package lock

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// Scan implements BoardBackend.
func (b *redisBackend) Scan(ctx context.Context, prefix string, yield func(keys []string) bool) error {
	return translate(b.rdb.ScanPrefix(ctx, prefix, yield))
}

// Look implements BoardBackend.
func (b *redisBackend) Look(ctx context.Context, keys []string) ([]Seen, error) {
	var mu sync.Mutex
	var all []Seen
	_, err := b.eachGroup(ctx, keys, func(ctx context.Context, keys []string) (State, error) {
		seen, err := b.look1(ctx, keys)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seen...)
		return Ours, err
	})
	return all, err
}

// look1 looks at keys of one slot.
func (b *redisBackend) look1(ctx context.Context, keys []string) ([]Seen, error) {
	val, err := b.send(ctx, false, scripts.inspect, withFences(keys))
	if err != nil {
		return nil, err
	}
	list, ok := val.([]any)
	if !ok || len(list) != 3*len(keys) {
		return nil, unreadable(scripts.inspect.Name())
	}
	var seen []Seen
	for i, key := range keys {
		token, ok := list[3*i].(string)
		left, okLeft := list[3*i+1].(int64)
		if !ok || !okLeft {
			continue
		}
		s := Seen{Key: key, Token: token, Left: time.Duration(left) * time.Millisecond}
		if number, ok := list[3*i+2].(string); ok {
			s.Fence, _ = strconv.ParseInt(number, 10, 64) // 0 for what is no number: not known
		}
		seen = append(seen, s)
	}
	return seen, nil
}

// Force implements BoardBackend.
func (b *redisBackend) Force(ctx context.Context, key, token string) (int64, State, error) {
	val, err := b.send(ctx, false, scripts.force, withFences([]string{key}), token, fenceMillis, b.publish(), b.message(true), freeChannel(key))
	if err != nil {
		return 0, 0, err
	}
	a, err := parse(scripts.force, val)
	if err != nil {
		return 0, 0, err
	}
	s, err := state(a.code)
	return a.n, s, err
}
