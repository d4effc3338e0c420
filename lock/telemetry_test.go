package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// seen is everything that a Locker tells.
type seen struct {
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	log    *syncBuffer
	tracer *sdktrace.TracerProvider
}

// recorded runs f with a Locker over memory whose telemetry is recorded.
func recorded(t *testing.T, opts []Option, f func(t *testing.T, l *Locker, m *memory, s *seen)) {
	t.Helper()
	s := &seen{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader(), log: &syncBuffer{}}
	s.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	opts = append([]Option{
		WithTracerProvider(s.tracer),
		WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))),
		WithLogger(slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}, opts...)
	bubble(t, opts, func(t *testing.T, l *Locker, m *memory) { f(t, l, m, s) })
}

// named returns the ended spans of that name.
func (s *seen) named(name string) []sdktrace.ReadOnlySpan {
	var all []sdktrace.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.Name() == name {
			all = append(all, span)
		}
	}
	return all
}

func (s *seen) one(t *testing.T, name string) (sdktrace.ReadOnlySpan, map[attribute.Key]attribute.Value) {
	t.Helper()
	all := s.named(name)
	if len(all) != 1 {
		t.Fatalf("%d spans %s, want 1", len(all), name)
	}
	attrs := map[attribute.Key]attribute.Value{}
	for _, kv := range all[0].Attributes() {
		attrs[kv.Key] = kv.Value
	}
	return all[0], attrs
}

// points returns the values of a metric by their attributes: the sum of a counter, the count of a histogram.
func (s *seen) points(t *testing.T, name string) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	points := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					points[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					points[p.Attributes.Encoded(attribute.DefaultEncoder())] = int64(p.Count)
				}
			}
		}
	}
	return points
}

func ruled(ctx context.Context) context.Context {
	ctx = reqctx.WithRule(ctx, &reqctx.Rule{Name: "buy", Method: "POST", Route: "/items/{id}", KeyTemplates: []string{"item:{id}", "user:{userID}"}})
	return reqctx.WithRequest(ctx, reqctx.Request{ID: "x", Hash: "0123456789abcdef"})
}

func TestSpansOfALease(t *testing.T) {
	recorded(t, nil, func(t *testing.T, l *Locker, m *memory, s *seen) {
		ctx, request := s.tracer.Tracer("server").Start(ruled(t.Context()), "request")
		lease, err := l.Acquire(ctx, keys("b", "a"))
		check(t, err)
		_, work := s.tracer.Tracer("sql").Start(lease.Context(ctx), "UPDATE")
		work.End()
		inner, err := l.Acquire(lease.Context(ctx), keys("a"))
		check(t, err)
		free(t, inner)
		pass(11 * time.Second)
		free(t, lease)
		request.End()

		acquire, attrs := s.one(t, telemetry.SpanLockAcquire) // a nested one makes none
		want := map[attribute.Key]string{
			"holdfast.lock.mode": "wait", "holdfast.lock.outcome": "acquired", "holdfast.lock.attempts": "1", "holdfast.lock.wait": "0",
			"holdfast.lock.keys": "2", "holdfast.key.hash": fmt.Sprintf(`[%q,%q]`, telemetry.Hash("a"), telemetry.Hash("b")),
			"holdfast.key.template": `["item:{id}","user:{userID}"]`,
			"http.route":            "/items/{id}", "http.request.method": "POST", "holdfast.rule.name": "buy", "holdfast.request.hash": "0123456789abcdef",
		}
		compare(t, attrs, want)
		hold, attrs := s.one(t, telemetry.SpanLockHold)
		compare(t, attrs, map[attribute.Key]string{
			"holdfast.lock.fence": fmt.Sprint(lease.Fence()), "holdfast.lock.renewals": "1", "holdfast.lock.end": "released",
			"http.route": "/items/{id}", "http.request.method": "POST", "holdfast.rule.name": "buy", "holdfast.request.hash": "0123456789abcdef",
		})
		sql, _ := s.one(t, "UPDATE")
		if sql.Parent().SpanID() != hold.SpanContext().SpanID() || hold.Parent().SpanID() != request.SpanContext().SpanID() || acquire.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Error("want request over acquire and hold, hold over the work")
		}
		for _, span := range s.spans.Ended() {
			if span.Status().Code != codes.Unset {
				t.Errorf("%s has status %v", span.Name(), span.Status())
			}
		}
	})
}

