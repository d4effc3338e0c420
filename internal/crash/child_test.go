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
}

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
	c := &child{cmd: cmd, log: &log{}, gone: make(chan struct{}), in: in}
	cmd.Stderr = c.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	listens := lines.Scan()
	c.addr = lines.Text()
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // how it ended is of no interest: it is killed
		close(c.gone)
	}()
	if !listens {
		c.kill()
		return nil, fmt.Errorf("the shop did not start: %s", c.log)
	}
	return c, nil
}

// kill is kill -9. It returns when the process is gone, and may be called twice.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be gone already
	<-c.gone
	_ = c.in.Close()
}

// stop stops the process for a while: as a pause of its collector, or of its machine.
func (c *child) stop(d time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGSTOP) // it may be gone already
	pause(d)
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
}

func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// log keeps what a child has printed, but not more than is of use.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 1<<20 {
		l.text.Write(b)
	}
	return len(b), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
