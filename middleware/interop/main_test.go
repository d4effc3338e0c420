package interop

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
