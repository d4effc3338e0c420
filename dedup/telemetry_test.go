package dedup_test

import (
	"context"
	"log/slog"
	"sync"
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
