package gormplugin

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// ScopeName is the name of this package's meter.
const ScopeName = "github.com/holdfast-go/holdfast/gormplugin"

// applied is the outcome of a guarded statement that did what it was to do. All other outcomes are error types.
const applied = "applied"

// report is where guarded statements are counted. The attributes of each kind of statement are made once.
type report struct {
	checks metric.Int64Counter
	mu     sync.RWMutex
	sets   map[reportKey][]metric.AddOption
}

type reportKey struct {
	dialect, table string
	verb           verb
	outcome        string
	noFence        bool
}

func newReport(given metric.MeterProvider) *report {
	return &report{
		checks: telemetry.NewMeter(ScopeName, given).Counter(telemetry.MetricDBChecks, "{check}", "Guarded statements by what the guard decided"),
		sets:   map[reportKey][]metric.AddOption{},
	}
}

func (r *report) count(ctx context.Context, k reportKey) {
	if !r.checks.Enabled(ctx) {
		return
	}
	r.mu.RLock()
	set, ok := r.sets[k]
	r.mu.RUnlock()
	if !ok {
		set = r.prepare(k)
	}
	r.checks.Add(ctx, 1, set...)
}

func (r *report) prepare(k reportKey) []metric.AddOption {
	system := k.dialect
	if system == dialectPostgres {
		system = "postgresql"
	}
	attrs := append(make([]attribute.KeyValue, 0, 5),
		telemetry.DBSystemName.String(system),
		telemetry.DBCollectionName.String(k.table),
		telemetry.DBOperationName.String(k.verb.String()),
		telemetry.DBOutcome.String(k.outcome),
	)
	if k.noFence {
		attrs = append(attrs, telemetry.DBFence.String("none"))
	}
	set := []metric.AddOption{metric.WithAttributes(attrs...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets[k] = set
	return set
}

// report tells metrics, the current span and the log what became of a guarded statement.
func (o *operation) report(db *gorm.DB) {
	outcome := outcomeOf(db)
	if o.shadowed != nil && outcome == applied {
		outcome = string(fault.TypeOf(o.shadowed.sentinel))
	}
	ctx := db.Statement.Context
	if outcome != "" {
		o.p.report.count(ctx, reportKey{o.dialect, o.table.name, o.verb, outcome, o.noFence})
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() && outcome != "" {
		if db.Error != nil && !fault.Type(outcome).Failure() && o.hasSpanOfItsOwn(db) {
			span.SetStatus(codes.Ok, "") // which the SDK keeps against the Error that gorm's plugin sets later
		}
		if o.hasFence {
			span.SetAttributes(telemetry.DBOutcome.String(outcome), telemetry.DBFence.Int64(o.fence))
		} else {
			span.SetAttributes(telemetry.DBOutcome.String(outcome))
		}
	}
	o.log(db, outcome)
}

// outcomeOf returns the error type of a statement's error, "applied" without one, and "" for an error that is no decision
// of the guard or of the database.
func outcomeOf(db *gorm.DB) string {
	if db.Error == nil {
		if _, once := db.Statement.Clauses[onceKey]; once && db.RowsAffected == 0 {
			return string(fault.Duplicate)
		}
		return applied
	}
	var e *Error
	if !errors.As(db.Error, &e) {
		return ""
	}
	if errors.Is(e.sentinel, ErrStaleFence) {
		return string(fault.StaleFence) // whatever type the verdict of a lease has
	}
	return e.ErrorType()
}

// hasSpanOfItsOwn reports whether gorm's OpenTelemetry plugin made a span for the statement; else the current span is
// somebody else's, and its status is not ours to set.
func (o *operation) hasSpanOfItsOwn(db *gorm.DB) bool {
	switch o.verb {
	case verbInsert:
		return db.Callback().Create().Get("otel:after:create") != nil
	case verbUpdate:
		return db.Callback().Update().Get("otel:after:update") != nil
	default:
		return db.Callback().Delete().Get("otel:after:delete") != nil
	}
}

func (o *operation) log(db *gorm.DB, outcome string) {
	ctx := db.Statement.Context
	if o.noFence && db.Error == nil {
		o.p.complain(ctx, "no_fence", "gormplugin: a write to a fenced table without a lease on its lock", slog.String("table", o.table.name))
	}
	if o.shadowed != nil {
		o.p.complain(ctx, "shadow", "gormplugin: shadow mode let pass what would have been refused",
			slog.String("table", o.table.name), slog.String("column", o.shadowed.column),
			slog.String("error_type", string(fault.TypeOf(o.shadowed.sentinel))), slog.String("reason", o.shadowed.reason))
	}
	var e *Error
	if db.Error == nil || !errors.As(db.Error, &e) {
		return
	}
	level := slog.LevelDebug
	if errors.Is(e.sentinel, ErrUnguardedWrite) {
		level = slog.LevelError
	}
	log := o.p.logger()
	if !log.Enabled(ctx, level) {
		return
	}
	log.LogAttrs(ctx, level, "gormplugin: refused",
		slog.String("table", e.table), slog.String("column", e.column), slog.String("error_type", outcome), slog.String("reason", e.reason), slog.String("hint", e.hint))
}

// complain logs a warning with the place in the service's code that it is about, once for each place.
func (p *Plugin) complain(ctx context.Context, kind, message string, attrs ...slog.Attr) {
	if site, first := p.sites.first(kind); first {
		p.logger().LogAttrs(ctx, slog.LevelWarn, message, append(attrs, slog.String("at", site))...)
	}
}

func (p *Plugin) logger() *slog.Logger {
	if p.config.logger != nil {
		return p.config.logger
	}
	return slog.Default()
}
