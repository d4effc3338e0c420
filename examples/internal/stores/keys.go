package stores

import (
	"context"
	"fmt"
)

// Immortal returns the keys of this run that would stay in Redis for ever. There must be none.
func (s *Stores) Immortal(ctx context.Context) (keys []string, err error) {
	all := s.Redis.Scan(ctx, 0, s.Prefix+"*", 1000).Iterator()
	for all.Next(ctx) {
		ttl, err := s.Redis.PTTL(ctx, all.Val()).Result()
		if err != nil {
			return nil, fmt.Errorf("TTL of a key: %w", err)
		}
		if ttl == -1 { // no TTL; -2 would be a key that has expired meanwhile
			keys = append(keys, all.Val())
		}
	}
	return keys, all.Err()
}
