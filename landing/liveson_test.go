package landing

import (
	"testing"
	"time"
)

// Orders that wait for long, for SQL is away perhaps, and dead letters that wait for an operator are not forgotten: a worker
// pushes the TTL of both streams forward as long as something is in them.
func TestWorkersKeepTheStreamsAlive(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	s.deliver(map[string]any{"order": "x", "units": "many"})
	s.work() // one lies with the dead letters
	s.buy(1)
	stream := s.counter.Streams()[0]
	lane := s.newLane("late")
	for _, key := range []string{stream, deadKey(stream)} {
		if ok, err := s.rdb.PExpire(t.Context(), key, time.Minute).Result(); err != nil || !ok {
			t.Fatalf("%s: %t, %v", key, ok, err)
		}
	}
	if ms := s.takeAll(lane); len(ms) != 1 {
		t.Fatalf("took %d entries, want one", len(ms))
	}
	for _, key := range []string{stream, deadKey(stream)} {
		if life, err := s.rdb.PTTL(t.Context(), key).Result(); err != nil || life < 7*24*time.Hour {
			t.Errorf("%s lives for %v more, %v; want seven days at least", key, life, err)
		}
	}
}
