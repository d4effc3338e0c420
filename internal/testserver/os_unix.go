//go:build unix

package testserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// supported says whether servers can be started and signalled on this system.
const supported = true

const (
	sigQuit = syscall.SIGQUIT
	sigKill = syscall.SIGKILL
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// ownGroup puts a process into a group of its own, out of reach of Ctrl-C, and
// lets it run as another account if acc is not nil.
func ownGroup(acc *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if acc != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(acc.uid), Gid: uint32(acc.gid)}
	}
	return attr
}

// signalGroup signals a server and what it forked. PostgreSQL's children leave
// the group, so descendants are looked up too.
func signalGroup(pid int, sig syscall.Signal) error {
	children := descendants(pid)
	err := syscall.Kill(-pid, sig)
	for _, child := range children {
		// A child may have ended meanwhile.
		if e := syscall.Kill(child, sig); e != nil && e != syscall.ESRCH && err == nil {
			err = e
		}
	}
	return err
}

func signalOne(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// tryLockFile and lockFile lock a file for this process; closing it unlocks.
func tryLockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// A procStat is one line of the process table.
type procStat struct {
	pid, parent int
	state       byte // 'T' stopped, 'Z' ended but not waited for
}

// processes reads the process table from /proc, or from ps where there is none.
func processes() []procStat {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		return processesFromPS()
	}
	list := make([]procStat, 0, len(stats))
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		if p, ok := parseStat(string(text)); ok {
			list = append(list, p)
		}
	}
	return list
}

// parseStat parses "pid (name) state ppid ..."; the name may hold anything.
func parseStat(text string) (procStat, bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, false
	}
	rest := strings.Fields(text[end+1:])
	pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	if err != nil || len(rest) < 2 {
		return procStat{}, false
	}
	parent, err := strconv.Atoi(rest[1])
	return procStat{pid, parent, rest[0][0]}, err == nil
}

func processesFromPS() []procStat {
	out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=,state=").Output()
	if err != nil {
		return nil
	}
	var list []procStat
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		pid, err1 := strconv.Atoi(f[0])
		parent, err2 := strconv.Atoi(f[1])
		if err1 == nil && err2 == nil {
			list = append(list, procStat{pid, parent, f[2][0]})
		}
	}
	return list
}

// descendants lists the children of pid and their children.
func descendants(pid int) []int {
	table := processes()
	found := []int{pid}
	for i := 0; i < len(found); i++ {
		for _, p := range table {
			if p.parent == found[i] {
				found = append(found, p.pid)
			}
		}
	}
	return found[1:]
}

// state returns the state of a process, or 0 if there is none.
func state(pid int) byte {
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		if p, ok := parseStat(string(text)); ok {
			return p.state
		}
		return 0
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return 0
	}
	for _, p := range processesFromPS() {
		if p.pid == pid {
			return p.state
		}
	}
	return 0
}
