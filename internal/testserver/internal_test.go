package testserver

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// A port that is reserved is not given away again, though nobody listens on it; once
// released it is.
func TestReservePort_OnlyOnce(t *testing.T) {
	t.Parallel()
	if !supported {
		t.Log("without locks on files ports are probed only")
		return
	}
	for range 20 { // between release and reservation another process may be quicker
		p, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(p.lock.Name())
		if second, err := reserve(dir, p.number); second != nil || err != nil {
			t.Errorf("reserved again: got %v, %v", second, err)
		}
		l, err := net.Listen("tcp", address(p.number))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(); err != nil {
			t.Fatal(err)
		}
		if second, err := reserve(dir, p.number); second != nil || err != nil {
			t.Errorf("reserved while somebody listens: got %v, %v", second, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := reserve(dir, p.number)
		if err != nil {
			t.Fatal(err)
		}
		if again != nil {
			if err := again.Release(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Error("a port that was released is never free")
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