func compare(t *testing.T, got map[attribute.Key]attribute.Value, want map[attribute.Key]string) {
	t.Helper()
	for k, v := range want {
		if got[k].Emit() != v {
			t.Errorf("%s = %q, want %q", k, got[k].Emit(), v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s = %q, want none", k, got[k].Emit())
		}
	}
}

func TestHoldSpanCanBeSwitchedOff(t *testing.T) {
	recorded(t, []Option{WithoutHoldSpan()}, func(t *testing.T, l *Locker, m *memory, s *seen) {
		ctx, request := s.tracer.Tracer("server").Start(t.Context(), "request")
		lease, err := l.Acquire(ctx, keys("a"))
		check(t, err)
		_, work := s.tracer.Tracer("sql").Start(lease.Context(ctx), "UPDATE")
		work.End()
		free(t, lease)
		request.End()
		sql, _ := s.one(t, "UPDATE")
		if len(s.named(telemetry.SpanLockHold)) != 0 || sql.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Error("want no hold span, and the work under the request")
		}
	})
}

// Every outcome has its value, status and level: busy and cancelled are answers, not errors; what is away is a warning,
// at most one a second; a value that is not ours is an error.
func TestOutcomesOfAnAcquire(t *testing.T) {
	away := func(m *memory) { m.failing(func(string, string) (bool, error) { return false, ErrUnavailable }) }
	unknown := func(m *memory) { m.failing(func(string, string) (bool, error) { return false, ErrUnknownOutcome }) }
	foreign := func(m *memory) { m.failing(func(string, string) (bool, error) { return false, ErrForeignKey }) }
	taken := func(m *memory) { m.set("lock:a", "somebody else", time.Hour) }
	for outcome, tt := range map[string]struct {
		before func(*memory)
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		red    bool
		level  string
	}{
		"acquired": {func(*memory) {}, nil, false, "DEBUG"},
		"busy":     {taken, nil, false, "DEBUG"},
		"cancelled": {taken, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, false, "DEBUG"},
		"unavailable":     {away, nil, true, "WARN"},
		"unknown_outcome": {unknown, nil, true, "WARN"},
		"foreign_key":     {foreign, nil, true, "ERROR"},
	} {
		t.Run(outcome, func(t *testing.T) {
			recorded(t, []Option{Wait(2 * time.Second)}, func(t *testing.T, l *Locker, m *memory, s *seen) {
				tt.before(m)
				ctx := ruled(t.Context())
				if tt.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tt.ctx(ctx)
					defer cancel()
				}
				lease, err := l.Acquire(ctx, keys("a"))
				span, attrs := s.one(t, telemetry.SpanLockAcquire)
				if got := attrs[telemetry.LockOutcome].AsString(); got != outcome {
					t.Errorf("outcome %q (%v)", got, err)
				}
				if red := span.Status().Code == codes.Error; red != tt.red || red && (span.Status().Description != outcome || attrs["error.type"].AsString() != outcome) {
					t.Errorf("status %v, error.type %q", span.Status(), attrs["error.type"].AsString())
				}
				if len(span.Events()) > 0 {
					t.Errorf("events %v", span.Events())
				}
				set := "holdfast.lock.outcome=" + outcome + ",holdfast.rule.name=buy,http.request.method=POST,http.route=/items/{id}"
				if tt.red {
					set = "error.type=" + outcome + "," + set
				}
				if got := s.points(t, "holdfast.lock.acquire.duration"); len(got) != 1 || got[set] != 1 {
					t.Errorf("durations %v, want one of %s", got, set)
				}
				if got := s.points(t, "holdfast.lock.acquire.attempts"); len(got) != 1 {
					t.Errorf("attempts %v, want one series", got)
				}
				if line := lineWith(s.log.String(), "outcome="+outcome); !strings.Contains(line, "level="+tt.level) || !strings.Contains(line, "request_hash=0123456789abcdef") || !strings.Contains(line, "key_hash="+telemetry.Hash("a")) {
					t.Errorf("logged %q, want level %s, request and key", line, tt.level)
				}
				m.failing(func(string, string) (bool, error) { return true, nil })
				if lease != nil {
					free(t, lease)
				}
				pass(time.Minute)
				for _, name := range []string{"holdfast.lock.waiting", "holdfast.lock.held"} {
					for set, n := range s.points(t, name) {
						if n != 0 {
							t.Errorf("%s of %s is %d at the end", name, set, n)
						}
					}
				}
			})
		})
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// A call with arguments that are not taken is the service's fault, and shows.
func TestMisuseIsTold(t *testing.T) {
	recorded(t, nil, func(t *testing.T, l *Locker, m *memory, s *seen) {
		_, err := l.Acquire(ruled(t.Context()), keys(""), TTL(1))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "TTL") || !strings.Contains(err.Error(), "key") {
			t.Errorf("err = %v, want both faults", err)
		}
		span, attrs := s.one(t, telemetry.SpanLockAcquire)
		if attrs[telemetry.LockOutcome].AsString() != "misuse" || span.Status().Code != codes.Error {
			t.Errorf("outcome %q, status %v", attrs[telemetry.LockOutcome].AsString(), span.Status())
		}
		if !strings.Contains(lineWith(s.log.String(), "outcome=misuse"), "level=ERROR") {
			t.Errorf("logged %q", s.log.String())
		}
	})
}

