package testserver

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Deployment is one of the shapes in which Redis is run in production. Tests
// that must hold in all of them range over Deployments.
type Deployment struct {
	Name string
	// Open returns a client for the shared servers of this shape, closed by the end
	// of the test, and a prefix for the test's keys.
	Open func(t testing.TB) (rdb redis.UniversalClient, prefix string)
	// Eternal returns the keys that begin with the prefix and never expire.
	Eternal func(t testing.TB, prefix string) []string
}

// Deployments returns standalone, sentinel and cluster.
func Deployments() []Deployment {
	return []Deployment{
		{
			Name: "standalone",
			Open: func(t testing.TB) (redis.UniversalClient, string) {
				s := Redis(t)
				return s.Client(t), s.Prefix(t)
			},
			Eternal: func(t testing.TB, prefix string) []string { return Redis(t).Eternal(t, prefix) },
		},
		{
			Name: "sentinel",
			Open: func(t testing.TB) (redis.UniversalClient, string) {
				s := Sentinel(t)
				return s.Client(t), s.Prefix(t)
			},
			Eternal: func(t testing.TB, prefix string) []string { return Sentinel(t).Eternal(t, prefix) },
		},
		{
			Name: "cluster",
			Open: func(t testing.TB) (redis.UniversalClient, string) {
				c := Cluster(t)
				return c.Client(t), c.Prefix(t)
			},
			Eternal: func(t testing.TB, prefix string) []string { return Cluster(t).Eternal(t, prefix) },
		},
	}
}
