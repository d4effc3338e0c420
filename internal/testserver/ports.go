package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Ports are taken from below the range from which systems pick the local ends of
// connections, so that no client takes the port of a server that is down for a
// moment. Redis Cluster's bus listens busOffset above the server's port.
const (
	firstPort = 12000
	lastPort  = 21999
	busOffset = 10000
)

// A port is reserved for one server of one test process. The reservation is a
// lock on a file, so it ends with the process at the latest.
type port struct {
	number int
	lock   *os.File
}

// reservePort finds a port, and its bus port, that nobody listens on and that no
// other test process has reserved.
func reservePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), "holdfast-test-ports-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	const attempts = 200
	for range attempts {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("testserver: %w", err)
		}
		if tryLockFile(lock) == nil && free(number) && free(number+busOffset) {
			return &port{number, lock}, nil
		}
		lock.Close()
	}
	return nil, errors.New("testserver: no free port found")
}

// release gives the port back. The lock's file stays: removing it could let two
// processes lock two files of the same name.
func (p *port) release() error { return p.lock.Close() }

func (p *port) addr() string { return address(p.number) }

func address(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }

func free(number int) bool {
	l, err := net.Listen("tcp", address(number))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
