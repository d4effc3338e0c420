package lock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestKeysAreSortedUniqueAndPrefixed(t *testing.T) {
	for name, tt := range map[string]struct {
		opts         []Option
		keys         []string
		sorted, full []string
	}{
		"one":                   {nil, keys("stock:1"), keys("stock:1"), keys("lock:stock:1")},
		"sorted":                {nil, keys("b", "a"), keys("a", "b"), keys("lock:a", "lock:b")},
		"each once":             {nil, keys("a", "b", "a"), keys("a", "b"), keys("lock:a", "lock:b")},
		"prefix":                {[]Option{Prefix("shop:")}, keys("a"), keys("a"), keys("shop:lock:a")},
		"empty prefix":          {[]Option{Prefix("")}, keys("a"), keys("a"), keys("a")},
		"unicode":               {nil, keys("größe:ß"), keys("größe:ß"), keys("lock:größe:ß")},
		"spaces, globs, quotes": {nil, keys("a *?[\"\n"), keys("a *?[\"\n"), keys("lock:a *?[\"\n")},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := newConfig(tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			given := slices.Clone(tt.keys)
			sorted, full, err := c.lockKeys(tt.keys)
			if err != nil || !slices.Equal(sorted, tt.sorted) || !slices.Equal(full, tt.full) {
				t.Errorf("got %q, %q, %v; want %q, %q", sorted, full, err, tt.sorted, tt.full)
			}
			if !slices.Equal(tt.keys, given) {
				t.Errorf("the caller's slice was changed to %q", tt.keys)
			}
		})
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	c := defaults()
	for name, k := range map[string][]string{
		"none":        nil,
		"empty":       keys("a", ""),
		"brace":       keys("a{b"),
		"other brace": keys("a}b"),
		"too long":    keys(strings.Repeat("a", 1025)),
		"too many":    many,
	} {
		if _, _, err := c.lockKeys(k); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: err = %v, want ErrInvalid", name, err)
		}
	}
	if _, _, err := c.lockKeys(append(many[:255:255], "0", "1", "2", "extra")); err != nil {
		t.Errorf("256 different keys, some of them twice: %v", err)
	}
}
