package gormplugin

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// pluginName is the name under which gorm knows the plugin.
const pluginName = "holdfast"

// Plugin is a GORM plugin: hand it to db.Use, once, at start-up. It is safe for concurrent use, and one Plugin may serve
// several databases that have the same tables.
type Plugin struct {
	config
	faults  []error
	catalog *catalog
	judge   judge
	report  *report
	sites   callSites
	seed    maphash.Seed         // of the questions that soldOut remembers
	age     func() time.Duration // of the plugin, by a clock that only goes forward
	pool    sync.Pool            // of *operation

	lastTagged [verbDelete + 1]atomic.Pointer[[]string] // clauses to build, of each verb
}

var _ gorm.Plugin = (*Plugin)(nil)

// New returns a plugin. Faults in the options come out of db.Use, all at once.
func New(opts ...Option) *Plugin {
	born := time.Now()
	p := &Plugin{seed: maphash.MakeSeed(), age: func() time.Duration { return time.Since(born) }}
	for _, opt := range opts {
		if opt == nil {
			p.faults = append(p.faults, errors.New("option is nil"))
			continue
		}
		if err := opt(&p.config); err != nil {
			p.faults = append(p.faults, err)
		}
	}
	var err error
	if p.catalog, err = newCatalog(p.marks); err != nil {
		p.faults = append(p.faults, err)
	}
	p.judge.catalog, p.judge.uniques, p.judge.checks = p.catalog, p.uniques, p.checks
	p.report = newReport(p.meter)
	return p
}

// Name implements gorm.Plugin.
func (p *Plugin) Name() string { return pluginName }

// Initialize implements gorm.Plugin; db.Use calls it. It returns [ErrInvalid] with every fault in the options and in the
// tags of [WithModels], and for a database that the plugin does not know: it knows PostgreSQL, MySQL, MariaDB and SQLite.
// It may run more than once: gorm's dbresolver calls it for each of its databases.
func (p *Plugin) Initialize(db *gorm.DB) error {
	faults := append([]error(nil), p.faults...)
	switch db.Name() {
	case dialectPostgres, dialectMySQL, dialectSQLite:
	default:
		faults = append(faults, fmt.Errorf("dialector %q: want postgres, mysql or sqlite", db.Name()))
	}
	for _, m := range p.models {
		stmt := &gorm.Statement{DB: db}
		if err := stmt.Parse(m); err != nil {
			faults = append(faults, fmt.Errorf("WithModels(%T): %w", m, err))
			continue
		}
		if e := p.catalog.of(stmt); e.err != nil {
			faults = append(faults, errors.New(e.err.hint))
		}
	}
	if len(faults) > 0 {
		return &Error{sentinel: ErrInvalid, reason: "options", hint: errors.Join(faults...).Error(), cause: errors.Join(faults...)}
	}
	// The plugin judges the driver's errors itself, and joins gorm's sentinels to them: gorm's own translation drops the
	// name of the index.
	if db.TranslateError {
		p.judge.translate.Store(true)
		db.TranslateError = false
	}
	p.wrapBuilders(db)
	return p.register(db)
}

// wrapBuilders puts the guard in front of the builders of the clauses that write. Copies of a Config share the map, so a
// mark in it says that this was done.
func (p *Plugin) wrapBuilders(db *gorm.DB) {
	builders := db.ClauseBuilders
	if _, done := builders[operationTag]; done {
		return
	}
	builders[operationTag] = func(clause.Clause, clause.Builder) {}
	for name, guard := range map[string]func(*operation, clause.Clause, *gorm.Statement) (clause.Clause, bool){
		"SET":         (*operation).buildSet,
		"VALUES":      (*operation).buildValues,
		"ON CONFLICT": (*operation).buildConflict,
		"DELETE":      (*operation).buildDelete,
	} {
		builders[name] = p.guarded(builders[name], guard)
	}
}

// guarded returns a builder that lets the guard change the clause, and then builds it as before. Nothing is written for a
// statement that the guard has refused.
func (p *Plugin) guarded(build clause.ClauseBuilder, guard func(*operation, clause.Clause, *gorm.Statement) (clause.Clause, bool)) clause.ClauseBuilder {
	if build == nil {
		build = func(c clause.Clause, b clause.Builder) { c.Build(b) }
	}
	return func(c clause.Clause, b clause.Builder) {
		if stmt, ok := b.(*gorm.Statement); ok {
			o := operationOf(stmt)
			if p.redirected(stmt, o); stmt.Error != nil || o != nil && o.refusal != nil {
				return
			}
			if o != nil && !o.passive {
				if c, ok = guard(o, c, stmt); !ok {
					return
				}
			}
		}
		build(c, b)
	}
}

