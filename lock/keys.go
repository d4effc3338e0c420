package lock

import (
	"errors"
	"slices"
	"strings"
)

const (
	maxKeys   = 256
	maxKeyLen = 1024 // bytes
)

// lockKeys returns the keys sorted and without duplicates, and their names in Redis, in the same order: prefixes are
// the same for all. Sorting makes two requests for the same keys queue for them in the same order.
func (c *config) lockKeys(keys []string) (sorted, full []string, err error) {
	switch {
	case len(keys) == 0:
		return nil, nil, invalid("no key")
	case len(keys) > 1:
		keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	}
	if len(keys) > maxKeys {
		return nil, nil, invalid("%d keys: a lease has 256 at most", len(keys))
	}
	both := make([]string, 2*len(keys))
	sorted, full = both[:len(keys):len(keys)], both[len(keys):]
	copy(sorted, keys)
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, nil, invalid("a key %v", err)
		}
		full[i] = c.fullKey(key)
	}
	return sorted, full, nil
}

func (c *config) fullKey(key string) string {
	if c.noPrefix {
		return key
	}
	return c.prefix + "lock:" + key
}

// checkKey refuses what cannot be, or be part of, a key. A brace would be a hash tag in a cluster: the key's fence and
// channel, which are named {key}:..., would lie in another slot.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("is empty")
	case len(key) > maxKeyLen:
		return errors.New("is longer than 1024 bytes")
	case strings.ContainsAny(key, "{}"):
		return errors.New("has a brace in it: escape values before they become part of a key")
	}
	return nil
}
