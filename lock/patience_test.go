package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatienceHasItsOwnEndAndTheRequestsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p patience
		type key struct{}
		for range 20 {
			request, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
			cancel()
			ctx := p.detach(request, time.Now())
			child, stop := context.WithCancel(ctx)
			if ctx.Err() != nil || child.Err() != nil {
				t.Fatalf("ended with the request: %v, %v", ctx.Err(), child.Err())
			}
			if ctx.Value(key{}) != "value" {
				t.Error("the request's value is not there")
			}
			start := time.Now()
			<-child.Done()
			if d := time.Since(start); d < releaseTimeout || d > releaseTimeout+patienceRound {
				t.Errorf("ended after %v, want %v or a little more", d, releaseTimeout)
			}
			stop()
			<-time.After(70 * time.Millisecond)
		}
		p.close()
	})
}

func TestPatienceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p patience
		first := p.detach(t.Context(), time.Now()).Done()
		<-time.After(patienceRound / 2)
		if p.detach(t.Context(), time.Now()).Done() != first {
			t.Error("two releases at nearly the same time have timers of their own")
		}
		<-time.After(patienceRound)
		if p.detach(t.Context(), time.Now()).Done() == first {
			t.Error("a later release has the deadline of an earlier one")
		}
		p.close()
		new(patience).close()
	})
}
