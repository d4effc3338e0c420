package gormplugin

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/metric"
)

// Option configures [New]. A fault in one comes out of db.Use, together with all others.
type Option func(*config) error

// RawSQL says what becomes of raw SQL that writes a guarded table, see [WithRawSQL].
type RawSQL uint8

// What becomes of raw SQL that writes a guarded table.
const (
	Warn   RawSQL = iota // let it pass, log it once per call site
	Ignore               // let it pass
	Refuse               // fail with ErrUnguardedWrite, nothing is sent
)

type config struct {
	models  []any
	marks   []tableMark
	uniques []uniqueMapping
	checks  []checkMapping
	raw     RawSQL
	shadow  bool
	meter   metric.MeterProvider
	logger  *slog.Logger
}

// tableMark is a guarded column declared by WithColumn.
type tableMark struct {
	table, column string
	mark          mark
}

// uniqueMapping is what WithUnique said: index is "uk" or "orders.uk", columns are "table.column".
type uniqueMapping struct {
	table, index string
	err          error
	columns      []string
}

// checkMapping is what WithCheck said.
type checkMapping struct {
	table, constraint string
	err               error
}

// WithModels reads the guard tags of models in db.Use, so that faults in them surface at start-up, and makes their tables
// known to VerifySchema, to the policy for raw SQL and to statements that name a table without a model. Default: tags are
// read when a model is first used. May be given more than once.
func WithModels(models ...any) Option {
	return func(c *config) error {
		for i, m := range models {
			if m == nil {
				return fmt.Errorf("WithModels: model %d is nil", i+1)
			}
		}
		c.models = append(c.models, models...)
		return nil
	}
}

// WithColumn marks a column of a table whose model cannot be edited, or that has no model. kind is the text of the guard
// tag: "stock,max=capacity". May be given once per column.
func WithColumn(table, column, kind string) Option {
	return func(c *config) error {
		if table == "" || column == "" {
			return fmt.Errorf("WithColumn(%q, %q): table and column must be named", table, column)
		}
		m, err := parseMark(kind)
		if err != nil {
			return fmt.Errorf("WithColumn(%q, %q): %w", table, column, err)
		}
		c.marks = append(c.marks, tableMark{table, column, m})
		return nil
	}
}

// WithUnique maps a unique index to an error of the service, which errors.Is then finds beside [ErrDuplicate]. index is
// the index's name, or "table.name" where two tables have one of that name; columns, as "table.column", are for SQLite
// where no model declares the index, since SQLite reports columns. Default: [ErrDuplicate] alone.
func WithUnique(index string, err error, columns ...string) Option {
	return func(c *config) error {
		table, name := splitName(index)
		switch {
		case name == "":
			return errors.New("WithUnique: the index has no name")
		case err == nil:
			return fmt.Errorf("WithUnique(%q): the error is nil", index)
		}
		for _, col := range columns {
			if t, n := splitName(col); t == "" || n == "" {
				return fmt.Errorf("WithUnique(%q): column %q is not of the form table.column", index, col)
			}
		}
		c.uniques = append(c.uniques, uniqueMapping{table, name, err, columns})
		return nil
	}
}

// WithCheck maps a check constraint to an error of the service. constraint is its name, or "table.name". Default:
// [ErrInsufficient] for a check on a guarded column, the driver's error for others.
func WithCheck(constraint string, err error) Option {
	return func(c *config) error {
		table, name := splitName(constraint)
		switch {
		case name == "":
			return errors.New("WithCheck: the constraint has no name")
		case err == nil:
			return fmt.Errorf("WithCheck(%q): the error is nil", constraint)
		}
		c.checks = append(c.checks, checkMapping{table, name, err})
		return nil
	}
}

// WithRawSQL says what becomes of raw SQL (Exec, and any form of Raw) that writes a guarded table. Default: [Warn].
func WithRawSQL(policy RawSQL) Option {
	return func(c *config) error {
		if policy > Refuse {
			return fmt.Errorf("WithRawSQL(%d): want Ignore, Warn or Refuse", policy)
		}
		c.raw = policy
		return nil
	}
}

// WithShadow lets every statement go out as it was written and only counts and logs, once per call site, what would have
// been refused; after an update of a marked column one SELECT by primary key looks whether a bound or a fence was broken.
// [Sub], [Add] and the clauses of this package still bind: who writes them asks for the guard. It is the way into an old
// code base, not a way to run. Default: off.
func WithShadow() Option {
	return func(c *config) error { c.shadow = true; return nil }
}

// WithMeterProvider sets where holdfast.db.checks is counted. nil is ignored. Default: the global provider.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) error {
		if mp != nil {
			c.meter = mp
		}
		return nil
	}
}

// WithLogger sets where warnings and refusals are logged. nil is ignored. Default: slog.Default().
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l != nil {
			c.logger = l
		}
		return nil
	}
}

// splitName splits "table.name" at its last dot; without a dot there is no table.
func splitName(s string) (table, name string) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}
