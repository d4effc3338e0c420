package gormplugin

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// callSites remembers which places in the service's code were complained about already: once each. The zero value is
// ready.
type callSites struct{ seen sync.Map } // program counter and kind -> struct{}

type siteKey struct {
	pc   uintptr
	kind string
}

// first returns the place in the caller's code that made the statement, as "file.go:12", and whether this is the first
// complaint of the kind about it.
func (s *callSites) first(kind string) (site string, isFirst bool) {
	var pcs [48]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !isOurFrame(f) {
			if _, seen := s.seen.LoadOrStore(siteKey{f.PC, kind}, struct{}{}); seen {
				return "", false
			}
			dir, file := filepath.Split(f.File)
			return filepath.Base(dir) + "/" + file + ":" + strconv.Itoa(f.Line), true
		}
		if !more {
			return "", false
		}
	}
}

// isOurFrame reports whether a frame is of gorm or of this package, tests excepted.
func isOurFrame(f runtime.Frame) bool {
	if strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	return strings.HasPrefix(f.Function, "gorm.io/gorm") || strings.HasPrefix(f.Function, ScopeName+".")
}
