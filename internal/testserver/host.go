package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// host is what all servers of one test process share: a folder for their data
// and a guard, a shell that outlives the process and cleans up after it.
type host struct {
	dir   string   // removed at the end
	pipe  *os.File // the guard's standard input; it acts when this closes
	guard *exec.Cmd
}

// guardScript kills the servers still running and removes the folder once its
// standard input ends, which also happens when the test binary panics, times out
// or is killed. It ignores what a terminal sends to everybody on Ctrl-C.
// Arguments: the folder. Lines read: "run SIGNAL PID" and "end PID".
const guardScript = `trap '' HUP INT QUIT TERM PIPE
dir=$1
pids=
while read -r what a b; do
	case $what in
	run) pids="$pids $a:$b" ;;
	end)
		rest=
		for p in $pids; do [ "${p#*:}" = "$a" ] || rest="$rest $p"; done
		pids=$rest
		;;
	esac
done
for p in $pids; do kill -s "${p%:*}" "${p#*:}"; kill -s CONT -- "-${p#*:}"; done
n=0
while [ $n -lt 20 ]; do
	alive=
	for p in $pids; do kill -0 "${p#*:}" && alive=yes; done
	[ "$alive" ] || break
	n=$((n+1))
	sleep 0.1
done
for p in $pids; do kill -s KILL -- "-${p#*:}"; done
rm -rf "$dir"
`

var (
	hostMu  sync.Mutex
	theHost *host
)

// thisHost returns the process's host and makes it on first use.
func thisHost() (*host, error) {
	hostMu.Lock()
	defer hostMu.Unlock()
	if theHost != nil {
		return theHost, nil
	}
	h, err := newHost()
	if err != nil {
		return nil, err
	}
	theHost = h
	return h, nil
}

// closeHost removes the folder and ends the guard. Servers must have stopped.
func closeHost() error {
	hostMu.Lock()
	defer hostMu.Unlock()
	if theHost == nil {
		return nil
	}
	h := theHost
	theHost = nil
	if err := h.pipe.Close(); err != nil {
		return fmt.Errorf("testserver: close the guard's input: %w", err)
	}
	if err := h.guard.Wait(); err != nil {
		return fmt.Errorf("testserver: guard: %w", err)
	}
	return nil
}

func newHost() (*host, error) {
	dir, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	// Servers that refuse to run as root run as another account, which must get to its own folder inside.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	guard := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "testserver-guard", dir)
	guard.Stdin = r
	guard.SysProcAttr = ownGroup(nil)
	if err := errors.Join(guard.Start(), r.Close()); err != nil {
		return nil, fmt.Errorf("testserver: start the guard: %w", errors.Join(err, w.Close()))
	}
	return &host{dir: dir, pipe: w, guard: guard}, nil
}

// started and ended tell the guard which processes are running.
func (h *host) started(pid int, signal string) error {
	_, err := fmt.Fprintf(h.pipe, "run %s %d\n", signal, pid)
	return err
}

func (h *host) ended(pid int) error {
	_, err := fmt.Fprintf(h.pipe, "end %d\n", pid)
	return err
}
