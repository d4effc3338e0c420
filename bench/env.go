package main

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Env is what a case runs in. Whatever it hands out is closed when the case is over.
type Env struct {
	testing.TB
	redis *testserver.RedisServer
}

// Redis returns the case's own Redis server, started at the first call.
func (e *Env) Redis() *testserver.RedisServer {
	if e.redis == nil {
		e.redis = testserver.NewRedis(e.TB)
	}
	return e.redis
}

// Client returns a new client for it, with go-redis's defaults: each subject has one of its own.
func (e *Env) Client(hooks ...redis.Hook) *redis.Client {
	rdb := e.Redis().Client(e.TB)
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	return rdb
}

// must returns what f does; an error ends the measurement.
func must[T any](e *Env, f func() (T, error)) T {
	e.Helper()
	v, err := f()
	if err != nil {
		e.Fatal(err)
	}
	return v
}

// quiet is a logger that drops everything.
var quiet = slog.New(slog.DiscardHandler)

// standalone is a testing.TB for a program of its own, as far as package testserver needs one: a failure panics with a
// *failure, and cleanups run when close is called.
type standalone struct {
	testing.TB // nil: for the methods that nobody calls, and the unexported one

	name     string
	cleanups []func()
	failed   bool
}

// failure is the panic of a standalone that failed.
type failure struct{ text string }

func (s *standalone) Helper()                           {}
func (s *standalone) Name() string                      { return s.name }
func (s *standalone) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *standalone) Failed() bool                      { return s.failed }
func (s *standalone) Log(args ...any)                   { fmt.Fprintln(os.Stderr, args...) }
func (s *standalone) Logf(format string, args ...any)   { s.Log(fmt.Sprintf(format, args...)) }
func (s *standalone) Error(args ...any)                 { s.failed = true; s.Log(args...) }
func (s *standalone) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *standalone) Fatal(args ...any)                 { panic(&failure{fmt.Sprint(args...)}) }
func (s *standalone) Fatalf(format string, args ...any) {
	panic(&failure{fmt.Sprintf(format, args...)})
}
func (s *standalone) Skip(args ...any) { s.Fatal(args...) } // a figure that is missing is no figure

// run calls f and then the cleanups, last first. A failure of either is its error.
func (s *standalone) run(f func() error) (err error) {
	defer func() {
		p := recover()
		for i := len(s.cleanups) - 1; i >= 0; i-- {
			s.cleanups[i]()
		}
		switch fail, ours := p.(*failure); {
		case ours:
			err = fmt.Errorf("%s: %s", s.name, fail.text)
		case p != nil:
			panic(p)
		case err == nil && s.failed:
			err = fmt.Errorf("%s: failed, see above", s.name)
		}
	}()
	return f()
}
