package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// logbook keeps log records.
type logbook struct {
	mu      sync.Mutex
	records []map[string]any
}

func (l *logbook) logger() *slog.Logger { return slog.New(l) }

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logbook) WithGroup(string) slog.Handler            { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	fields := map[string]any{"level": r.Level, "msg": r.Message}
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value.Any(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, fields)
	return nil
}

// count returns how many records have the field with that value.
func (l *logbook) count(field string, value any) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r[field] == value {
			n++
		}
	}
	return n
}

// scope is everything that an engine tells, and the engine.
type scope struct {
	logs   logbook
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tracer *sdktrace.TracerProvider
	d      *dedup.Dedup
	rule   *reqctx.Rule
}

func newScope(t *testing.T, s dedup.Store, opts ...dedup.Option) *scope {
	t.Helper()
	sc := &scope{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	sc.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sc.spans))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sc.reader))
	sc.rule = &reqctx.Rule{Name: "buy", Method: "POST", Route: "/items/{itemID}/orders"}
	sc.d = engineOn(t, s, append(opts, dedup.WithTracerProvider(sc.tracer), dedup.WithMeterProvider(mp), dedup.WithLogger(sc.logs.logger()))...)
	return sc
}

func (sc *scope) ctx(t *testing.T) context.Context { return reqctx.WithRule(t.Context(), sc.rule) }

// last returns the last span that has ended.
func (sc *scope) last() sdktrace.ReadOnlySpan {
	ended := sc.spans.Ended()
	return ended[len(ended)-1]
}

func get(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.Emit()
		}
	}
	return ""
}

// histogram returns, for each attribute set of a metric, how often it was recorded.
func (sc *scope) histogram(t *testing.T, name string) map[string]uint64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := sc.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == name {
				for _, p := range h.DataPoints {
					counts[p.Attributes.Encoded(attribute.DefaultEncoder())] += p.Count
				}
			}
		}
	}
	return counts
}

