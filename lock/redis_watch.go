package lock

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// redisWatch is the Watch of the Redis backend: a channel for each key.
type redisWatch struct {
	b       *redisBackend
	channel *redisx.Watch
	wake    func(key string)
	refused atomic.Bool
}

// Watch implements WatchBackend. It is called once for a Locker.
func (b *redisBackend) Watch(wake func(key string)) Watch {
	w := &redisWatch{b: b, wake: wake}
	w.channel = redisx.NewWatch(b.rdb, b.cluster, redisx.Listener{
		Begun: func(channel string) { w.wake(watchedKey(channel)) },
		Message: func(channel, sender string) {
			if sender != b.sender { // what we release ourselves goes to our next waiter without a message
				w.wake(watchedKey(channel))
			}
		},
		Refused: func(error) {
			if !w.refused.Swap(true) {
				b.logger.LogAttrs(context.Background(), slog.LevelWarn, "lock: this Redis refuses subscriptions; who waits for a lock of another process goes by the back-off alone")
			}
		},
	})
	b.watch.Store(w)
	return w
}

// Add implements Watch.
func (w *redisWatch) Add(key string) { w.channel.Add(freeChannel(key)) }

// Remove implements Watch.
func (w *redisWatch) Remove(key string) { w.channel.Remove(freeChannel(key)) }

// Close implements Watch.
func (w *redisWatch) Close() { w.channel.Close() }

// others tells how many of the listeners to the channel of one of keys are not of this Locker, -1 if that says nothing
// about who waits: where listening does not work here, it may not work for them.
func (w *redisWatch) others(keys []string, listeners int) int {
	switch {
	case listeners < 0 || w.refused.Load():
		return -1
	case listeners == 0:
		return 0
	}
	for _, key := range keys {
		if w.channel.Listens(freeChannel(key)) {
			return listeners - 1
		}
	}
	return listeners
}

func watchedKey(channel string) string {
	key, _ := strings.CutSuffix(channel, "}:free")
	return strings.TrimPrefix(key, "{")
}
