package telemetry

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/holdfast-go/holdfast"

// Version returns the version of the module as the program was built with it, "(devel)" where it was not built as a
// dependency.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "(devel)"
})