// Every way in which a hold ends has its value; a loss is told once, at level error, with its reason.
func TestEndsOfAHold(t *testing.T) {
	for end, tt := range map[string]struct {
		meanwhile func(m *memory)
		wait      time.Duration
		level     string
	}{
		"released":               {func(*memory) {}, 0, "DEBUG"},
		"lost":                   {func(m *memory) { m.set("lock:a", "", 0) }, time.Minute, "ERROR"},
		"expired_before_release": {func(m *memory) { m.set("lock:a", "", 0) }, 0, "WARN"},
		"unknown_outcome":        {func(m *memory) { m.failing(func(string, string) (bool, error) { return false, ErrUnknownOutcome }) }, 0, "WARN"},
	} {
		t.Run(end, func(t *testing.T) {
			recorded(t, nil, func(t *testing.T, l *Locker, m *memory, s *seen) {
				lease, err := l.Acquire(ruled(t.Context()), keys("a"))
				check(t, err)
				tt.meanwhile(m)
				pass(tt.wait)
				_ = lease.Release(t.Context())
				span, attrs := s.one(t, telemetry.SpanLockHold)
				if got := attrs[telemetry.LockEnd].AsString(); got != end {
					t.Errorf("end %q", got)
				}
				if red := span.Status().Code == codes.Error; red != (end != "released") {
					t.Errorf("status %v", span.Status())
				}
				if end == "lost" && (len(span.Events()) != 1 || span.Events()[0].Name != "holdfast.lock.lost" || span.Events()[0].Attributes[0] != telemetry.LostReason.String("gone")) {
					t.Errorf("events %v, want one of the loss", span.Events())
				}
				set := "holdfast.lock.end=" + end + ",holdfast.rule.name=buy,http.route=/items/{id}"
				if got := s.points(t, "holdfast.lock.hold.duration"); len(got) != 1 || got[set] != 1 {
					t.Errorf("durations %v, want one of %s", got, set)
				}
				if line := lineWith(s.log.String(), "outcome="+end); !strings.Contains(line, "level="+tt.level) || strings.Count(s.log.String(), "outcome="+end) != 1 {
					t.Errorf("logged %q, want one line of level %s", s.log.String(), tt.level)
				}
				for set, n := range s.points(t, "holdfast.lock.held") {
					if n != 0 {
						t.Errorf("held of %s is %d at the end", set, n)
					}
				}
				m.failing(func(string, string) (bool, error) { return true, nil })
				pass(time.Minute)
			})
		})
	}
}

func TestRenewalsAreCountedAndWarnedOfOnceASecond(t *testing.T) {
	recorded(t, []Option{TTL(30 * time.Second)}, func(t *testing.T, l *Locker, m *memory, s *seen) {
		lease, err := l.Acquire(ruled(t.Context()), keys("a"))
		check(t, err)
		pass(10*time.Second + time.Millisecond)
		heal := m.failing(func(string, string) (bool, error) { return false, ErrUnavailable })
		pass(10*time.Second + 500*time.Millisecond)
		heal()
		failed := m.count("renew") - 1
		pass(time.Second)
		free(t, lease)
		got := s.points(t, "holdfast.lock.renewals")
		if got["holdfast.rule.name=buy"] != 2 || got["error.type=unavailable,holdfast.rule.name=buy"] != int64(failed) || failed < 3 {
			t.Errorf("renewals %v, want 2 confirmed and %d failed", got, failed)
		}
		span, _ := s.one(t, telemetry.SpanLockHold)
		if len(span.Events()) != failed {
			t.Errorf("%d events, want one for each of %d failures", len(span.Events()), failed)
		}
		if n := strings.Count(s.log.String(), "a renewal failed"); n != 1 {
			t.Errorf("%d warnings within a second, want 1", n)
		}
	})
}

