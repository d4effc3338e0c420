package testserver

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// missing is the error of a program that is not installed.
type missing struct{ error }

// A group is one or more servers that are started and stopped together.
type group interface{ servers() []*Server }

// A slot holds the one shared group of a kind, or why it could not be started.
type slot struct {
	once  sync.Once
	group group
	err   error
}

// The shared servers of this process, by kind. They are started by the first
// test that asks and stopped by Main.
var (
	slotsMu sync.Mutex
	slots   = map[string]*slot{}
)

// shared returns the group of that kind and starts it on first use.
func shared[G group](t testing.TB, kind string, start func() (G, error)) G {
	t.Helper()
	wanted(t, kind)
	slotsMu.Lock()
	sl := slots[kind]
	if sl == nil {
		sl = &slot{}
		slots[kind] = sl
	}
	slotsMu.Unlock()
	sl.once.Do(func() {
		g, err := start()
		if err != nil {
			sl.err = err
			return
		}
		for _, s := range g.servers() {
			s.shared = true
		}
		sl.group = g
	})
	check(t, kind, sl.err)
	return sl.group.(G)
}

// private starts a group for one test, whose end stops it.
func private[G group](t testing.TB, kind string, start func() (G, error)) G {
	t.Helper()
	wanted(t, kind)
	g, err := start()
	check(t, kind, err)
	t.Cleanup(func() {
		if err := closeAll(g); err != nil {
			t.Errorf("testserver: stop %s: %v", kind, err)
		}
	})
	return g
}

// check ends the test if its server could not be started.
func check(t testing.TB, kind string, err error) {
	t.Helper()
	var m missing
	switch {
	case errors.As(err, &m):
		unavailable(t, kind, err)
	case err != nil:
		t.Fatal(err)
	}
}

func closeAll(g group) error {
	var errs []error
	for _, s := range g.servers() {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// closeShared stops all shared servers.
func closeShared() error {
	slotsMu.Lock()
	defer slotsMu.Unlock()
	var errs []error
	for _, sl := range slots {
		if sl.group != nil {
			errs = append(errs, closeAll(sl.group))
		}
	}
	clear(slots)
	return errors.Join(errs...)
}

// names counts the prefixes, schemas and databases given out.
var names atomic.Int64

// prefix makes a prefix for keys out of the test's name and a number.
func prefix(t testing.TB) string {
	return uniqueName(t) + ":"
}

// uniqueName makes a name of lower-case letters, digits, underscores and a number
// that no other call returns. It is short enough for the name of a database.
func uniqueName(t testing.TB) string {
	name := []byte(strings.TrimPrefix(t.Name(), "Test"))
	for i, c := range name {
		switch {
		case c >= 'A' && c <= 'Z':
			name[i] = c - 'A' + 'a'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		default:
			name[i] = '_'
		}
	}
	const most = 30
	if len(name) > most {
		name = name[len(name)-most:]
	}
	return "t" + strconv.FormatInt(names.Add(1), 10) + "_" + string(name)
}
