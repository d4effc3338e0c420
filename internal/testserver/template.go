package testserver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// templateFormat is part of every template's name; raise it when the way
// templates are made changes.
const templateFormat = 2

// template returns a folder with a database cluster that was initialised once by
// the program at path, and is to be copied, never used. It is kept in the user's
// cache folder between runs. fill fills an empty folder; one process at a time
// runs it.
func template(kind, path string, acc *account, fill func(dir string) error) (_ string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d %d", templateFormat, acc.id(), path, info.Size(), info.ModTime().UnixNano()))
	dir := filepath.Join(base, fmt.Sprintf("%s-%x", kind, id[:8]))

	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // unlocks
	if err := lockFile(lock); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}

	h, err := thisHost()
	if err != nil {
		return "", err
	}
	// Made where the server's account can get to, which the cache may not be.
	fresh, err := os.MkdirTemp(h.dir, kind+"-template-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	if err := errors.Join(acc.own(fresh), fill(fresh)); err != nil {
		return "", err
	}
	// Renamed last, so that a folder of that name is always complete.
	partial := dir + ".partial"
	if err := errors.Join(os.RemoveAll(partial), copyTree(partial, fresh), os.Rename(partial, dir)); err != nil {
		return "", err
	}
	return dir, nil
}

// cacheDir returns the folder of the templates: in the user's cache folder, or
// with the temporary files if there is none.
func cacheDir() (string, error) {
	if user, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(user, "holdfast-testserver")
		if os.MkdirAll(dir, 0o700) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-testserver-%d", os.Geteuid()))
	return dir, os.MkdirAll(dir, 0o700)
}

// copyTree copies the folder from, which holds files and folders only, to the
// folder to, which may be there and empty.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case d.Type().IsRegular():
			return copyFile(target, path)
		default:
			return fmt.Errorf("cannot copy %s: %v", path, d.Type())
		}
	})
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
