//go:build unix

package testserver

import "testing"

func TestParseStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]procStat{
		"12 (redis-server) S 1 12 12 0":    {12, 1, 'S'},
		"12 (odd ) name (x)) T 345 12 12":  {12, 345, 'T'},
		"12 (postgres: a b [local]) Z 9 1": {12, 9, 'Z'},
	} {
		if got, ok := parseStat(text); !ok || got != want {
			t.Errorf("parseStat(%q): got %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "12", "12 (a", "x (a) S 1", "12 (a) S", "12 (a) S x"} {
		if got, ok := parseStat(text); ok {
			t.Errorf("parseStat(%q): got %v, want a refusal", text, got)
		}
	}
}
