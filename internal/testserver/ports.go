package testserver

import (
	"context"
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

// A Port is a loopback port reserved for one test process, also while nobody
// listens on it. The reservation is a lock on a file, so it ends with the process
// at the latest. Only programs that do not use this package can take the port.
type Port struct {
	number int
	lock   *os.File
}

// ReservePort finds a port that nobody listens on and that no other test process
// has reserved. The caller releases it.
func ReservePort() (*Port, error) {
	dir := filepath.Join(os.TempDir(), "holdfast-test-ports-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	const attempts = 200
	for range attempts {
		p, err := reserve(dir, firstPort+rand.IntN(lastPort-firstPort+1))
		if err != nil {
			return nil, fmt.Errorf("testserver: %w", err)
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, errors.New("testserver: no free port found")
}

// reserve returns nil if the port, or its bus port, is taken. The lock's file stays
// for ever: removing it could let two processes lock two files of the same name.
func reserve(dir string, number int) (*Port, error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if tryLockFile(lock) == nil && free(number) && free(number+busOffset) {
		return &Port{number, lock}, nil
	}
	return nil, lock.Close()
}

// Release gives the port back. It is called once.
func (p *Port) Release() error { return p.lock.Close() }

// Addr returns "127.0.0.1:port".
func (p *Port) Addr() string { return address(p.number) }

func address(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }

func free(number int) bool {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address(number))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