// Each way through Begin and out of a claim: one outcome on span, metric and log; red only where the service has failed;
// a link to the first execution where there was one.
func TestEachOutcomeIsToldOnce(t *testing.T) {
	type step func(t *testing.T, sc *scope, s *outage)
	begin := func(t *testing.T, sc *scope) *dedup.Claim {
		t.Helper()
		claim, _, err := sc.d.Begin(sc.ctx(t), buy("k"))
		if claim == nil {
			t.Fatal(err)
		}
		return claim
	}
	ask := func(t *testing.T, sc *scope) { _, _, _ = sc.d.Begin(sc.ctx(t), buy("k")) }
	other := buy("k")
	other.Fingerprint = []byte("another body")
	noTakeover := buy("k")
	noTakeover.NoTakeover = true
	tests := map[string]struct {
		run              step
		outcome, stored  string // of the last begin and the last end, "" where there is none
		red              bool
		level            slog.Level
		linked           bool
		beginsOnTheStage int
	}{
		"executed and stored": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201, Data: []byte("12345")}, 0)
		}, outcome: "executed", stored: "stored", level: slog.LevelDebug},
		"tombstone": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201, Omitted: true}, 0)
		}, outcome: "executed", stored: "tombstone", level: slog.LevelDebug},
		"failed": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Fail(sc.ctx(t), nil, errors.New("500"))
		}, outcome: "executed", stored: "failed", level: slog.LevelDebug},
		"removed": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Forget(sc.ctx(t), nil, nil)
		}, outcome: "executed", stored: "removed", level: slog.LevelDebug},
		"removed, but not the first attempt": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Fail(sc.ctx(t), nil, nil)
			_ = begin(t, sc).Forget(sc.ctx(t), nil, nil)
		}, outcome: "executed", stored: "failed", level: slog.LevelDebug, linked: true, beginsOnTheStage: 2},
		"replayed": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
			ask(t, sc)
		}, outcome: "replayed", stored: "stored", level: slog.LevelDebug, linked: true, beginsOnTheStage: 2},
		"waited": {run: func(t *testing.T, sc *scope, s *outage) {
			claim := begin(t, sc)
			time.AfterFunc(time.Second, func() { _ = claim.Complete(sc.ctx(t), dedup.Result{Code: 201}, 0) })
			ask(t, sc)
		}, outcome: "waited", stored: "stored", level: slog.LevelDebug, linked: true, beginsOnTheStage: 2},
		"waited for an answer that is not stored": {run: func(t *testing.T, sc *scope, s *outage) {
			claim := begin(t, sc)
			time.AfterFunc(time.Second, func() { _ = claim.Fail(sc.ctx(t), nil, errors.New("500")) })
			ask(t, sc)
		}, outcome: "waited", stored: "failed", level: slog.LevelDebug, beginsOnTheStage: 2},
		"in flight": {run: func(t *testing.T, sc *scope, s *outage) {
			claim := begin(t, sc)
			time.AfterFunc(3*time.Second, func() { _ = claim.Complete(sc.ctx(t), dedup.Result{Code: 201}, 0) })
			ask(t, sc)
			<-time.After(2 * time.Second)
		}, outcome: "in_flight", stored: "stored", level: slog.LevelDebug, beginsOnTheStage: 2},
		"mismatch": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
			_, _, _ = sc.d.Begin(sc.ctx(t), other)
		}, outcome: "mismatch", stored: "stored", level: slog.LevelDebug, beginsOnTheStage: 2},
		"interrupted": {run: func(t *testing.T, sc *scope, s *outage) {
			lapsed(t, s)
			_, _, _ = sc.d.Begin(sc.ctx(t), noTakeover)
		}, outcome: "interrupted", level: slog.LevelDebug},
		"takeover": {run: func(t *testing.T, sc *scope, s *outage) {
			lapsed(t, s)
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
		}, outcome: "takeover", stored: "stored", level: slog.LevelDebug, linked: true},
		"lost": {run: func(t *testing.T, sc *scope, s *outage) {
			claim := begin(t, sc)
			memory := s.Store.(*deduptest.Memory)
			steal(t, memory, claim.RequestID(), dedup.Owner{ID: claim.RequestID(), Token: "other"})
			_ = claim.Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
		}, outcome: "executed", stored: "lost", red: true, level: slog.LevelError},
		"persist failed": {run: func(t *testing.T, sc *scope, s *outage) {
			claim := begin(t, sc)
			s.down.Store(true)
			_ = claim.Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
			s.down.Store(false)
		}, outcome: "executed", stored: "persist_failed", red: true, level: slog.LevelError},
		"unavailable": {run: func(t *testing.T, sc *scope, s *outage) {
			s.down.Store(true)
			ask(t, sc)
		}, outcome: "unavailable", red: true, level: slog.LevelWarn},
		"unknown outcome": {run: func(t *testing.T, sc *scope, s *outage) {
			s.err = fmt.Errorf("no reply from 10.0.0.1: %w", dedup.ErrUnknownOutcome)
			s.down.Store(true)
			ask(t, sc)
			s.down.Store(false)
		}, outcome: "unknown_outcome", red: true, level: slog.LevelWarn},
		"a store with errors of its own": {run: func(t *testing.T, sc *scope, s *outage) {
			s.err = errors.New("dial tcp 10.0.0.1: refused")
			s.down.Store(true)
			ask(t, sc)
			s.down.Store(false)
		}, outcome: "unknown_outcome", red: true, level: slog.LevelWarn},
		"the caller left": {run: func(t *testing.T, sc *scope, s *outage) {
			ctx, cancel := context.WithCancel(sc.ctx(t))
			cancel()
			_, _, _ = sc.d.Begin(ctx, buy("k"))
		}, outcome: "cancelled", level: slog.LevelDebug},
		"bypassed": {run: func(t *testing.T, sc *scope, s *outage) {
			s.down.Store(true)
			req := buy("k")
			req.Bypass = func() (func(), bool) { return nil, true } // nothing to release
			claim, _, err := sc.d.Begin(sc.ctx(t), req)
			if err != nil {
				t.Fatal(err)
			}
			_ = claim.Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
		}, outcome: "bypassed", level: slog.LevelWarn},
		"withdrawn": {run: func(t *testing.T, sc *scope, s *outage) {
			_ = begin(t, sc).Complete(sc.ctx(t), dedup.Result{Code: 201}, 0)
			req := buy("k")
			req.StillTrue = func(context.Context, *dedup.Record) error { return fault.New(fault.Withdrawn, "given back") }
			_, _, _ = sc.d.Begin(sc.ctx(t), req)
		}, outcome: "withdrawn", stored: "stored", level: slog.LevelDebug, linked: true, beginsOnTheStage: 2},
		"misuse": {run: func(t *testing.T, sc *scope, s *outage) {
			_, _, _ = sc.d.Begin(sc.ctx(t), dedup.Request{})
		}, outcome: "misuse", red: true, level: slog.LevelDebug},
		"refused before": {run: func(t *testing.T, sc *scope, s *outage) {
			sc.d.Refused(sc.ctx(t), fault.New(fault.KeyMalformed, "no"))
		}, outcome: "invalid", level: slog.LevelDebug},
		"refused before, by the service's fault": {run: func(t *testing.T, sc *scope, s *outage) {
			sc.d.Refused(sc.ctx(t), fault.New(fault.Misuse, "no"))
		}, outcome: "misuse", red: true, level: slog.LevelDebug},
		"no key": {run: func(t *testing.T, sc *scope, s *outage) {
			sc.d.Refused(sc.ctx(t), nil)
		}, outcome: "no_key", level: slog.LevelDebug},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newOutage(deduptest.NewMemory())
				sc := newScope(t, s)
				tt.run(t, sc, s)
				synctest.Wait()
				var begins, ends []sdktrace.ReadOnlySpan
				for _, span := range sc.spans.Ended() {
					switch span.Name() {
					case telemetry.SpanDedupBegin:
						begins = append(begins, span)
					case telemetry.SpanDedupComplete:
						ends = append(ends, span)
					}
				}
				if len(begins) != max(tt.beginsOnTheStage, 1) {
					t.Fatalf("%d begin spans, want %d", len(begins), max(tt.beginsOnTheStage, 1))
				}
				last := begins[len(begins)-1]
				if get(last, telemetry.DedupOutcome) != tt.outcome || get(last, telemetry.HTTPRoute) != sc.rule.Route || get(last, telemetry.RuleName) != "buy" {
					t.Errorf("the begin span has %v, want outcome %s", last.Attributes(), tt.outcome)
				}
				if linked := len(last.Links()) == 1; linked != tt.linked {
					t.Errorf("links %v, want one: %v", last.Links(), tt.linked)
				}
				judged := last
				if tt.stored == "" {
					if len(ends) != 0 {
						t.Errorf("a complete span, and nothing was written")
					}
				} else {
					judged = ends[len(ends)-1]
					if get(judged, telemetry.DedupStored) != tt.stored {
						t.Errorf("the complete span has %v, want stored %s", judged.Attributes(), tt.stored)
					}
				}
				if red := judged.Status().Code == codes.Error; red != tt.red || red != (get(judged, telemetry.ErrorType) != "") {
					t.Errorf("status %v, error.type %q; want red %v", judged.Status(), get(judged, telemetry.ErrorType), tt.red)
				}
				var counted uint64
				for set, n := range sc.histogram(t, telemetry.MetricDedupBeginDuration) {
					if counted += n; len(begins) == 1 && !strings.Contains(set, "holdfast.dedup.outcome="+tt.outcome) {
						t.Errorf("the metric has %s, want outcome %s", set, tt.outcome)
					}
				}
				if counted != uint64(len(begins)) {
					t.Errorf("%d begins counted, want %d", counted, len(begins))
				}
				counted = 0
				for _, n := range sc.histogram(t, telemetry.MetricDedupResponseSize) {
					counted += n
				}
				if counted != uint64(len(ends)) {
					t.Errorf("%d ends counted, want %d", counted, len(ends))
				}
				highest := slog.LevelDebug
				for _, r := range sc.logs.records {
					highest = max(highest, r["level"].(slog.Level))
				}
				if highest != tt.level {
					t.Errorf("highest log level %v, want %v: %v", highest, tt.level, sc.logs.records)
				}
			})
		})
	}
}

