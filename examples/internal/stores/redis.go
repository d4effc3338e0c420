package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// OpenRedis returns a client for the server at addr, or for an embedded one, and what closes both. Other processes may use
// the embedded one, too: its address is in the client's options.
func OpenRedis(ctx context.Context, addr string) (rdb *redis.Client, stop func() error, err error) {
	end := func() {}
	if addr == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return nil, nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		addr, end = embedded.Addr(), age(embedded)
	}
	rdb = redis.NewClient(&redis.Options{Addr: addr})
	stop = func() error {
		err := rdb.Close()
		end()
		return err
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("no answer from Redis at %s: %w", addr, err), stop())
	}
	return rdb, stop, nil
}

// age lets keys expire in the embedded server, which has no clock of its own. The function that it returns ends it.
func age(embedded *miniredis.Miniredis) (end func()) {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
				now := time.Now()
				embedded.FastForward(now.Sub(last))
				last = now
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-stopped
		embedded.Close()
	}
}
