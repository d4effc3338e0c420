package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every type of RESP2 and RESP3 is read to its end and not further.
func TestReadValue_OneValueAtATime(t *testing.T) {
	t.Parallel()
	values := []string{
		"+OK\r\n", "-ERR no\r\n", ":-42\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(12345678901234567890\r\n",
		"$0\r\n\r\n", "$-1\r\n", "$4\r\na\r\nb\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", "~2\r\n:1\r\n:2\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", ">2\r\n+message\r\n+x\r\n",
		"|1\r\n+ttl\r\n:3600\r\n*1\r\n:9\r\n",
	}
	from := bufio.NewReader(strings.NewReader(strings.Join(values, "")))
	var got []string
	for range values {
		raw, err := readValue(from, nil)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, string(raw))
	}
	if diff := cmp.Diff(values, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestRESP_RequestsAndHowManyRepliesTheyGet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sent    string
		want    string // Command.String, "" if it is no command
		answers int
	}{
		{"*2\r\n$4\r\nincr\r\n$1\r\na\r\n", `INCR "a"`, 1},
		{"PING\r\n", "PING", 1},
		{"set a  b\n", `SET "a" "b"`, 1},
		{"\r\n", "", 0},
		{"*0\r\n", "", 0},
		{"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n", `SET "a\r\nb" ""`, 1},
		{"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n", `SUBSCRIBE "a" "b"`, 2},
		{"*1\r\n$11\r\nunsubscribe\r\n", "UNSUBSCRIBE", 1},
	} {
		raw, cmd, err := newRESP().request(bufio.NewReader(strings.NewReader(row.sent + "rest")))
		if err != nil || string(raw) != row.sent {
			t.Errorf("%q: got %q, %v", row.sent, raw, err)
			continue
		}
		var got string
		var answers int
		if cmd != nil {
			got, answers = cmd.String(), cmd.answers
		}
		if got != row.want || answers != row.answers {
			t.Errorf("%q: got %s with %d replies, want %s with %d", row.sent, got, answers, row.want, row.answers)
		}
	}
}

// What is read is passed on unchanged, whatever it is; nothing makes the reader panic.
func FuzzReadValue(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", "%1\r\n+a\r\n_\r\n", "|1\r\n+a\r\n:1\r\n:2\r\n", "$-1\r\n", "*999999\r\n", "$99999999999\r\n", ">"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := string(data)
		raw, err := readValue(bufio.NewReader(strings.NewReader(in)), nil)
		if err == nil && !strings.HasPrefix(in, string(raw)) {
			t.Errorf("read %q from %q", raw, in)
		}
	})
}

func TestKeyword(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"":                               "",
		"commit":                         "COMMIT",
		"  INSERT INTO a":                "INSERT",
		"/* trace */ -- x\n\tselect 1":   "SELECT",
		"(SELECT 1) UNION SELECT 2":      "SELECT",
		"-- nothing else":                "",
		"/* not closed":                  "",
		"begin;insert into a values (1)": "BEGIN",
	} {
		if got := keyword(sql); got != want {
			t.Errorf("keyword(%q): got %q, want %q", sql, got, want)
		}
	}
}

func TestPostgres_AFlushedPieceCountsWithItsSync(t *testing.T) {
	t.Parallel()
	message := func(kind byte, body string) string {
		n := len(body) + 4
		return string([]byte{kind, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + body
	}
	startup := "\x00\x00\x00\x09\x00\x03\x00\x00\x00"
	prepare := message('P', "s1\x00INSERT INTO a VALUES ($1)\x00\x00\x00") + message('D', "Ss1\x00") + message('H', "")
	execute := message('B', "p1\x00s1\x00\x00\x00\x00\x01\x00\x00\x00\x05value\x00\x00") + message('E', "p1\x00\x00\x00\x00\x00") + message('S', "")
	from := bufio.NewReader(strings.NewReader(startup + prepare + execute))
	c := newPostgres()
	var got []string
	for {
		raw, cmd, err := c.request(from)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		line := string(raw)
		if cmd != nil {
			line += "=" + cmd.Name
			if cmd.Name == "INSERT" && (!cmd.contains("value") || !cmd.contains("INTO a")) {
				t.Error("the statement, or its parameter, is not found")
			}
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{startup + "=STARTUP", prepare, execute + "=INSERT"}, got); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
}

// A statement has run when ReadyForQuery comes, not when its first answer does.
func TestPostgres_AReplyEndsWithReadyForQuery(t *testing.T) {
	t.Parallel()
	from := bufio.NewReader(strings.NewReader("1\x00\x00\x00\x042\x00\x00\x00\x04C\x00\x00\x00\x05\x00Z\x00\x00\x00\x05I"))
	c := newPostgres()
	var got []part
	for range 4 {
		_, part, err := c.reply(from)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part)
	}
	if diff := cmp.Diff([]part{more, more, more, last}, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
