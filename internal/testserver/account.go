package testserver

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
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
