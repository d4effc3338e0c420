package dedup

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

var (
	//go:embed lua/begin.lua
	beginSource string
	//go:embed lua/renew.lua
	renewSource string
	//go:embed lua/complete.lua
	completeSource string
	//go:embed lua/fail.lua
	failSource string
	//go:embed lua/forget.lua
	forgetSource string

	beginScript    = redisx.NewScript("dedup/begin.lua", beginSource)
	renewScript    = redisx.NewScript("dedup/renew.lua", renewSource)
	completeScript = redisx.NewScript("dedup/complete.lua", completeSource)
	failScript     = redisx.NewScript("dedup/fail.lua", failSource)
	forgetScript   = redisx.NewScript("dedup/forget.lua", forgetSource)
)

const maxPrefix = 128

// RedisStore keeps the records in Redis, one hash under prefix + "idem:" + record id, with the TTL of the record. Every
// call is one script on one key, so it works on a cluster. Safe for concurrent use; nothing to close.
type RedisStore struct {
	rdb    *redisx.Client
	prefix string
}

var _ Store = (*RedisStore)(nil)

// NewRedisStore returns the store on rdb. The prefix stands in front of all its keys and may be empty; it has at most
// 128 bytes and no brace. An error means that the client or the prefix is of no use, or that a script does not load; a
// server that is away is no error.
func NewRedisStore(rdb redis.UniversalClient, prefix string) (*RedisStore, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	client, err := redisx.Wrap(rdb)
	if err != nil {
		return nil, invalid(err.Error())
	}
	if err := client.Preload(beginScript, renewScript, completeScript, failScript, forgetScript, lookScript, reopenScript); err != nil {
		return nil, fmt.Errorf("dedup: %w", err)
	}
	return &RedisStore{client, prefix + "idem:"}, nil
}

func checkPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") || len(prefix) > maxPrefix {
		return invalid(fmt.Sprintf("prefix %q: at most %d bytes and no brace, such as %q", prefix, maxPrefix, "shop:"))
	}
	return nil
}

// Begin implements Store.
func (s *RedisStore) Begin(ctx context.Context, b BeginRequest) (Answer, error) {
	lease, err := milliseconds("lease", b.Lease)
	if err != nil {
		return Answer{}, err
	}
	ttl, err := milliseconds("TTL", b.TTL)
	if err != nil {
		return Answer{}, err
	}
	reply, err := s.run(ctx, beginScript, &b.Owner, b.Token, b.Fingerprint, lease, ttl, flag(b.NoTakeover), b.TraceParent)
	if err != nil {
		return Answer{}, err
	}
	return decode(reply.Val)
}

// Renew implements Store.
func (s *RedisStore) Renew(ctx context.Context, o Owner, lease time.Duration) error {
	ms, err := milliseconds("lease", lease)
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, renewScript, &o, o.Token, ms)
	return verdict(reply, err)
}

// Complete implements Store.
func (s *RedisStore) Complete(ctx context.Context, o Owner, r Result, ttl time.Duration) error {
	ms, err := milliseconds("TTL", ttl)
	if err != nil {
		return err
	}
	if o.Attempt < 1 || r.Code < 0 {
		return invalid(fmt.Sprintf("attempt %d, code %d: at least 1 and 0", o.Attempt, r.Code))
	}
	reply, err := s.run(ctx, completeScript, &o, o.Token, o.Attempt, o.Fingerprint, ms, r.Code, flag(r.Omitted), r.Data)
	return verdict(reply, err)
}

// Fail implements Store.
func (s *RedisStore) Fail(ctx context.Context, o Owner) error { return s.giveUp(ctx, failScript, o) }

// Forget implements Store.
func (s *RedisStore) Forget(ctx context.Context, o Owner) error {
	return s.giveUp(ctx, forgetScript, o)
}

// giveUp takes the second answer of a script that was sent twice for what the first one has left: the record is gone, or
// another has begun since.
func (s *RedisStore) giveUp(ctx context.Context, script *redisx.Script, o Owner) error {
	reply, err := s.run(ctx, script, &o, o.Token)
	if err == nil && reply.Sent > 1 && (reply.Val == int64(0) || reply.Val == int64(-1)) {
		return nil
	}
	return verdict(reply, err)
}

func (s *RedisStore) run(ctx context.Context, script *redisx.Script, o *Owner, args ...any) (redisx.Reply, error) {
	if o.ID == "" || o.Token == "" {
		return redisx.Reply{}, invalid("the record id or the token is empty")
	}
	reply, err := s.rdb.Run(ctx, script, []string{s.prefix + o.ID}, args...)
	return reply, sendError(script, err)
}

// sendError makes an error of this package out of one of redisx; script may be nil.
func sendError(script *redisx.Script, err error) error {
	switch redisx.KindOf(err) {
	case 0:
		return nil
	case redisx.Unknown:
		return &Error{Err: ErrUnknownOutcome, Cause: err}
	case redisx.Failed:
		e := &Error{Err: ErrUnavailable, Cause: err}
		if script != nil {
			e.Reason = "script " + script.Name() + " failed"
		}
		return e
	}
	return &Error{Err: ErrUnavailable, Cause: err}
}

// verdict reads the answer of the four small scripts.
func verdict(reply redisx.Reply, err error) error {
	if err != nil {
		return err
	}
	switch reply.Val {
	case int64(1):
		return nil
	case int64(0):
		return ErrNoRecord
	case int64(-1):
		return ErrLeaseLost
	case int64(-2):
		return ErrCorrupt
	}
	return &Error{Err: ErrUnknownOutcome, Reason: fmt.Sprintf("a script answered %T", reply.Val)}
}

// decode reads the answer of begin.lua.
func decode(val any) (Answer, error) {
	list, _ := val.([]any)
	in := answerReader{list: list}
	a := Answer{Verdict: Verdict(in.int())}
	switch a.Verdict {
	case VerdictRun:
		a.Attempt, a.Takeover, a.TraceParent = in.int(), in.int() == 1, in.string()
	case VerdictReplay:
		a.Attempt = in.int()
		a.Result.Code, a.Result.Omitted = in.int(), in.int() == 1
		a.TraceParent, a.Result.Data = in.string(), []byte(in.string())
	case VerdictMismatch:
	case VerdictInFlight:
		a.Rest, a.Attempt, a.TraceParent = time.Duration(in.int())*time.Millisecond, in.int(), in.string()
	case VerdictInterrupted:
		a.Attempt, a.TraceParent = in.int(), in.string()
	case VerdictCorrupt:
		a.State = in.string()
		a.Result.Code, _ = strconv.Atoi(in.string()) // 0: not readable
	default:
		in.bad = true
	}
	if in.bad {
		return Answer{}, &Error{Err: ErrUnknownOutcome, Reason: fmt.Sprintf("begin answered %T of %d", val, len(list))}
	}
	return a, nil
}

// answerReader reads a list one by one and remembers whether something was not as expected.
type answerReader struct {
	list []any
	bad  bool
}

func (r *answerReader) next() any {
	if len(r.list) == 0 {
		r.bad = true
		return nil
	}
	v := r.list[0]
	r.list = r.list[1:]
	return v
}

func (r *answerReader) int() int {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return int(n)
}

func (r *answerReader) string() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

// milliseconds returns a duration for a script, rounded up; under a millisecond there is nothing to say.
func milliseconds(what string, d time.Duration) (int64, error) {
	if d < time.Millisecond {
		return 0, invalid(fmt.Sprintf("%s is %v, the least is 1ms", what, d))
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond), nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
