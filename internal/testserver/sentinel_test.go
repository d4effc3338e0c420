package testserver_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestSentinel_Failover(t *testing.T) {
	start := time.Now()
	s := testserver.NewSentinel(t)
	t.Log(time.Since(start))
	rdb := s.Client(t)
	if err := rdb.Set(t.Context(), "x", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(start))
	s.Failover(t)
	t.Log(time.Since(start))
	t.Log(rdb.Set(t.Context(), "x", "1", time.Minute))
	t.Log(time.Since(start))
	s.Failover(t)
	t.Log(time.Since(start))
	s.Primary(t).Kill(t)
	r := s.Replica(t)
	testserver.Eventually(t, time.Minute, func() bool { return s.Primary(t) == r }, "x")
	t.Log(time.Since(start))
	t.Log(rdb.Set(t.Context(), "x", "1", time.Minute))
	t.Log(time.Since(start))
}
