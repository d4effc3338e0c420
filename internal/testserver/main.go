package testserver

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, stops the shared servers, looks for leaked
// goroutines if the tests passed, says how many tests were skipped, and exits.
// It is the whole body of a TestMain:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
//
// The servers themselves need no goroutine, so a test may also look for leaks of
// its own with goleak.VerifyNone while they run.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if n := Skipped(); n > 0 {
		fmt.Fprintf(os.Stderr, "testserver: %d tests were skipped for want of a server; %s, or see why with -v\n", n, installHint)
	}
	if err := errors.Join(closeShared(), closeHost()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		// A go-redis client whose server was away looks once a second whether it was closed.
		opts = append(opts, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintf(os.Stderr, "testserver: goroutines leaked: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
