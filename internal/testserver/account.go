package testserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// account is a system account that a server runs as.
type account struct {
	name     string
	uid, gid int
}

// unprivileged returns the first of the named accounts that exists, for servers
// that refuse to run as root; nil if this process is not root anyway.
func unprivileged(names ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("testserver: account %s has id %s:%s", name, u.Uid, u.Gid)
		}
		return &account{name, uid, gid}, nil
	}
	return nil, fmt.Errorf("testserver: this server does not run as root, and there is none of the accounts %q", names)
}

// own gives a file or folder, with all in it, to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.uid, a.gid)
	})
}

// id tells accounts apart in the names of cached folders.
func (a *account) id() string {
	if a == nil {
		return strconv.Itoa(os.Geteuid())
	}
	return strconv.Itoa(a.uid)
}

// runAs runs a program to its end, in the folder, with a text on its standard input.
func runAs(acc *account, dir, input, path string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/libexec", "LC_ALL=C", "TZ=UTC"}
	cmd.Stdin = strings.NewReader(input)
	cmd.SysProcAttr = ownGroup(acc)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path, err, out)
	}
	return nil
}