// Hand-overs, wake-ups, and refusals without a command are counted; so are keys wanted against their order.
func TestWhatElseIsCounted(t *testing.T) {
	recorded(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory, s *seen) {
		b := must(t, l, keys("b"))
		in, wg := waiters(t, l, 1, 0, keys("b"))
		_, err := l.Acquire(t.Context(), keys("b"), Wait(0))
		busyBecause(t, err, NoWait)
		a, err := l.Acquire(b.Context(t.Context()), keys("a"))
		check(t, err)
		free(t, a)
		free(t, b)
		wg.Wait()
		<-in
		m.set("lock:c", "somebody else", time.Hour)
		in, wg = waiters(t, l, 1, 0, keys("c"))
		m.set("lock:c", "", 0)
		wg.Wait()
		<-in
		for name, want := range map[string]map[string]int64{
			"holdfast.lock.handovers":    {"": 1},
			"holdfast.lock.wakeups":      {"": 2}, // the watch that begins, the release
			"holdfast.lock.refusals":     {"holdfast.lock.reason=no_wait": 1},
			"holdfast.lock.out_of_order": {"": 1},
		} {
			if got := s.points(t, name); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

func TestAttemptEventsAreOptional(t *testing.T) {
	for _, on := range []bool{false, true} {
		opts := []Option{Wait(time.Second)}
		if on {
			opts = append(opts, WithAttemptEvents(), WithRawKeysInTraces())
		}
		recorded(t, opts, func(t *testing.T, l *Locker, m *memory, s *seen) {
			m.set("lock:a", "somebody else", time.Hour)
			_, err := l.Acquire(t.Context(), keys("a"))
			busyBecause(t, err, Budget)
			span, attrs := s.one(t, telemetry.SpanLockAcquire)
			if got := len(span.Events()) > 3; got != on {
				t.Errorf("%d events with the option %v", len(span.Events()), on)
			}
			if got := attrs[telemetry.RawKey].Emit() == `["a"]`; got != on {
				t.Errorf("raw keys %q with the option %v", attrs[telemetry.RawKey].Emit(), on)
			}
		})
	}
}

func TestBypass(t *testing.T) {
	recorded(t, nil, func(t *testing.T, l *Locker, m *memory, s *seen) {
		for range 3 {
			l.Bypassed(ruled(t.Context()), keys("a"))
		}
		for _, span := range s.named(telemetry.SpanLockAcquire) {
			if !slices.Contains(span.Attributes(), telemetry.LockOutcome.String("bypassed")) || span.Status().Code != codes.Unset {
				t.Errorf("span %v, %v", span.Attributes(), span.Status())
			}
		}
		set := "holdfast.lock.outcome=bypassed,holdfast.rule.name=buy,http.request.method=POST,http.route=/items/{id}"
		total := int64(0)
		for _, n := range s.points(t, "holdfast.lock.acquire.duration") {
			total += n
		}
		if total != 3 {
			t.Errorf("counted %d times, want 3 of %s", total, set)
		}
	})
}

// 10 000 keys give as many series as one; no key, token or address is told anywhere.
func TestNothingSecretIsTold(t *testing.T) {
	recorded(t, []Option{Prefix("marked-prefix:"), Wait(0)}, func(t *testing.T, l *Locker, m *memory, s *seen) {
		var tokens []string
		for i := range 10_000 {
			lease := must(t, l, keys(fmt.Sprint("marked-key:", i)))
			tokens = append(tokens, lease.h.held.Token)
			if i%100 == 0 {
				_, _ = l.Acquire(t.Context(), keys(fmt.Sprint("marked-key:", i)))
				m.set(fmt.Sprint("marked-prefix:lock:marked-key:", i), "", 0)
			}
			_ = lease.Release(t.Context())
		}
		for _, name := range []string{"holdfast.lock.acquire.duration", "holdfast.lock.hold.duration", "holdfast.lock.held", "holdfast.lock.renewals"} {
			if n := len(s.points(t, name)); n > 2 {
				t.Errorf("%s has %d series", name, n)
			}
		}
		var all strings.Builder
		all.WriteString(s.log.String())
		for _, span := range s.spans.Ended() {
			fmt.Fprint(&all, span.Name(), span.Attributes(), span.Events(), span.Status())
		}
		text := all.String()
		for _, secret := range []string{"marked", tokens[0], tokens[100], l.tokens.instance} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is told", secret)
			}
		}
	})
}

// D75: one warning for a rule when the P99 of its holds passes a third of the TTL.
func TestSlowHoldsAreWarnedOfOnce(t *testing.T) {
	recorded(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory, s *seen) {
		ctx := ruled(t.Context())
		for i := range 3 * holdSample {
			lease, err := l.Acquire(ctx, keys("a"))
			check(t, err)
			if i%50 == 0 {
				pass(1100 * time.Millisecond)
			}
			free(t, lease)
		}
		if n := strings.Count(s.log.String(), "one in a hundred"); n != 1 {
			t.Errorf("%d warnings for 2 %% of slow holds, want 1", n)
		}
	})
	var quick holdTimes
	for i := range 10 * holdSample {
		d := time.Duration(0)
		if i%100 == 0 {
			d = 2 * time.Second
		}
		if quick.slow(d, 3*time.Second) {
			t.Fatal("a warning though the P99 is below")
		}
	}
}

