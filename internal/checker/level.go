package checker

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// Level is how many goroutines run and how many connections are in use. Connections that lie idle in their pool are not
// counted.
type Level struct{ Goroutines, SQL, Redis int }

// Measure returns the level now; db and rdb may be nil.
func Measure(db *sql.DB, rdb redis.UniversalClient) Level {
	l := Level{Goroutines: runtime.NumGoroutine()}
	if db != nil {
		l.SQL = db.Stats().InUse
	}
	if rdb != nil {
		s := rdb.PoolStats()
		l.Redis = int(s.TotalConns) - int(s.IdleConns)
	}
	return l
}

// Back waits until now returns at most this level, and returns what is still above it when ctx is over.
func (l Level) Back(ctx context.Context, now func() Level) []Finding {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		at := now()
		if at.Goroutines <= l.Goroutines && at.SQL <= l.SQL && at.Redis <= l.Redis {
			return nil
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		var fs []Finding
		for _, part := range []struct {
			key       string
			want, got int
		}{
			{"goroutines", l.Goroutines, at.Goroutines}, {"SQL connections", l.SQL, at.SQL}, {"Redis connections", l.Redis, at.Redis},
		} {
			if part.got > part.want {
				fs = append(fs, Finding{Kind: NotBack, Key: part.key, Want: int64(part.want), Got: int64(part.got)})
			}
		}
		return sorted(fs)
	}
}
