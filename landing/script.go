package landing

import (
	"context"
	"embed"
	"errors"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the scripts of a Lander.
type scripts struct {
	take, done, tried, leave *redisx.Script // the stream
	bury, replay, list, drop *redisx.Script // dead letters
}

func newScripts() *scripts {
	return &scripts{
		take: script("take"), done: script("done"), tried: script("tried"), leave: script("leave"),
		bury: script("bury"), replay: script("replay"), list: script("list"), drop: script("drop"),
	}
}

func script(name string) *redisx.Script {
	var src []byte
	for _, part := range []string{"common", name} {
		text, err := sources.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic("landing: " + err.Error()) // embedded at build time: cannot be missing
		}
		src = append(src, text...)
	}
	return redisx.NewScript(name+".lua", string(src))
}

// answer is what a script returned: a code and more.
type answer []any

func (a answer) int(i int) int64 {
	if i >= len(a) {
		return 0
	}
	n, _ := a[i].(int64)
	return n
}

func (a answer) text(i int) string {
	if i >= len(a) {
		return ""
	}
	s, _ := a[i].(string)
	return s
}

// codeForeign is the code with which every script says that something else lies under a key.
const codeForeign = -10

// run sends a script, again if no answer comes. sent above 1 says that an earlier send may have run too.
func (e *engine) run(ctx context.Context, s *redisx.Script, keys []string, args ...any) (a answer, sent int, err error) {
	reply, err := e.rdb.Run(ctx, s, keys, args...)
	if err != nil {
		if redisx.KindOf(err) == redisx.Failed {
			return nil, reply.Sent, &Error{sentinel: ErrInvalid, reason: "Redis refused the script " + s.Name() + ": it must be 6.2 or later", cause: err}
		}
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return nil, reply.Sent, &Error{sentinel: ErrUnavailable, cause: err}
	}
	list, _ := reply.Val.([]any)
	if a = answer(list); len(a) == 0 || a.int(0) == codeForeign {
		return nil, reply.Sent, fail(ErrInvalid, "something else lies under a stream's key")
	}
	return a, reply.Sent, nil
}
