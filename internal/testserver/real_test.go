package testserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What HOLDFAST_REAL makes of each start. The tests run in processes of their own, so
// that this one's count of skipped tests stays what it is.
func TestReal_DecidesWhatAMissingServerMeans(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, mode, child, want string }{
		{"off starts nothing", "off", "start", "SKIP: testserver: needs Redis, and HOLDFAST_REAL=off starts no server | counted 1"},
		{"unset skips what is missing", "", "missing", "SKIP: testserver: needs Nothing: no nothing-server found; run scripts/servers.sh to install it | counted 1"},
		{"require fails for what is missing", "require", "missing", "FAIL: testserver: Nothing is missing and HOLDFAST_REAL=require: no nothing-server found; run scripts/servers.sh to install it | counted 0"},
		{"an unknown value is refused", "on", "start", `FAIL: testserver: HOLDFAST_REAL="on" is not known: unset it, or use "require" or "off" | counted 0`},
		{"a server that is there but does not start is a failure", "", "broken", "FAIL: testserver: Redis at"},
		{"require starts", "require", "start", "OK | counted 0"},
		{"unset starts", "", "start", "OK | counted 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, "TestChild_Real", "real "+row.child, "HOLDFAST_REAL="+row.mode).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), "verdict "+row.want) {
				t.Errorf("got\n%s\nwant %s", out, row.want)
			}
			if row.mode == "off" && !strings.Contains(string(out), "1 tests were skipped") {
				t.Errorf("the end of the run does not say that a test was skipped:\n%s", out)
			}
		})
	}
}

// TestChild_Real is the work of the processes that the test above starts; on its own
// it does nothing.
func TestChild_Real(t *testing.T) {
	var start func(t testing.TB)
	switch {
	case isChild("real start"):
		start = func(t testing.TB) { testserver.Redis(t) }
	case isChild("real broken"):
		start = func(t testing.TB) { testserver.NewRedis(t, testserver.RedisConfig("nonsense")) }
	case isChild("real missing"):
		start = testserver.StartNothing
	default:
		return
	}
	v := watch(t, start)
	text := "OK"
	if v.failed {
		text = "FAIL: " + v.text
	}
	if v.skipped {
		text = "SKIP: " + v.text
	}
	fmt.Printf("verdict %s | counted %d\n", text, testserver.Skipped())
}

func TestEventually(t *testing.T) {
	t.Parallel()
	n := 0
	testserver.Eventually(t, time.Minute, func() bool { n++; return n == 3 }, "the third time")
	if n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	n = 0
	v := watch(t, func(t testing.TB) {
		testserver.Eventually(t, 30*time.Millisecond, func() bool { n++; return false }, "the moon is blue")
	})
	if !v.failed || !strings.Contains(v.text, "not within 30ms: the moon is blue") {
		t.Errorf("got %+v, want a failure that says what did not happen", v)
	}
	if n < 2 {
		t.Errorf("asked %d times, want at least at the start and at the deadline", n)
	}
}
