package stock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the scripts of a Counter. They are made once per Counter, so that the package keeps no state.
type scripts struct {
	deduct, confirm, release, held, record *redisx.Script // orders
	wholeOpen, wholeClose, undo, append    *redisx.Script // orders in several partitions
	warm, claim, place                     *redisx.Script // sales
	look, toggle, adjust                   *redisx.Script // items
	expired, postpone                      *redisx.Script // deadlines
	moveTake, moveGive, moveDone, moveRead *redisx.Script // segments
	segment                                *redisx.Script

	survey, ages, remember, unmark, stray, expire *redisx.Script // comparing with SQL

	tokensPush, tokensOpen, tokensTake, tokensReturn, tokensLook *redisx.Script // tokens
}

// newScripts returns the scripts for the keyspace: for counters that are strings, for the hashes of a quota, or for lists
// of tokens.
func newScripts(k *keyspace, cfg *config) *scripts {
	if k.tokens {
		return &scripts{
			claim:        script("claim", "common"),
			tokensPush:   script("tokens_push", "common"),
			tokensOpen:   script("tokens_open", "common"),
			tokensTake:   script("tokens_take", "common"),
			tokensReturn: script("tokens_return", "common"),
			tokensLook:   script("tokens_look", "common"),
		}
	}
	counter := "counter_string"
	if k.quota {
		counter = "counter_hash"
	}
	all := &scripts{
		deduct:     newScript("deduct", deductOptions(k, cfg), "common", counter),
		confirm:    script("confirm", "common", "proof"),
		release:    script("release", "common", counter, "proof"),
		held:       script("held", "common"),
		record:     script("record", "common"),
		wholeOpen:  script("whole_open", "common"),
		wholeClose: script("whole_close", "common"),
		undo:       script("undo", "common", counter, "proof"),
		append:     script("append", "common"),
		warm:       script("warm", "common", counter),
		claim:      script("claim", "common"),
		place:      script("place", "common"),
		look:       script("look", "common", counter),
		toggle:     script("switch", "common"),
		adjust:     script("adjust", "common", counter),
		expired:    script("expired", "common"),
		postpone:   script("postpone", "common"),
		moveTake:   script("move_take", "common"),
		moveGive:   script("move_give", "common"),
		moveDone:   script("move_done", "common"),
		moveRead:   script("move_read", "common"),
	}
	if !k.quota {
		all.segment = script("segment", "common", counter)
		all.survey = script("survey", "common")
		all.ages = script("ages", "common")
		all.remember = script("remember", "common", "proof")
		all.unmark = script("unmark", "common")
		all.stray = script("stray", "common")
		all.expire = script("expire", "common")
	}
	return all
}

func (s *scripts) all() []*redisx.Script {
	all := []*redisx.Script{
		s.deduct, s.confirm, s.release, s.held, s.record, s.wholeOpen, s.wholeClose, s.undo, s.append, s.warm, s.claim,
		s.place, s.look, s.toggle, s.adjust, s.expired, s.postpone, s.moveTake, s.moveGive, s.moveDone, s.moveRead,
		s.segment, s.survey, s.ages, s.remember, s.unmark, s.stray, s.expire,
		s.tokensPush, s.tokensOpen, s.tokensTake, s.tokensReturn, s.tokensLook,
	}
	return slices.DeleteFunc(all, func(s *redisx.Script) bool { return s == nil })
}

// deductOptions is what stands in front of deduct.lua. What never changes in the life of a Counter is part of the script:
// as arguments it would cost a tenth of each deduct.
func deductOptions(k *keyspace, cfg *config) string {
	backlog := "false"
	if cfg.stream {
		backlog = strconv.FormatInt(cfg.backlog, 10)
	}
	return fmt.Sprintf("local LIFE, WAIT, BACKLOG, LIMITS = '%d', %d, %s, %t\n",
		cfg.recordLife().Milliseconds(), cfg.hold.Milliseconds(), backlog, !k.quota)
}

func script(name string, shared ...string) *redisx.Script { return newScript(name, "", shared...) }

// newScript puts the options and the shared parts in front of a script: Redis has no modules.
func newScript(name, options string, shared ...string) *redisx.Script {
	src := []byte(options)
	for _, part := range append(shared, name) {
		text, err := sources.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic("stock: " + err.Error()) // embedded at build time: cannot be missing
		}
		src = append(src, text...)
	}
	return redisx.NewScript(name+".lua", string(src))
}

// answer is what a script returned: a code and more, integers and texts.
type answer []any

func (a answer) code() int64 { return a.int(0) }

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

// codeInvalid is the code that all scripts share: an argument or a stored value is wrong, and which.
const codeInvalid = -10

// run sends a script, again if no answer comes, and turns a missing or an invalid answer into an error.
func (c *Counter) run(ctx context.Context, s *redisx.Script, keys []string, args ...any) (answer, error) {
	reply, err := c.rdb.Run(ctx, s, keys, args...)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return nil, transport(err)
	}
	a, ok := reply.Val.([]any)
	if !ok || len(a) == 0 {
		return nil, corrupt("answer of a script")
	}
	if answer(a).code() == codeInvalid {
		if answer(a).text(1) == "stored" {
			return nil, corrupt(answer(a).text(2))
		}
		return nil, &Error{sentinel: ErrInvalid, reason: answer(a).text(2)}
	}
	return a, nil
}

// transport turns an error of redisx into one of this package.
func transport(err error) *Error {
	switch redisx.KindOf(err) {
	case redisx.Unavailable:
		return &Error{sentinel: ErrUnavailable, cause: err}
	case redisx.Failed:
		e := misuse("Redis refused the script: an old server, or a cluster without WithPartitions")
		e.cause = err
		return e
	}
	return &Error{sentinel: ErrUnknownOutcome, cause: err}
}
