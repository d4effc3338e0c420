package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// Some cases need several processes. A child is this program again, told by its environment what to do: it prepares
// itself, and then, for each duration that it reads from its standard input, measures for so long and writes what came
// of it as a line of JSON. It ends with its input, so it does not outlive its parent.
const (
	childEnv = "HOLDFAST_BENCH_CHILD" // which of children
	addrEnv  = "HOLDFAST_BENCH_ADDR"  // of the Redis server
)

type childFunc func(e *Env, addr string) func(d time.Duration) (any, error)

// children are what a child may do.
func children() map[string]childFunc { return map[string]childFunc{hotChildName: hotChild} }

// child does a child's work and returns true if this process is one.
func child() bool {
	name := os.Getenv(childEnv)
	if name == "" {
		return false
	}
	s := &standalone{name: "child " + name}
	err := s.run(func() error {
		prepare, ok := children()[name]
		if !ok {
			return errors.New("unknown")
		}
		return obey(prepare(&Env{TB: s}, os.Getenv(addrEnv)))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	return true
}

func obey(measure func(d time.Duration) (any, error)) error {
	enc, in := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	for in.Scan() {
		d, err := time.ParseDuration(in.Text())
		if err != nil {
			return err
		}
		result, err := measure(d)
		if err != nil {
			return err
		}
		if err := enc.Encode(result); err != nil {
			return err
		}
	}
	return in.Err()
}

// A process is a child that runs.
type process struct {
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts a child, which the end of the case ends.
func startChild(e *Env, name, addr string) *process {
	exe := must(e, os.Executable)
	cmd := exec.Command(exe) //nolint:noctx // it ends with its input
	cmd.Env = append(os.Environ(), childEnv+"="+name, addrEnv+"="+addr)
	cmd.Stderr = os.Stderr
	in := must(e, cmd.StdinPipe)
	out := must(e, cmd.StdoutPipe)
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			e.Errorf("child %s: %v", name, err)
		}
	})
	return &process{in, json.NewDecoder(out)}
}

// runAll has the children measure for d at the same time.
func runAll[T any](all []*process, d time.Duration) ([]T, error) {
	for _, p := range all {
		if _, err := fmt.Fprintln(p.in, d); err != nil {
			return nil, fmt.Errorf("child: %w", err)
		}
	}
	results := make([]T, len(all))
	for i, p := range all {
		if err := p.out.Decode(&results[i]); err != nil {
			return nil, fmt.Errorf("child: %w", err)
		}
	}
	return results, nil
}

// clientOf returns a client for a server that another process has started.
func clientOf(e *Env, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	e.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			e.Error(err)
		}
	})
	return rdb
}
