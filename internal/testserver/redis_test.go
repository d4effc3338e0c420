package testserver_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func TestRedis_Answers(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	if err := rdb.Set(t.Context(), srv.Prefix(t)+"a", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
}
