package testserver

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// realEnv names the environment variable that says what to do about real servers.
const realEnv = "HOLDFAST_REAL"

// installHint is the remedy named wherever a server's program is missing.
const installHint = "run scripts/servers.sh to install it"

// skipped counts the tests skipped in this process for want of a server.
var skipped atomic.Int64

// Skipped reports how many tests of this process were skipped because a server
// was missing or switched off. It is always 0 with HOLDFAST_REAL=require.
func Skipped() int { return int(skipped.Load()) }

// wanted ends the test when HOLDFAST_REAL forbids servers or has a value nobody knows.
func wanted(t testing.TB, server string) {
	t.Helper()
	switch mode := os.Getenv(realEnv); mode {
	case "", "require":
	case "off":
		skip(t, fmt.Sprintf("needs %s, and %s=off starts no server", server, realEnv))
	default:
		t.Fatalf("testserver: %s=%q is not known: unset it, or use \"require\" or \"off\"", realEnv, mode)
	}
}

// unavailable ends the test because a server's program was not found: it fails
// with HOLDFAST_REAL=require and skips otherwise. A server that is there but does
// not start is never a reason to skip.
func unavailable(t testing.TB, server string, err error) {
	t.Helper()
	if os.Getenv(realEnv) == "require" {
		t.Fatalf("testserver: %s is missing and %s=require: %v; %s", server, realEnv, err, installHint)
	}
	skip(t, fmt.Sprintf("needs %s: %v; %s", server, err, installHint))
}

// skip is the one place where a test of this project is skipped.
func skip(t testing.TB, why string) {
	t.Helper()
	skipped.Add(1)
	t.Skip("testserver: " + why)
}
