package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// folders are where servers lie that are not on the PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin",
	"/opt/homebrew/bin", "/opt/homebrew/opt/postgresql*/bin",
}

// find returns the path of the first of the named programs that is installed.
// Of several versions in versioned folders it takes the last in order.
func find(names ...string) (string, error) {
	if !supported {
		return "", fmt.Errorf("servers cannot be run by the tests on this system")
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		for _, folder := range folders {
			// The only error is a malformed pattern.
			paths, _ := filepath.Glob(filepath.Join(folder, name))
			slices.SortFunc(paths, byVersion)
			for _, path := range slices.Backward(paths) {
				if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
					return path, nil
				}
			}
		}
	}
	return "", fmt.Errorf("no %s found", strings.Join(names, " or "))
}

// byVersion orders /9.6/ before /15/: the shorter path is the older version.
func byVersion(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
