package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func TestRun(t *testing.T) {
	for name, redis := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return testserver.NewRedis(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), []string{"-redis", redis(t)}, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range []string{
				`POST   /accounts/{accountID}/transfers      Dedup("{userID}") Lock("account:{accountID|int}", Also("account:{body.to|int}"))`,
				`key "k-1" 201 replayed=false transfer 1`, `key "k-1" 201 replayed=true  transfer 1`, `key "k-2" 201 replayed=false transfer 2`,
				`key ""    400`, "key_missing",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
		})
	}
}
