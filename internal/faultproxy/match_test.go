package faultproxy_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMatch_ChoosesByNameTextAndNumber(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		match func(key string) faultproxy.Match
		want  string // for six INCR on b, a, b, a, b, a: x where the reply was lost
	}{
		{"the next one", func(string) faultproxy.Match { return faultproxy.Named("INCR") }, "x....."},
		{"any", func(string) faultproxy.Match { return faultproxy.Any() }, "x....."},
		{"lower case", func(string) faultproxy.Match { return faultproxy.Named("incr") }, "x....."},
		{"another name", func(string) faultproxy.Match { return faultproxy.Named("DECR") }, "......"},
		{"by text", func(key string) faultproxy.Match { return faultproxy.Any().Containing(key + "a") }, ".x...."},
		{"two texts", func(key string) faultproxy.Match { return faultproxy.Any().Containing(key).Containing("a\r\n") }, ".x...."},
		{"the second", func(key string) faultproxy.Match { return faultproxy.Named("INCR").Nth(2) }, ".x...."},
		{"the second by text", func(key string) faultproxy.Match { return faultproxy.Any().Containing(key + "a").Nth(2) }, "...x.."},
		{"twice from the second", func(string) faultproxy.Match { return faultproxy.Any().Nth(2).Times(2) }, ".xx..."},
		{"always", func(key string) faultproxy.Match { return faultproxy.Any().Containing(key + "b").Always() }, "x.x.x."},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Redis(t)
			p := faultproxy.Redis(t, srv.Addr())
			key := srv.Prefix(t)
			rule := p.On(row.match(key), faultproxy.LoseReply())
			got := ""
			for i := range 6 {
				// A connection without a greeting, so that INCR is all that is sent.
				if answered(t, p.Addr(), "INCR "+key+string("ba"[i%2])) {
					got += "."
				} else {
					got += "x"
				}
			}
			if got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if got, want := rule.Fired(), strings.Count(row.want, "x"); got != want {
				t.Errorf("fired %d times, want %d", got, want)
			}
		})
	}
}

// answered sends one command on a new connection and says whether a reply came.
func answered(t *testing.T, addr, command string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 64))
	if err != nil && !isCut(err) {
		t.Fatal(err)
	}
	return n > 0
}

func TestCommands_LogsWhatWasSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.Reset()
	if err := f.rdb.Set(t.Context(), f.key, "a b", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.rdb.Get(t.Context(), f.key).Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range f.proxy.Commands(faultproxy.Any().Containing(f.key)) {
		got = append(got, c.String())
	}
	want := []string{`SET "` + f.key + `" "a b" "ex" "60"`, `GET "` + f.key + `"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}
