package testserver_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestCluster_Answers(t *testing.T) {
	start := time.Now()
	c := testserver.Cluster(t)
	t.Log(time.Since(start))
	rdb := c.Client(t)
	for _, k := range []string{"a", "b", "c", "d"} {
		if err := rdb.Set(t.Context(), c.Prefix(t)+k, "1", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCluster_Failover(t *testing.T) {
	start := time.Now()
	c := testserver.NewCluster(t, testserver.Replicas())
	t.Log(time.Since(start))
	rdb := c.Client(t)
	c.Failover(t, "x")
	t.Log(time.Since(start))
	if err := rdb.Set(t.Context(), "x", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	c.Node(t, "x").Kill(t)
	t.Log(time.Since(start))
	c.Failover(t, "x")
	t.Log(time.Since(start))
	t.Log(rdb.Set(t.Context(), "x", "1", time.Minute))
}
