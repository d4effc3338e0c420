//go:build unix

package testserver_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Several test binaries run at once, as under "go test ./...": each gets servers of
// its own, and those that find no initialised database make it together.
func TestProcesses_InParallelWithAnEmptyCache(t *testing.T) {
	t.Parallel()
	cache, temp := t.TempDir(), tempDir(t)
	outputs := make([]bytes.Buffer, 3)
	var cmds []*exec.Cmd
	for i := range outputs {
		cmd := run(t, "TestChild_StartsAll", "all", "XDG_CACHE_HOME="+cache, "HOME="+cache, "TMPDIR="+temp)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		must(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	seen := map[string]bool{}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v\n%s", i, err, &outputs[i])
		}
		for _, addr := range addrs(outputs[i].String()) {
			if seen[addr] {
				t.Errorf("two processes were at %s", addr)
			}
			seen[addr] = true
		}
	}
	if len(seen) != 3*3 {
		t.Errorf("%d servers were started, want 9: %v", len(seen), seen)
	}
	wantGone(t, seen, temp)
	templates, err := filepath.Glob(filepath.Join(cache, "*", "*", "*-*"))
	must(t, err)
	if len(templates) == 0 {
		templates, err = filepath.Glob(filepath.Join(cache, "*", "*-*"))
		must(t, err)
	}
	for _, path := range templates {
		if strings.HasSuffix(path, ".partial") {
			t.Errorf("left behind: %s", path)
		}
	}
	if len(templates) != 2*2 { // folder and lock, for two databases
		t.Errorf("in the cache: got %v, want one folder and one lock for each database", templates)
	}
}

// Nothing is left when a test binary is killed, even if servers are paused.
func TestProcesses_KilledTestBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	temp := tempDir(t)
	cmd := run(t, "TestChild_StartsAll", "die", "TMPDIR="+temp)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process was to be killed: %v\n%s", err, out)
	}
	seen := map[string]bool{}
	for _, addr := range addrs(string(out)) {
		seen[addr] = true
	}
	if len(seen) != 3 {
		t.Fatalf("%d servers were started, want 3:\n%s", len(seen), out)
	}
	wantGone(t, seen, temp)
}

// TestChild_StartsAll is the work of the processes that the tests above start; on its
// own it does nothing.
func TestChild_StartsAll(t *testing.T) {
	if !isChild("all") && !isChild("die") {
		return
	}
	redis, pg, maria := testserver.NewRedis(t), testserver.NewPostgres(t), testserver.NewMariaDB(t)
	for _, s := range []*testserver.Server{redis.Server, pg.Server, maria.Server} {
		fmt.Println("started at", s.Addr())
	}
	open(t, "pgx", pg.Database(t).DSN)
	if isChild("die") {
		db := open(t, "pgx", pg.DSN())
		must(t, db.Ping())
		redis.Pause(t)
		pg.Pause(t)
		must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
}

// addrs finds where the servers of a process were.
func addrs(output string) (list []string) {
	for line := range strings.Lines(output) {
		if addr, ok := strings.CutPrefix(line, "started at "); ok {
			list = append(list, strings.TrimSpace(addr))
		}
	}
	return list
}

// tempDir is a temporary folder that other accounts may pass through.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-outer-")
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// wantGone waits until no process runs in the folder and no server's folder is in it.
func wantGone(t *testing.T, addrs map[string]bool, temp string) {
	t.Helper()
	gone := func() bool {
		left, err := filepath.Glob(filepath.Join(temp, "holdfast-test-[0-9]*"))
		must(t, err)
		// Where there is no /proc, arguments show the folder of all but PostgreSQL's children.
		table, err := exec.CommandContext(t.Context(), "ps", "-A", "-o", "stat=,args=").Output()
		must(t, err)
		for line := range strings.Lines(string(table)) {
			if strings.Contains(line, temp+"/") && !strings.HasPrefix(line, "Z") {
				return false
			}
		}
		folders, err := filepath.Glob("/proc/[0-9]*/cwd")
		must(t, err)
		for _, link := range folders {
			// An error means that the process has ended.
			if dir, err := os.Readlink(link); err == nil && strings.HasPrefix(dir, temp+"/") {
				return false
			}
		}
		return len(left) == 0
	}
	testserver.Eventually(t, 30*time.Second, gone, fmt.Sprintf("servers at %v and their folders in %s are gone", addrs, temp))
}
