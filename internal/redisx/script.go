package redisx

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1; nothing is secured by it.
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script under its name. It is immutable.
type Script struct {
	name, src string
	sha       any // a string, as an argument of every call
}

// NewScript returns the script; name is the file's, for messages.
func NewScript(name, src string) *Script {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // see the import
	return &Script{name: name, src: src, sha: hex.EncodeToString(sum[:])}
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// preloadTimeout bounds Preload, which runs while a service starts.
const preloadTimeout = 2 * time.Second

// Preload loads the scripts on every master, so that the first call of each is not one with the whole source. A script
// that the server cannot compile is an error that names it. A server that is away is none: a script that is missing is
// sent again with its source whenever that shows.
func (c *Client) Preload(scripts ...*Script) error {
	ctx, cancel := context.WithTimeout(context.Background(), preloadTimeout)
	defer cancel()
	load := func(ctx context.Context, node *redis.Client) error {
		for _, s := range scripts {
			err := node.ScriptLoad(ctx, s.src).Err()
			var answer redis.Error
			if errors.As(err, &answer) && !refused(answer.Error()) {
				return fmt.Errorf("script %s does not load: %w", s.name, err)
			}
			if err != nil {
				return nil // away: not this function's business
			}
		}
		return nil
	}
	switch rdb := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		err := rdb.ForEachMaster(ctx, load)
		var answer redis.Error
		if errors.As(err, &answer) && !refused(answer.Error()) {
			return err
		}
		return nil
	case *redis.Client:
		return load(ctx, rdb)
	}
	return nil
}

// command is an EVAL or EVALSHA that the client must not resend by itself: a repeat is ours to know about.
type command struct {
	*redis.Cmd
}

func (command) NoRetry() bool { return true }

func newCommand(ctx context.Context, verb, script any, keys []string, args []any) command {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	return command{cmd}
}

func (s *Script) evalsha(ctx context.Context, keys []string, args []any) command {
	return newCommand(ctx, "evalsha", s.sha, keys, args)
}

func (s *Script) eval(ctx context.Context, keys []string, args []any) command {
	return newCommand(ctx, "eval", s.src, keys, args)
}
