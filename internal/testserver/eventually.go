package testserver

import (
	"context"
	"testing"
	"time"
)

// poll is the shortest interval between two looks at a condition.
const poll = 2 * time.Millisecond

// Eventually waits until cond returns true and ends the test, with what as the
// text, if that does not happen within timeout. cond is asked at once and then
// every few milliseconds, on the caller's goroutine; it is asked once more at the
// deadline. It replaces sleeping in tests.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := until(ctx, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatalf("not within %v: %s", timeout, what)
	}
}

// until asks cond until it returns true or an error, or ctx ends. The pause
// between two questions grows from poll to ten times that.
func until(ctx context.Context, cond func() (bool, error)) error {
	pause := poll
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if done, err := cond(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if done, err := cond(); done || err != nil {
				return err
			}
			return ctx.Err()
		case <-timer.C:
			pause = min(pause+pause/2, 10*poll)
			timer.Reset(pause)
		}
	}
}
