package landing

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// gorm's cache of prepared statements has a goroutine that nothing ends.
func TestMain(m *testing.M) {
	testserver.Main(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