// redirected refuses a statement whose clauses send it to another table than its model's, if that one is guarded: its
// columns were never looked at.
func (p *Plugin) redirected(stmt *gorm.Statement, o *operation) {
	for _, name := range [...]string{"UPDATE", "INSERT", "FROM"} {
		c, ok := stmt.Clauses[name]
		if !ok {
			continue
		}
		var tables []clause.Table
		switch e := c.Expression.(type) {
		case clause.Update:
			tables = []clause.Table{e.Table}
		case clause.Insert:
			tables = []clause.Table{e.Table}
		case clause.From:
			if _, update := stmt.Clauses["UPDATE"]; !update { // there it names more tables to read from
				tables = e.Tables
			}
		}
		for _, to := range tables {
			t := p.catalog.table(to.Name)
			if t == nil || to.Name == "" || to.Name == clause.CurrentTable || o != nil && o.table == t {
				continue
			}
			refusal := &Error{sentinel: ErrUnguardedWrite, reason: "table", table: t.name, hint: "the statement goes to another table than its model's"}
			if o != nil {
				o.refuse(refusal)
			} else if !p.shadow {
				stmt.Error = refusal
			}
			return
		}
	}
}

// register adds the callbacks. Before the associations: the mark for guarded children has to be there when they are
// saved. Verify stands inside the transaction, with both neighbours named, or gorm would put it behind COMMIT.
func (p *Plugin) register(db *gorm.DB) error {
	cb := db.Callback()
	if cb.Update().Get("holdfast:before") != nil {
		return nil
	}
	const commit = "gorm:commit_or_rollback_transaction"
	return errors.Join(
		cb.Create().Before("gorm:save_before_associations").Register("holdfast:before", p.beforeCreate),
		cb.Create().After("gorm:create").Before("gorm:save_after_associations").Register("holdfast:verify", p.verifyCreate),
		cb.Create().Before(commit).Register("holdfast:commit", p.judge.beforeCommit),
		cb.Create().After("gorm:create").Before("otel:after:create").Register("holdfast:after", p.after),

		cb.Update().Before("gorm:save_before_associations").Register("holdfast:before", p.beforeUpdate),
		cb.Update().After("gorm:update").Before("gorm:save_after_associations").Register("holdfast:verify", p.verifyChange),
		cb.Update().Before(commit).Register("holdfast:commit", p.judge.beforeCommit),
		cb.Update().After("gorm:update").Before("otel:after:update").Register("holdfast:after", p.after),

		cb.Delete().Before("gorm:delete").Register("holdfast:before", p.beforeDelete),
		cb.Delete().After("gorm:delete").Before("gorm:after_delete").Register("holdfast:verify", p.verifyChange),
		cb.Delete().Before(commit).Register("holdfast:commit", p.judge.beforeCommit),
		cb.Delete().After("gorm:delete").Before("otel:after:delete").Register("holdfast:after", p.after),

		cb.Query().Before("gorm:query").Register("holdfast:before", p.beforeRead),
		cb.Query().After("gorm:query").Before("otel:after:select").Register("holdfast:after", p.afterRead),
		cb.Row().Before("gorm:row").Register("holdfast:before", p.beforeRead),
		cb.Row().After("gorm:row").Before("otel:after:row").Register("holdfast:after", p.afterRead),
		cb.Raw().Before("gorm:raw").Register("holdfast:before", p.beforeRead),
		cb.Raw().After("gorm:raw").Before("otel:after:raw").Register("holdfast:after", p.afterRead),
	)
}

// pluginOf returns the plugin that a *gorm.DB was given.
func pluginOf(db *gorm.DB) (*Plugin, error) {
	p, ok := db.Plugins[pluginName].(*Plugin)
	if !ok {
		return nil, fail(ErrInvalid, "no_plugin", "the *gorm.DB has no plugin: db.Use(gormplugin.New())")
	}
	return p, nil
}
