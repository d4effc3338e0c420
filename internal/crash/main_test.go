package crash

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

var (
	long    = flag.Bool("long", false, "all points with all faults, for several seeds")
	seeded  = flag.Uint64("seed", 0, "`seed` of what is random; 0: another one each time")
	soakFor = flag.Int("soak", 3000, "`requests` of the soak")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(setupEnv); text != "" {
		fmt.Fprintln(os.Stderr, serve(text))
		os.Exit(1)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // a case waits for deadlines most of its time
		if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testserver.Main(m)
}

// seed returns the seed of this run, and has it shown if the test fails.
func seed(t testing.TB) uint64 {
	t.Helper()
	n := *seeded
	if n == 0 {
		n = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t.Logf("to repeat: -seed %d", n)
	return n
}
