package crash

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// An order is paid, closed and swept at the same time, and the one whose UPDATE is late comes after the other's COMMIT:
// whoever moves the row decides, and the late one changes nothing.
func TestTheLateOneChangesNothing(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	for _, c := range []struct {
		name        string
		late, first stage
	}{{"payment", pay, sweep}, {"sweep", sweep, pay}, {"close", closing, pay}, {"payment after close", pay, closing}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newCase(t, &point{stage: sweep}, true, stands{}, seed)
			w.open()
			sweep.prepare(w)
			rule := w.toSQL.On(faultproxy.Named("UPDATE").Containing("seckill_order"), faultproxy.HoldRequest())
			acted := make(chan struct{})
			go func() {
				defer close(acted)
				c.late.act(w)
			}()
			rule.Wait(t)
			c.first.act(w)
			rule.Release()
			<-acted
			w.recovered(&point{stage: sweep}, false)
			w.clean()
		})
	}
}
