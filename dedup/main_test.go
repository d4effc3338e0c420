package dedup_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // tests of logs have a logger of their own
	testserver.Main(m)
}
