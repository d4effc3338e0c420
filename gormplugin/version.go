package gormplugin

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// rowVersions checks each row of a slice against the version that its own struct was loaded with.
type rowVersions struct {
	o        *operation
	primary  []*schema.Field
	rows     []rowVersion
	complete bool // every struct has one
	any      bool // one has
}

type rowVersion struct {
	elem    reflect.Value
	keys    []any
	version int64 // 0 where the struct has none
}

// Build implements clause.Expression.
func (r *rowVersions) Build(b clause.Builder) {
	write(b, "(")
	for i, row := range r.rows {
		if i > 0 {
			write(b, " OR ")
		}
		write(b, "(")
		for k, f := range r.primary {
			if k > 0 {
				write(b, " AND ")
			}
			b.WriteQuoted(clause.Column{Name: f.DBName})
			write(b, " = ")
			b.AddVar(b, row.keys[k])
		}
		if row.version > 0 {
			write(b, " AND ")
			r.o.writeColumn(b, r.o.table.version)
			write(b, " = ")
			r.o.writeNumber(b, whole(row.version))
		}
		write(b, ")")
	}
	write(b, ")")
}

// readVersions remembers the versions that the model was loaded with, before gorm writes anything into it.
func (o *operation) readVersions(v reflect.Value) {
	f := o.fieldOf(o.table.version)
	if f == nil {
		return
	}
	ctx := o.stmt.Context
	if v.Kind() == reflect.Struct {
		o.loaded = integerIn(f, ctx, v)
		return
	}
	r := &rowVersions{o: o, primary: o.stmt.Schema.PrimaryFields, complete: true}
	if len(r.primary) == 0 {
		return
	}
	elements(v, func(_ int, elem reflect.Value) {
		row := rowVersion{elem: elem, version: integerIn(f, ctx, elem)}
		for _, p := range r.primary {
			key, _ := p.ValueOf(ctx, elem)
			row.keys = append(row.keys, key)
		}
		r.complete = r.complete && row.version > 0
		r.any = r.any || row.version > 0
		r.rows = append(r.rows, row)
	})
	if len(r.rows) > 0 {
		o.rowVersions = r
	}
}

// raiseVersions lets the model follow the row. In a transaction of the caller's it keeps what it was loaded with: should
// that roll back, the same struct can be written again; should it not, the struct is out of date, and says so.
func (o *operation) raiseVersions(v reflect.Value, callers bool) error {
	f := o.fieldOf(o.table.version)
	if f == nil || !o.raised {
		return nil
	}
	step := int64(1)
	if callers {
		step = 0
	}
	if o.rowVersions != nil {
		for _, row := range o.rowVersions.rows {
			if row.version > 0 && row.elem.CanSet() {
				if err := setInteger(f, o.stmt.Context, row.elem, row.version+step); err != nil {
					return err
				}
			}
		}
		return nil
	}
	had := o.loaded
	if o.version > 0 && !callers {
		had = o.version // AtVersion knew better
	}
	if had > 0 && v.Kind() == reflect.Struct && v.CanSet() {
		return setInteger(f, o.stmt.Context, v, had+step)
	}
	return nil
}

// setInteger writes only what differs, so that a shared model is not written without need.
func setInteger(f *schema.Field, ctx context.Context, v reflect.Value, n int64) error {
	if integerIn(f, ctx, v) == n {
		return nil
	}
	return f.Set(ctx, v, n)
}

// integerIn reads a whole number from a field, 0 where there is none.
func integerIn(f *schema.Field, ctx context.Context, v reflect.Value) int64 {
	value, zero := f.ValueOf(ctx, v)
	if zero {
		return 0
	}
	n, ok := numberOf(value)
	if !ok || !n.isWhole() {
		return 0
	}
	return n.i
}

// conflictRate watches the last hundred versioned statements of a table: where more than 30 of them lose, a conditional
// update is the better tool.
type conflictRate struct {
	mu     sync.Mutex
	lost   [100]bool
	next   int
	seen   int
	losses int
	warned time.Time
}

func (r *conflictRate) add(ctx context.Context, log *slog.Logger, table string, lost bool) {
	r.mu.Lock()
	if r.lost[r.next] {
		r.losses--
	}
	if r.lost[r.next] = lost; lost {
		r.losses++
	}
	r.next = (r.next + 1) % len(r.lost)
	r.seen = min(r.seen+1, len(r.lost))
	losses := r.losses
	warn := r.seen == len(r.lost) && losses > 30 && time.Since(r.warned) > time.Minute
	if warn {
		r.warned = time.Now()
	}
	r.mu.Unlock()
	if warn {
		log.LogAttrs(ctx, slog.LevelWarn, "gormplugin: many version conflicts: Sub and Add need no version, and lose nothing",
			slog.String("table", table), slog.Int("conflicts", losses), slog.Int("of", len(r.lost)))
	}
}
