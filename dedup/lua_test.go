package dedup_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Managed Redis and clusters refuse scripts that build a key: the first argument of each call is KEYS[1], here always by
// the name key. And whoever reads a script finds at its top what it takes, returns and costs.
func TestScriptsTouchOnlyTheirKeyAndSayWhatTheyDo(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d scripts, %v; want 7", len(files), err)
	}
	calls := regexp.MustCompile(`redis\.p?call\(([^,)]*)(?:, *([^,)]*))?`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		src := string(text)
		if !regexp.MustCompile(`(?m)^local key\b.* = KEYS\[1\]`).MatchString(src) {
			t.Errorf("%s: key is not KEYS[1]", file)
		}
		for _, call := range calls.FindAllStringSubmatch(src, -1) {
			if call[1] != "'TIME'" && call[2] != "key" {
				t.Errorf("%s: %s touches something else than its key", file, call[0])
			}
		}
		head, _, _ := strings.Cut(src, "\nlocal ")
		for _, word := range []string{"KEYS[1]", "Returns", "O(1)", "-- " + strings.TrimSuffix(filepath.Base(file), ".lua") + ":"} {
			if !strings.Contains(head, word) {
				t.Errorf("%s: the head does not say %q", file, word)
			}
		}
		if !strings.Contains(src, "PEXPIRE") && strings.Contains(src, "'v', '1'") {
			t.Errorf("%s: writes a record without a TTL", file)
		}
	}
}

// A script checks its arguments before its first write.
func TestScriptsRefuseBadArguments(t *testing.T) {
	srv := testserver.Redis(t)
	rdb, key := srv.Client(t), srv.Prefix(t)+"k"
	bad := map[string][][]any{
		"begin": {
			{},
			{"", "fp", "1000", "1000", "0", ""},
			{"t", "fp", "0", "1000", "0", ""},
			{"t", "fp", "1000", "0", "0", ""},
			{"t", "fp", "-1", "1000", "0", ""},
			{"t", "fp", "1.5", "1000", "0", ""},
			{"t", "fp", "1e3", "1000", "0", ""},
			{"t", "fp", "1000", "1000000000000000", "0", ""},
			{"t", "fp", "", "1000", "0", ""},
			{"t", "fp", "1000", "1000", "0"},
			{"t", "fp", "1000", "1000", "0", "", "more"},
		},
		"renew": {{}, {"", "1000"}, {"t", "0"}, {"t", "-1"}, {"t", "x"}, {"t", "1000000000000000"}},
		"complete": {
			{},
			{"", "1", "", "1000", "200", "0", "d"},
			{"t", "0", "", "1000", "200", "0", "d"},
			{"t", "1", "", "0", "200", "0", "d"},
			{"t", "1", "", "1000", "-1", "0", "d"},
			{"t", "1", "", "1000", "200", "2", "d"},
			{"t", "1", "", "1000", "200", "0"},
			{"t", "x", "", "1000", "200", "0", "d"},
		},
		"fail":   {{}, {""}, {"t", "more"}},
		"forget": {{}, {""}, {"t", "more"}},
	}
	for name, rows := range bad {
		src, err := os.ReadFile("lua/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		for i, args := range rows {
			t.Run(name+" "+strconv.Itoa(i), func(t *testing.T) {
				err := rdb.Eval(t.Context(), string(src), []string{key}, args...).Err()
				if err == nil || !strings.Contains(err.Error(), "bad arguments") {
					t.Errorf("%q: %v, want bad arguments", args, err)
				}
				if n := rdb.Exists(t.Context(), key).Val(); n != 0 {
					t.Errorf("%q: something was written", args)
				}
			})
		}
	}
}
