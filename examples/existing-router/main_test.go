package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`POST   /accounts/{accountID}/transfers      Dedup("{userID}") Lock("account:{accountID|int}", Also("account:{body.to|int}"))`,
		`key "k-1" 201 replayed=false transfer 1`, `key "k-1" 201 replayed=true  transfer 1`, `key "k-2" 201 replayed=false transfer 2`,
		`key ""   400`, "key_missing",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
