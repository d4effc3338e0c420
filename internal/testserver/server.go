package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a server may take to start and to stop. Both are far above what is
// usual, for a machine that is busy with other tests.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
)

// A program says how one kind of server is run.
type program struct {
	name    string // in messages
	path    string
	account *account // nil: this process's own
	stop    string   // the signal that ends it fast and leaves nothing: "KILL" or "QUIT"
	// prepare fills the empty folder before the first start and after the data was dropped. May be nil.
	prepare func(dir string) error
	// args are its arguments, given its data folder and port.
	args func(dir string, port int) []string
	// ready asks the running server, over its own protocol, whether it serves,
	// and makes sure that it is this one and not another on the same port.
	ready func(ctx context.Context, p *proc) error
	// discard frees what a killed server left outside its folder. May be nil.
	discard func(dir string)
}

// A proc is a running server as program.ready sees it.
type proc struct {
	pid  int
	addr string
	dir  string
}

// Server is one server process under the control of the tests. Its port stays
// the same for its whole life, also across restarts. Methods may be called from
// several goroutines; those that take a testing.TB end the test on failure and
// so belong on the test's goroutine.
type Server struct {
	program program
	shared  bool
	port    *Port
	dir     string // data, removed with the server
	log     string // path of what it printed

	mu     sync.Mutex
	cmd    *exec.Cmd // nil while not running
	paused []int     // processes that are stopped
}

// start makes the folder and starts the server on a port of its own.
func start(pr program) (*Server, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.dir, pr.name+"-")
	if err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	s := &Server{program: pr, dir: filepath.Join(dir, "data"), log: filepath.Join(dir, "log")}
	err = errors.Join(os.Chmod(dir, 0o711), s.fill())
	if err != nil {
		return nil, fmt.Errorf("testserver: %s: %w", pr.name, err)
	}
	// Other programs know nothing of our reservations: take another port if one was faster.
	const attempts = 5
	for attempt := 1; ; attempt++ {
		if s.port, err = ReservePort(); err != nil {
			return nil, err
		}
		if err = s.launch(); err == nil {
			return s, nil
		}
		_ = s.port.Release() // closing a lock's file gives it up whatever is returned
		if !strings.Contains(strings.ToLower(s.Log()), "in use") || attempt == attempts {
			return nil, err
		}
	}
}

// fill makes the data folder and lets the program prepare it.
func (s *Server) fill() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	if s.program.prepare != nil {
		if err := s.program.prepare(s.dir); err != nil {
			return err
		}
	}
	return s.program.account.own(s.dir)
}

// launch starts the process and waits until it is ready. The caller holds s.mu
// or is the only one who knows s.
func (s *Server) launch() (err error) {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("testserver: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }() // the server has its own handle
	h, err := thisHost()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), s.program.path, s.program.args(s.dir, s.port.number)...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir}
	cmd.Stdout, cmd.Stderr = out, out // files, so that no goroutine copies
	cmd.SysProcAttr = ownGroup(s.program.account)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("testserver: start %s: %w", s.program.name, err)
	}
	s.cmd = cmd
	if err := h.started(cmd.Process.Pid, s.program.stop); err != nil {
		return errors.Join(err, s.end(sigKill))
	}

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p := &proc{cmd.Process.Pid, s.Addr(), s.dir}
	var last error
	err = until(ctx, func() (bool, error) {
		if state(p.pid) == 'Z' { //nolint:contextcheck // a look at the table of processes needs no deadline
			return false, errors.New("it ended")
		}
		ask, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		last = s.program.ready(ask, p)
		return last == nil, nil
	})
	if err != nil {
		text := s.Log()
		return errors.Join(fmt.Errorf("testserver: %s at %s did not start: %w (last answer: %w); its log:\n%s",
			s.program.name, p.addr, err, last, text), s.end(sigKill))
	}
	return nil
}

// end signals the process and waits until it is gone; after stopTimeout it is
// killed. The caller holds s.mu or is the only one who knows s.
func (s *Server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	pid := s.cmd.Process.Pid
	processes := []int{pid}
	var err error
	if sig == sigKill {
		// Nothing is to be forked while its children are killed.
		err = signalOne(pid, sigStop)
		processes = append(processes, descendants(pid)...)
		err = errors.Join(err, signalGroup(pid, sigKill))
		if ended(pid) {
			err = nil // some systems do not let one signal what has ended by itself
		}
	} else {
		err = errors.Join(s.cont(), signalOne(pid, sig))
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if until(ctx, func() (bool, error) { return allEnded(processes), nil }) != nil {
		err = errors.Join(err, fmt.Errorf("testserver: %s did not stop within %v", s.program.name, stopTimeout), signalGroup(pid, sigKill))
	}
	h, e := thisHost()
	if e == nil {
		e = errors.Join(s.forget(h), h.ended(pid))
	}
	// How it ended is of no interest: most are killed.
	_ = s.cmd.Wait()
	s.cmd = nil
	return errors.Join(err, e)
}

// cont lets stopped processes go on.
func (s *Server) cont() error {
	var errs []error
	for _, pid := range s.paused {
		if state(pid) != 0 {
			errs = append(errs, signalOne(pid, sigCont))
		}
	}
	h, err := thisHost()
	if err == nil {
		err = s.forget(h)
	}
	return errors.Join(append(errs, err)...)
}

func (s *Server) forget(h *host) error {
	var errs []error
	for _, pid := range s.paused {
		if pid != s.cmd.Process.Pid {
			errs = append(errs, h.ended(pid))
		}
	}
	s.paused = nil
	return errors.Join(errs...)
}

// close stops the server for good and removes its data.
func (s *Server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sig := sigKill
	if s.program.stop == "QUIT" {
		sig = sigQuit
	}
	err := s.end(sig)
	s.discard()
	return errors.Join(err, os.RemoveAll(filepath.Dir(s.dir)), s.port.Release())
}

func (s *Server) discard() {
	if s.program.discard != nil {
		s.program.discard(s.dir)
	}
}

// Addr returns "127.0.0.1:port".
func (s *Server) Addr() string { return s.port.Addr() }

// Log returns the last lines that the server has printed since it was started.
func (s *Server) Log() string {
	const most = 8 << 10
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	if len(text) > most {
		text = text[len(text)-most:]
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return string(text)
}

// serving says whether the server runs and is not paused.
func (s *Server) serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd != nil && len(s.paused) == 0
}

func allEnded(pids []int) bool {
	return !slices.ContainsFunc(pids, func(pid int) bool { return !ended(pid) })
}

// ended says whether a process is gone or waits to be reaped.
func ended(pid int) bool {
	st := state(pid)
	return st == 0 || st == 'Z' || st == 'X'
}
