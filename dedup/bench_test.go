package dedup_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The baseline is what a service writes by hand: SET NX, work, SET the answer; and GET for a repeat. It compares no
// fingerprint, knows no owner and loses the request when its process ends.
func BenchmarkFirst(b *testing.B) {
	body := make([]byte, 512)
	compare(b, map[string]func(ctx context.Context, f fixture, n int64) error{
		"by hand": func(ctx context.Context, f fixture, n int64) error {
			key := f.prefix + "hand:" + strconv.FormatInt(n, 10)
			if err := f.rdb.SetArgs(ctx, key, "running", redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
				return err
			}
			return f.rdb.Set(ctx, key, body, time.Minute).Err()
		},
		"dedup": func(ctx context.Context, f fixture, n int64) error {
			_, _, err := f.d.Do(ctx, buy(strconv.FormatInt(n, 10)), func(context.Context) ([]byte, error) { return body, nil })
			return err
		},
	})
}

func BenchmarkReplay(b *testing.B) {
	body := make([]byte, 512)
	compare(b, map[string]func(ctx context.Context, f fixture, n int64) error{
		"by hand": func(ctx context.Context, f fixture, n int64) error {
			key := f.prefix + "hand:" + strconv.FormatInt(n%64, 10)
			err := f.rdb.SetArgs(ctx, key, "running", redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err()
			if errors.Is(err, redis.Nil) {
				return f.rdb.Get(ctx, key).Err()
			}
			if err != nil {
				return err
			}
			return f.rdb.Set(ctx, key, body, time.Minute).Err()
		},
		"dedup": func(ctx context.Context, f fixture, n int64) error {
			_, _, err := f.d.Do(ctx, buy(strconv.FormatInt(n%64, 10)), func(context.Context) ([]byte, error) { return body, nil })
			return err
		},
	})
}

type fixture struct {
	rdb    *redis.Client
	d      *dedup.Dedup
	prefix string
}

// compare runs the ways at several degrees of concurrency, on one server.
func compare(b *testing.B, ways map[string]func(ctx context.Context, f fixture, n int64) error) {
	srv := testserver.Redis(b)
	rdb := srv.Client(b, func(o *redis.Options) { o.PoolSize = 64 })
	for _, inFlight := range []int{1, 8, 64} {
		for _, name := range []string{"by hand", "dedup"} {
			b.Run(name+"/"+strconv.Itoa(inFlight), func(b *testing.B) {
				prefix := srv.Prefix(b)
				f := fixture{rdb, engine(b, rdb, dedup.Prefix(prefix)), prefix}
				var n atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(1, inFlight/2))
				b.ResetTimer()
				if inFlight == 1 {
					for b.Loop() {
						if err := ways[name](b.Context(), f, n.Add(1)); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := ways[name](b.Context(), f, n.Add(1)); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
