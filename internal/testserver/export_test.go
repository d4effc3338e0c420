package testserver

import (
	"errors"
	"testing"
)

// StartNothing asks for a server of which the program is not installed.
func StartNothing(t testing.TB) {
	private(t, "Nothing", func() (*RedisServer, error) { return nil, missing{errors.New("no nothing-server found")} })
}
