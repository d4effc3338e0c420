package testserver_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// A verdict is how a test ended that was run by watch.
type verdict struct {
	failed, skipped bool
	text            string
}

// watched is a test whose end is noted instead of being the end of the real one.
type watched struct {
	testing.TB
	verdict verdict
}

func (w *watched) Fatal(args ...any) { w.end(verdict{failed: true, text: fmt.Sprint(args...)}) }

func (w *watched) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }

func (w *watched) Skip(args ...any) { w.end(verdict{skipped: true, text: fmt.Sprint(args...)}) }

func (w *watched) end(v verdict) {
	w.verdict = v
	runtime.Goexit()
}

// watch runs f with a test of which the end is returned.
func watch(t *testing.T, f func(t testing.TB)) verdict {
	t.Helper()
	w := &watched{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(w)
	}()
	<-done
	return w.verdict
}

// child is the environment variable that tells this test binary, started by one of
// its own tests, what to do.
const child = "HOLDFAST_TESTSERVER_CHILD"

func isChild(what string) bool { return os.Getenv(child) == what }

// run starts this test binary again for one test, with an environment of its own.
func run(t *testing.T, test, what string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), child+"="+what), env...)
	return cmd
}
