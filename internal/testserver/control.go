package testserver

import (
	"context"
	"errors"
	"os"
	"testing"
)

// Pause stops the server with SIGSTOP, as if its machine hung: connections stay
// open, the system still accepts new ones, and nobody answers. It returns when
// the server has stopped. The end of the test resumes it.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.control(t, "pause", func() error {
		h, err := thisHost()
		if err != nil {
			return err
		}
		if s.cmd == nil {
			return errors.New("it is not running")
		}
		pid := s.cmd.Process.Pid
		// The parent first, so that no child comes after the list was made.
		if err := signalOne(pid, sigStop); err != nil {
			return err
		}
		s.paused = append(descendants(pid), pid)
		for _, pid := range s.paused {
			if pid != s.cmd.Process.Pid {
				if err := h.started(pid, "KILL"); err != nil {
					return err
				}
			}
			if err := signalOne(pid, sigStop); err != nil && !ended(pid) {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return until(ctx, func() (bool, error) {
			for _, pid := range s.paused {
				if state(pid) != 'T' && !ended(pid) {
					return false, nil
				}
			}
			return true, nil
		})
	})
}

// Resume lets a paused server go on. Nothing happens if it is not paused.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.control(t, "resume", s.cont)
}

// Kill ends the server with SIGKILL and returns when it is gone. What it had
// written to its folder stays for Restart. Nothing happens if it is not running.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.control(t, "kill", func() error { return s.end(sigKill) })
}

// Restart kills the server if it runs and starts it again on the same port with
// the data it had written. It returns when the server answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.control(t, "restart", func() error {
		return errors.Join(s.end(sigKill), s.launch())
	})
}

// RestartEmpty is Restart without the data.
func (s *Server) RestartEmpty(t testing.TB) {
	t.Helper()
	s.control(t, "restart", func() error {
		if err := s.end(sigKill); err != nil {
			return err
		}
		s.discard()
		if err := errors.Join(os.RemoveAll(s.dir), s.fill()); err != nil {
			return err
		}
		return s.launch()
	})
}

// control runs an intervention, which only a private server allows.
func (s *Server) control(t testing.TB, what string, do func() error) {
	t.Helper()
	if s.shared {
		t.Fatalf("testserver: cannot %s the shared %s: other tests use it; start a private one with New%s", what, s.program.name, s.program.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(); err != nil {
		t.Fatalf("testserver: %s %s: %v", what, s.program.name, err)
	}
}