// lapsed leaves a record of a dead owner.
func lapsed(t *testing.T, s dedup.Store) {
	t.Helper()
	dead := dedup.BeginRequest{
		Owner: dedup.Owner{ID: buy("k").ID(), Token: "dead", Fingerprint: buy("k").Fingerprint}, Lease: time.Second, TTL: time.Hour,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	if _, err := s.Begin(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * time.Second)
}

func TestReplayLinksToTheFirstExecution(t *testing.T) {
	sc := newScope(t, deduptest.NewMemory())
	ctx, parent := sc.tracer.Tracer("server").Start(sc.ctx(t), "request")
	claim, _, err := sc.d.Begin(ctx, buy("k"))
	if err != nil {
		t.Fatal(err)
	}
	first := sc.last()
	_ = claim.Complete(ctx, dedup.Result{Code: 201}, 0)
	if got := sc.last(); got.Parent().SpanID() != parent.SpanContext().SpanID() {
		t.Error("the complete span is not a child of the request")
	}
	parent.End()
	replayed(t, sc.d, buy("k"))
	links := sc.last().Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != first.SpanContext().SpanID() || links[0].SpanContext.TraceID() != first.SpanContext().TraceID() {
		t.Errorf("links %v, want the first begin span %v", links, first.SpanContext())
	}
}

// Nothing from the request, and no token or address, shows anywhere.
func TestSecretsShowNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key, scopeName, data, print, address = "KEY-marked", "SCOPE-marked", "DATA-marked", "PRINT-marked", "10.9.8.7:6379"
		s := newOutage(deduptest.NewMemory())
		s.err = fmt.Errorf("dial %s: %w", address, dedup.ErrUnavailable)
		var tokens []string
		spy := &spyStore{Store: s, tokens: &tokens}
		sc := newScope(t, spy)
		req := dedup.Request{Scope: scopeName, Name: "job", Key: key, Fingerprint: []byte(print)}
		var texts []string
		ask := func(change func(*dedup.Request)) *dedup.Claim {
			r := req
			if change != nil {
				change(&r)
			}
			claim, _, err := sc.d.Begin(sc.ctx(t), r)
			if err != nil {
				texts = append(texts, err.Error())
			}
			return claim
		}
		claim := ask(nil)
		ask(func(r *dedup.Request) { r.Fingerprint = []byte("x") })
		ask(nil) // in flight
		s.down.Store(true)
		_ = claim.Complete(sc.ctx(t), dedup.Result{Data: []byte(data)}, 0)
		ask(func(r *dedup.Request) { r.Key += "2" })
		s.down.Store(false)
		<-time.After(time.Minute)
		ask(nil)
		second := ask(func(r *dedup.Request) { r.Key += "3" })
		_ = second.Fail(sc.ctx(t), nil, errors.New(data))
		if len(tokens) < 3 {
			t.Fatalf("%d tokens seen", len(tokens))
		}

		var told strings.Builder
		fmt.Fprintln(&told, texts, sc.logs.records)
		for _, span := range sc.spans.Ended() {
			fmt.Fprintln(&told, span.Name(), span.Attributes(), span.Status(), span.Events(), span.Links())
		}
		for _, name := range []string{telemetry.MetricDedupBeginDuration, telemetry.MetricDedupResponseSize} {
			fmt.Fprintln(&told, sc.histogram(t, name))
		}
		for _, secret := range append(tokens, key, scopeName, data, print, address, "10.9.8.7") {
			if strings.Contains(told.String(), secret) {
				t.Errorf("%q shows in what is told:\n%s", secret, told.String())
			}
		}
		if hash := req.Hash(); sc.logs.count("request_hash", hash) == 0 || !strings.Contains(told.String(), req.ID()) {
			t.Error("neither the hash of the key nor the record id shows")
		}
	})
}