// Without a provider, with one that does nothing, with one that fails: the same answers.
func TestProvidersDoNotMatter(t *testing.T) {
	for name, opts := range map[string][]Option{
		"none":  nil,
		"no-op": {WithMeterProvider(noop.NewMeterProvider())},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, opts, func(t *testing.T, l *Locker, m *memory) {
				lease := must(t, l, keys("a"))
				if _, ok, err := l.TryAcquire(t.Context(), keys("a")); ok || err != nil {
					t.Error(ok, err)
				}
				free(t, lease)
			})
		})
	}
}

// A logger that panics keeps no lock and ends no goroutine.
func TestLoggerThatPanics(t *testing.T) {
	bubble(t, []Option{WithLogger(slog.New(panicHandler{})), TTL(3 * time.Second), Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		m.set("lock:a", "", 0)
		pass(time.Second) // lost: told by a goroutine of ours
		lostBecause(t, lease.Release(t.Context()), Gone)
		wg.Wait()
		<-in
	})
}

type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panicHandler) Handle(context.Context, slog.Record) error { panic("handler") }

// A release before the transaction under it has ended is an error in the log: the next holder reads the old row.
func TestReleaseBeforeTheCommitIsLogged(t *testing.T) {
	recorded(t, nil, func(t *testing.T, l *Locker, m *memory, s *seen) {
		lease := must(t, l, keys("a"))
		end := reqctx.BeginTx(lease.Context(t.Context()))
		free(t, lease)
		end()
		lease = must(t, l, keys("a"))
		reqctx.BeginTx(lease.Context(t.Context()))()
		free(t, lease)
		if n := strings.Count(s.log.String(), "before the transaction"); n != 1 || !strings.Contains(lineWith(s.log.String(), "before the transaction"), "level=ERROR") {
			t.Errorf("logged %d times, want once, at level error: %s", n, s.log.String())
		}
	})
}

// A slow logger does not delay the deadline of another lease: what is told of a loss is told by a goroutine of its own.
func TestSlowLoggerDelaysNoDeadline(t *testing.T) {
	bubble(t, []Option{WithLogger(slog.New(blockingHandler{})), TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		a, b := must(t, l, keys("a")), must(t, l, keys("b"))
		inside := b.Context(t.Context())
		m.set("lock:a", "", 0)
		m.set("lock:b", "", 0)
		pass(2 * time.Second)
		if !errors.Is(context.Cause(inside), ErrLost) {
			t.Error("the second loss was not told")
		}
		_, _ = a.Release(t.Context()), b.Release(t.Context())
	})
}

type blockingHandler struct{}

func (blockingHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}
func (blockingHandler) Handle(context.Context, slog.Record) error {
	<-time.After(time.Hour)
	return nil
}
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h blockingHandler) WithGroup(string) slog.Handler      { return h }

// What telemetry costs where nobody listens: the ceiling of a pair without a server.
func TestAllocationsOfAPair(t *testing.T) {
	if raceEnabled {
		return // the detector allocates
	}
	l := closing(t, with(t, instant{}))
	ctx, k := context.Background(), keys("a")
	pair := func() {
		lease, err := l.Acquire(ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	pair()
	if n := testing.AllocsPerRun(1000, pair); n > 11 {
		t.Errorf("%v allocations for a pair, the ceiling is 11", n)
	}
}
