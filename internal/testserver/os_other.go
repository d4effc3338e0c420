//go:build !unix

package testserver

import (
	"errors"
	"os"
	"syscall"
)

// Servers need signals, process groups and file locks, so on systems without
// them every test that wants a server is treated as if its program were missing.
const supported = false

const (
	sigQuit = syscall.SIGQUIT
	sigKill = syscall.SIGKILL
	sigStop = syscall.Signal(0)
	sigCont = syscall.Signal(0)
)

var errUnsupported = errors.New("testserver: not supported on this system")

func ownGroup(*account) *syscall.SysProcAttr { return nil }

func signalGroup(int, syscall.Signal) error { return errUnsupported }

func signalOne(int, syscall.Signal) error { return errUnsupported }

// Reserved ports are merely probed here.
func tryLockFile(*os.File) error { return nil }

func lockFile(*os.File) error { return errUnsupported }

func descendants(int) []int { return nil }

func state(int) byte { return 0 }
