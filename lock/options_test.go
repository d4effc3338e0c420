package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// New reports every fault at once, each with the option, its value and what to write instead.
func TestOptionsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []Option
		want []string // in the text
	}{
		"TTL too short":           {[]Option{TTL(time.Millisecond)}, []string{"TTL(1ms)", "10ms"}},
		"TTL not in milliseconds": {[]Option{TTL(time.Second + time.Microsecond)}, []string{"TTL(1.000001s)", "whole milliseconds"}},
		"TTL above the ceiling":   {[]Option{TTL(6 * time.Minute)}, []string{"TTL(6m0s)", "AllowLongTTL()"}},
		"long TTL above its own":  {[]Option{TTL(25 * time.Hour), AllowLongTTL()}, []string{"TTL(25h0m0s)"}},
		"negative wait":           {[]Option{Wait(-1)}, []string{"Wait(-1ns)", "0 means"}},
		"negative hold":           {[]Option{MaxHold(-1)}, []string{"MaxHold(-1ns)", "0 means"}},
		"brace in the prefix":     {[]Option{Prefix("{shop}:")}, []string{"Prefix", "brace"}},
		"no back-off":             {[]Option{Backoff(nil)}, []string{"Backoff(nil)"}},
		"several, all of them":    {[]Option{TTL(0), Wait(-1), MaxHold(-1)}, []string{"TTL(0s)", "Wait(-1ns)", "MaxHold(-1ns)"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewWith(newMemory().client(), tt.opts...)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("err = %v, want ErrInvalid", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the text %q does not tell %q", err, want)
				}
			}
		})
	}
}

// C08f: a TTL that is too long blocks after a crash; the ceiling of 5 minutes is crossed by a named option only.
func TestLongTTLNeedsItsOption(t *testing.T) {
	if _, err := NewWith(newMemory().client(), TTL(5*time.Minute)); err != nil {
		t.Errorf("5 min: %v", err)
	}
	for _, opts := range [][]Option{{TTL(time.Hour), AllowLongTTL()}, {AllowLongTTL(), TTL(24 * time.Hour)}} {
		if _, err := NewWith(newMemory().client(), opts...); err != nil {
			t.Errorf("with AllowLongTTL: %v", err)
		}
	}
}

func TestOptionsThatMeanNothingAreIgnored(t *testing.T) {
	l, err := NewWith(newMemory().client(), nil, WithLogger(nil), WithTracerProvider(nil), WithMeterProvider(nil))
	if err != nil || l.logger == nil {
		t.Fatalf("%v, logger %v", err, l.logger)
	}
	if l.ttl != 30*time.Second || l.wait != 8250*time.Millisecond || l.maxHold != 5*time.Minute {
		t.Errorf("defaults: TTL %v, wait %v, hold %v", l.ttl, l.wait, l.maxHold)
	}
}

func TestOptionsOfOneCallAreCheckedToo(t *testing.T) {
	m := newMemory()
	l := closing(t, with(t, m.client()))
	_, err := l.Acquire(context.Background(), keys("a"), TTL(time.Hour), nil)
	if !errors.Is(err, ErrInvalid) || m.steps() != 0 {
		t.Errorf("err = %v after %d commands, want ErrInvalid and none", err, m.steps())
	}
	lease := must(t, l, keys("a"), TTL(time.Hour), AllowLongTTL())
	if left := m.left("lock:a"); left < 59*time.Minute {
		t.Errorf("the TTL of the call is %v, want 1h", left)
	}
	free(t, lease)
	lease = must(t, l, keys("a"))
	if left := m.left("lock:a"); left > DefaultTTL {
		t.Errorf("the TTL of one call stayed for the next: %v", left)
	}
	free(t, lease)
}

// A Ring moves keys to other servers when one is away, and two servers would then hold one lock.
func TestClientsThatAreRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{"nil": nil, "ring": ring} {
		if _, err := New(rdb, TTL(1)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "TTL") {
			t.Errorf("%s: err = %v, want ErrInvalid for client and option", name, err)
		}
	}
	if _, err := NewWith(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("nil backend: err = %v, want ErrInvalid", err)
	}
}
