package testserver

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]procStat{
		"12 (redis-server) S 1 12 12 0":    {12, 1, 'S'},
		"12 (odd ) name (x)) T 345 12 12":  {12, 345, 'T'},
		"12 (postgres: a b [local]) Z 9 1": {12, 9, 'Z'},
	} {
		if got, ok := parseStat(text); !ok || got != want {
			t.Errorf("parseStat(%q): got %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "12", "12 (a", "x (a) S 1", "12 (a) S", "12 (a) S x"} {
		if got, ok := parseStat(text); ok {
			t.Errorf("parseStat(%q): got %v, want a refusal", text, got)
		}
	}
}

func TestParseMonitor_RefusesWhatIsNotALine(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "OK", "+OK", "+1.5 [0 127.0.0.1:1]", "+1.5 [0] \"get\"", "+1.5 [0 127.0.0.1:1] ", "+1.5 [0 127.0.0.1:1] get",
		`+1.5 [0 127.0.0.1:1] "get`, `+1.5 [0 127.0.0.1:1] "\q"`, " [0 127.0.0.1:1] \"get\"",
	} {
		if c, err := parseMonitor(line); err == nil {
			t.Errorf("parseMonitor(%q): got %v, want an error", line, c)
		}
	}
}

func TestByVersion_TakesTheNewest(t *testing.T) {
	t.Parallel()
	ordered := []string{
		"/usr/lib/postgresql/9.6/bin/postgres", "/usr/lib/postgresql/15/bin/postgres",
		"/usr/lib/postgresql/17/bin/initdb", "/usr/lib/postgresql/17/bin/postgres",
	}
	got := slices.Clone(ordered)
	slices.Reverse(got)
	slices.SortFunc(got, byVersion)
	if diff := cmp.Diff(ordered, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A port that is reserved is not given away again while nobody listens on it.
func TestReservePort_NoTwoTheSame(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ports := map[string]*Port{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			p, err := ReservePort()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if ports[p.Addr()] != nil {
				t.Errorf("%s was given twice", p.Addr())
			}
			ports[p.Addr()] = p
		})
	}
	wg.Wait()
	for _, p := range ports {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestUniqueName(t *testing.T) {
	t.Parallel()
	t.Run("Ümläut/With a space, and a name that is far too long for a database", func(t *testing.T) {
		a, b := uniqueName(t), uniqueName(t)
		if a == b {
			t.Errorf("got %s twice", a)
		}
		if len(a) > 50 {
			t.Errorf("%s has %d bytes, want at most 50", a, len(a))
		}
		if rest := strings.Trim(a, "abcdefghijklmnopqrstuvwxyz0123456789_"); rest != "" {
			t.Errorf("%s holds %q", a, rest)
		}
		// With ":" after it, no prefix begins with another.
		if strings.HasPrefix(b, a+":") || strings.HasPrefix(a, b+":") {
			t.Errorf("%s and %s: one prefix begins with the other", a, b)
		}
	})
}

func TestDatabase_Via(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://postgres@127.0.0.1:12345/postgres?search_path=t1": "postgres://postgres@127.0.0.1:9/postgres?search_path=t1",
		"root@tcp(127.0.0.1:12345)/t1?parseTime=true":                 "root@tcp(127.0.0.1:9)/t1?parseTime=true",
	} {
		if got := (Database{DSN: dsn, Addr: "127.0.0.1:12345"}).Via("127.0.0.1:9"); got != want {
			t.Errorf("Via: got %s, want %s", got, want)
		}
	}
}
