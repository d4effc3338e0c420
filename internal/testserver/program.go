package testserver

import (
	"cmp"
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

// byVersion orders paths so that /9.6/ comes before /15/ and /15/ before /17/:
// numbers in them are compared as numbers.
func byVersion(a, b string) int {
	for a != "" && b != "" {
		var na, nb string
		na, a = leadingNumber(a)
		nb, b = leadingNumber(b)
		switch {
		case na != "" && nb != "":
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
				return c
			}
		case na != nb:
			return strings.Compare(na+a, nb+b)
		case a[0] != b[0]:
			return strings.Compare(a, b)
		default:
			a, b = a[1:], b[1:]
		}
	}
	return strings.Compare(a, b)
}

// leadingNumber splits the digits at the start off, without leading zeros.
func leadingNumber(text string) (number, rest string) {
	rest = strings.TrimLeft(text, "0123456789")
	return strings.TrimLeft(text[:len(text)-len(rest)], "0"), rest
}
