package deduptest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/dedup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) dedup.Store { return NewMemory() })
}
