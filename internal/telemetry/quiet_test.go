package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

func TestOneWarningASecondAndARule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Quiet
		buy := &reqctx.Rule{Name: "buy"}
		check := func(rule *reqctx.Rule, wantSuppressed int, wantOK bool) {
			t.Helper()
			if n, ok := q.Allow(rule); n != wantSuppressed || ok != wantOK {
				t.Errorf("Allow = %d, %v; want %d, %v", n, ok, wantSuppressed, wantOK)
			}
		}
		check(buy, 0, true)
		check(buy, 0, false)
		check(buy, 0, false)
		check(nil, 0, true) // another rule has its own silence
		<-time.After(quietFor)
		check(buy, 2, true)
		<-time.After(quietFor)
		check(buy, 0, true)
	})
}
