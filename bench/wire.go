package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// trips is a client hook that counts round trips: commands sent alone and pipelines.
type trips struct{ n atomic.Int64 }

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// recorder is a client hook that keeps the arguments of the scripts sent alone, so that they can be sent by hand.
type recorder struct {
	mu   sync.Mutex
	sent [][]any
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			r.mu.Lock()
			r.sent = append(r.sent, cmd.Args())
			r.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A replay is a recorded command that is sent again with other keys and tokens.
type replay struct {
	args []any
	from []string // what is put in place of each of these, wherever it stands in an argument, is given to send
}

// send sends the command plainly, the way a service would that has only the script.
func (p replay) send(ctx context.Context, rdb *redis.Client, to ...string) (any, error) {
	args := make([]any, len(p.args))
	for i, arg := range p.args {
		args[i] = arg
		text, ok := arg.(string)
		if !ok {
			continue
		}
		for n, from := range p.from {
			if before, after, found := strings.Cut(text, from); found {
				text = before + to[n] + after
				args[i] = text
			}
		}
	}
	return rdb.Do(ctx, args...).Result()
}

// executed returns how many commands the server has executed, those that scripts call included, without those by which
// a client makes a connection and by which this function asks.
func executed(ctx context.Context, rdb *redis.Client) (float64, error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(info) {
		name, figures, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || strings.HasPrefix(name, "client") || strings.HasPrefix(name, "config") || name == "info" || name == "hello" || name == "ping" {
			continue
		}
		calls, _, _ := strings.Cut(figures, ",")
		n, err := strconv.ParseFloat(calls, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
