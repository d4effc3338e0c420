package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// setupEnv has a setup in it if this process is to be a shop.
const setupEnv = "HOLDFAST_CRASH_SHOP"

// serve is the main function of a child. It ends with its standard input: when the parent ends, in whatever way.
func serve(text string) error {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	sh, err := openShop(s)
	if err != nil {
		return err
	}
	if s.Run {
		go sh.work()
		go sh.sweep()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: sh.routes(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	fmt.Println(l.Addr())
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

// child is a shop's process, as its parent sees it.
type child struct {
	addr string
	cmd  *exec.Cmd
	log  *log
	gone chan struct{} // closed when the process has ended
	in   io.Closer

	mayDie bool        // by its own hand, as it was told
	killed atomic.Bool // by us
}

// startMost is how long a shop may take to listen; the machine may be busy with other tests.
const startMost = time.Minute

// start starts a shop and returns when it listens.
func start(s setup) (*child, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), setupEnv+"="+string(text))
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, log: &log{}, gone: make(chan struct{}), in: in, mayDie: s.DieAt != ""}
	cmd.Stderr = c.log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	listens := make(chan string, 1)
	go func() {
		if lines := bufio.NewScanner(out); lines.Scan() {
			listens <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // how it ended, its ProcessState says
		close(c.gone)
	}()
	late := time.NewTimer(startMost)
	defer late.Stop()
	select {
	case c.addr = <-listens:
		return c, nil
	case <-c.gone:
		return nil, fmt.Errorf("the shop did not start: %s", c.log)
	case <-late.C:
		c.kill()
		return nil, fmt.Errorf("the shop does not listen after %v: %s", startMost, c.log)
	}
}

// kill is kill -9. It returns when the process is gone, and may be called twice.
func (c *child) kill() {
	if c.alive() {
		c.killed.Store(true)
	}
	_ = c.cmd.Process.Kill() // it may be gone already
	<-c.gone
	_ = c.in.Close()
}

// stop stops the process for a while: as a pause of its collector, or of its machine. before is done at the end of it.
func (c *child) stop(d time.Duration, before func()) {
	_ = c.cmd.Process.Signal(syscall.SIGSTOP) // it may be gone already
	pause(d)
	before()
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
}

// fault says what a shop has done that none may do: end by itself, panic, or race; "" if nothing.
func (c *child) fault() string {
	if what := c.log.trouble(); what != "" {
		return fmt.Sprintf("a shop has printed %q", what)
	}
	if c.alive() || c.killed.Load() {
		return ""
	}
	if ended, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); c.mayDie && ok && ended.Signal() == syscall.SIGKILL {
		return ""
	}
	return "a shop has ended by itself: " + c.cmd.ProcessState.String()
}

// last returns the last lines that it has printed.
func (c *child) last() string {
	lines := strings.Split(strings.TrimSpace(c.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-80):], "\n")
}

func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// log keeps what a child has printed, but not more than is of use, and notices what it must not print.
type log struct {
	mu    sync.Mutex
	text  strings.Builder
	tail  string // the end of the last piece: a word may be cut in two
	found string
	room  int // for what comes behind the word found
}

// alarming are the words of the runtime, the race detector and net/http.
var alarming = []string{"panic:", "fatal error:", "DATA RACE", "http: panic"}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	piece := l.tail + string(b)
	l.tail = piece[max(0, len(piece)-16):]
	for _, word := range alarming {
		if l.found == "" && strings.Contains(piece, word) {
			l.found, l.room = word, l.text.Len()+64<<10
		}
	}
	if l.text.Len() < max(1<<20, l.room) {
		l.text.Write(b)
	}
	return len(b), nil
}

// trouble returns the alarming word that was printed, "" if none.
func (l *log) trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