// spyStore remembers the tokens.
type spyStore struct {
	dedup.Store
	mu     sync.Mutex
	tokens *[]string
}

func (s *spyStore) Begin(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
	s.mu.Lock()
	*s.tokens = append(*s.tokens, b.Token)
	s.mu.Unlock()
	return s.Store.Begin(ctx, b)
}

func TestManyKeysAreOneSeries(t *testing.T) {
	sc := newScope(t, deduptest.NewMemory())
	for n := range 1000 {
		claim, _, err := sc.d.Begin(sc.ctx(t), dedup.Request{Scope: fmt.Sprint("user", n), Key: fmt.Sprint("key", n)})
		if err != nil {
			t.Fatal(err)
		}
		_ = claim.Complete(sc.ctx(t), dedup.Result{}, 0)
	}
	for _, name := range []string{telemetry.MetricDedupBeginDuration, telemetry.MetricDedupResponseSize} {
		if series := sc.histogram(t, name); len(series) != 1 {
			t.Errorf("%s has %d series: %v", name, len(series), series)
		}
	}
}

func TestWarningsAreThinnedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(deduptest.NewMemory())
		sc := newScope(t, s)
		s.down.Store(true)
		for range 100 {
			_, _, _ = sc.d.Begin(sc.ctx(t), buy("k"))
		}
		<-time.After(time.Second)
		_, _, _ = sc.d.Begin(sc.ctx(t), buy("k"))
		if n := sc.logs.count("level", slog.LevelWarn); n != 2 {
			t.Errorf("%d warnings of 101, want 2", n)
		}
		if sc.logs.count("suppressed", int64(99)) != 1 {
			t.Error("the second does not say that 99 were suppressed")
		}
	})
}

// A log handler that panics is reported elsewhere, and keeps neither a claim nor a process.
func TestPanickingLoggerKeepsNoClaim(t *testing.T) {
	d := engineOn(t, deduptest.NewMemory(), dedup.WithLogger(slog.New(panicking{})))
	if err := begun(t, d, buy("k")).Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
		t.Fatal(err)
	}
	if rec := replayed(t, d, buy("k")); rec.Code != 201 {
		t.Errorf("replayed %+v", rec)
	}
}

type panicking struct{}

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("log") }
func (p panicking) WithAttrs([]slog.Attr) slog.Handler      { return p }
func (p panicking) WithGroup(string) slog.Handler           { return p }
