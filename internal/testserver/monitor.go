package testserver

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Command is one command that a Redis server has executed.
type Command struct {
	Name   string   // upper case: "EVALSHA"
	Args   []string // without the name
	Script bool     // called by a script, not sent by a client
	Client string   // address of the client, or "lua"
}

// String returns the command as one line, for messages.
func (c Command) String() string {
	line := c.Name
	for _, arg := range c.Args {
		line += " " + strconv.Quote(arg)
	}
	if c.Script {
		line += " (by a script)"
	}
	return line
}

// has says whether each of the texts occurs in an argument.
func (c Command) has(texts []string) bool {
	for _, text := range texts {
		if !slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, text) }) {
			return false
		}
	}
	return true
}

// Monitor records the commands that a Redis server executes. Its methods may be
// called from the test's goroutine while other goroutines use the server.
type Monitor struct {
	stream net.Conn      // MONITOR
	marks  net.Conn      // on which markers are sent
	done   chan struct{} // closed when the reader has ended

	mu       sync.Mutex
	commands []Command
	seen     int // the last marker that came by
	asked    int // the last marker sent
	arrived  chan struct{}
	err      error
}

// markers begin the argument of the PINGs with which a Monitor finds out that it
// has seen everything up to now.
const marker = "testserver-monitor:"

// Monitor starts to record the commands of all clients; the end of the test stops
// it. On a shared server other tests' commands are among them: ask for your prefix.
func (s *RedisServer) Monitor(t testing.TB) *Monitor {
	t.Helper()
	m := &Monitor{done: make(chan struct{}), arrived: make(chan struct{}, 1)}
	var d net.Dialer
	var err error
	if m.stream, err = d.DialContext(t.Context(), "tcp", s.Addr()); err != nil {
		t.Fatalf("testserver: monitor: %v", err)
	}
	if m.marks, err = d.DialContext(t.Context(), "tcp", s.Addr()); err != nil {
		_ = m.stream.Close() // the other error is the one to show
		t.Fatalf("testserver: monitor: %v", err)
	}
	lines := bufio.NewReader(m.stream)
	_, err = m.stream.Write([]byte("MONITOR\r\n"))
	if err == nil {
		var answer string
		if answer, err = lines.ReadString('\n'); err == nil && answer != "+OK\r\n" {
			err = fmt.Errorf("answer to MONITOR: %q", answer)
		}
	}
	go m.read(lines)
	t.Cleanup(func() {
		_ = m.stream.Close() // the server may have closed them first
		_ = m.marks.Close()
		<-m.done
	})
	if err != nil {
		t.Fatalf("testserver: monitor: %v", err)
	}
	return m
}

// read takes one line after the other until the connection ends.
func (m *Monitor) read(lines *bufio.Reader) {
	defer close(m.done)
	for {
		line, err := lines.ReadString('\n')
		if err == nil {
			err = m.record(strings.TrimSuffix(line, "\r\n"))
		}
		if err != nil {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			return
		}
	}
}

func (m *Monitor) record(line string) error {
	c, err := parseMonitor(line)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Name != "PING" || len(c.Args) != 1 || !strings.HasPrefix(c.Args[0], marker) {
		m.commands = append(m.commands, c)
		return nil
	}
	from, n, _ := strings.Cut(strings.TrimPrefix(c.Args[0], marker), "#")
	if from == m.marks.LocalAddr().String() {
		if m.seen, err = strconv.Atoi(n); err != nil {
			return err
		}
		select {
		case m.arrived <- struct{}{}:
		default: // one token is enough: who waits looks at seen
		}
	}
	return nil
}

// catchUp waits until everything that was executed before it was called is recorded.
func (m *Monitor) catchUp(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	m.asked++
	want := m.asked
	m.mu.Unlock()
	mark := fmt.Sprintf("%s%s#%d", marker, m.marks.LocalAddr(), want)
	if _, err := fmt.Fprintf(m.marks, "PING %s\r\n", mark); err != nil {
		t.Fatalf("testserver: monitor: %v", err)
	}
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	for {
		m.mu.Lock()
		seen := m.seen
		m.mu.Unlock()
		if seen >= want {
			return
		}
		select {
		case <-m.arrived:
		case <-m.done:
			m.mu.Lock()
			err := m.err
			m.mu.Unlock()
			t.Fatalf("testserver: monitor: the server closed the connection: %v", err)
		case <-deadline.C:
			t.Fatalf("testserver: monitor: the server did not answer within %v", stopTimeout)
		}
	}
}

// Commands returns, in order, the commands executed up to now since the start or
// the last Reset, of which each of the texts is part of some argument.
func (m *Monitor) Commands(t testing.TB, texts ...string) []Command {
	t.Helper()
	m.catchUp(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Command
	for _, c := range m.commands {
		if c.has(texts) {
			list = append(list, c)
		}
	}
	return list
}

// Sent is Commands without those that scripts called: what went over the network.
func (m *Monitor) Sent(t testing.TB, texts ...string) []Command {
	t.Helper()
	return slices.DeleteFunc(m.Commands(t, texts...), func(c Command) bool { return c.Script })
}

// Count returns how many commands of that name clients have sent, of which each
// of the texts is part of some argument.
func (m *Monitor) Count(t testing.TB, name string, texts ...string) int {
	t.Helper()
	n := 0
	for _, c := range m.Sent(t, texts...) {
		if strings.EqualFold(c.Name, name) {
			n++
		}
	}
	return n
}

// Reset forgets the commands executed up to now.
func (m *Monitor) Reset(t testing.TB) {
	t.Helper()
	m.catchUp(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands = nil
}

// parseMonitor parses a line such as
//
//	+1339518083.107412 [0 127.0.0.1:60866] "set" "a" "b\r\n"
//
// where a script's call has "lua" for the address.
func parseMonitor(line string) (Command, error) {
	bad := func() (Command, error) { return Command{}, fmt.Errorf("not a line of MONITOR: %q", line) }
	_, rest, ok := strings.Cut(line, " [")
	if !ok || line[0] != '+' {
		return bad()
	}
	where, rest, ok := strings.Cut(rest, "] ")
	if !ok {
		return bad()
	}
	_, client, ok := strings.Cut(where, " ")
	if !ok {
		return bad()
	}
	var words []string
	for rest != "" {
		word, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return bad()
		}
		text, err := strconv.Unquote(word)
		if err != nil {
			return bad()
		}
		words = append(words, text)
		rest = strings.TrimPrefix(rest[len(word):], " ")
	}
	if len(words) == 0 {
		return bad()
	}
	return Command{Name: strings.ToUpper(words[0]), Args: words[1:], Script: client == "lua", Client: client}, nil
}
