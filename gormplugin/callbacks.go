package gormplugin

import (
	"errors"
	"log/slog"
	"reflect"

	"gorm.io/gorm"
)

// beforeUpdate prepares an update.
func (p *Plugin) beforeUpdate(db *gorm.DB) {
	if db.Error != nil {
		p.judge.failedBefore(db)
		return
	}
	o := p.begin(db, verbUpdate)
	if o == nil {
		return
	}
	stmt := db.Statement
	dest := indirect(reflect.ValueOf(stmt.Dest))
	o.wholeRow = dest.Kind() == reflect.Struct
	o.save = o.wholeRow && len(o.table.columns) > 0 && len(stmt.Selects) == 1 && stmt.Selects[0] == "*"
	o.readModel(stmt)
	o.selectAbsolute(dest)
}

// beforeDelete prepares a delete.
func (p *Plugin) beforeDelete(db *gorm.DB) {
	if db.Error != nil {
		p.judge.failedBefore(db)
		return
	}
	if o := p.begin(db, verbDelete); o != nil {
		o.readModel(db.Statement)
	}
}

// readModel remembers the model as the caller set it, and how many rows it stands for.
func (o *operation) readModel(stmt *gorm.Statement) {
	v := stmt.ReflectValue
	if v.Kind() == reflect.Struct && !v.CanAddr() {
		// gorm scans what RETURNING gives into the model, and panics where it came by value.
		addressable := reflect.New(v.Type()).Elem()
		addressable.Set(v)
		stmt.ReflectValue, v = addressable, addressable
	}
	if stmt.Schema != nil {
		o.readVersions(v)
		o.memory.keep(v, stmt.Schema, o.table.pointers)
	}
	switch {
	case o.hasExpect:
		o.expects, o.rows = true, o.expect
	case (v.Kind() == reflect.Slice || v.Kind() == reflect.Array) && v.Len() > 0:
		o.expects, o.rows = true, int64(v.Len())
	}
}

// selectAbsolute makes gorm send the zero of a column that AllowAbsolute names: from a struct it sends what is not zero,
// unless the columns are selected.
func (o *operation) selectAbsolute(dest reflect.Value) {
	stmt := o.stmt
	if !o.wholeRow || len(o.absolute) == 0 || len(stmt.Selects) > 0 || stmt.Schema == nil {
		return
	}
	from := stmt.Schema
	if dest.Type() != from.ModelType {
		other := &gorm.Statement{DB: stmt.DB}
		if err := other.Parse(stmt.Dest); err != nil {
			return
		}
		from = other.Schema
	}
	var selects []string
	for _, name := range stmt.Schema.DBNames {
		f := from.LookUpField(name)
		if f == nil {
			continue
		}
		c := o.table.byColumn(name)
		if _, zero := f.ValueOf(stmt.Context, dest); !zero || c != nil && o.allowsAbsolute(o.table, c) {
			selects = append(selects, name)
		}
	}
	for name := range stmt.Schema.Relationships.Relations {
		selects = append(selects, name)
	}
	o.selects, stmt.Selects, o.selected = stmt.Selects, selects, true
}

// verifyChange decides about an update or a delete.
func (p *Plugin) verifyChange(db *gorm.DB) {
	p.judge.statement(db)
	o := operationOf(db.Statement)
	if o == nil || o.passive {
		return
	}
	o.restoreStatement()
	if db.Error == nil && db.Statement.SQL.Len() == 0 && o.leftOut(nil) {
		return
	}
	if db.Error == nil && db.Statement.SQL.Len() == 0 && (len(o.from) > 0 || o.hasVersion || o.expect > 0) {
		o.insist(fail(ErrInvalid, "empty", "the update sets no column, so nothing was sent and its conditions were not asked"))
	}
	if db.Error == nil && !db.DryRun && o.built {
		o.verify(db)
		if p.shadow && db.Error == nil {
			o.lookShadow(db)
		}
	}
}

// restoreStatement takes the guard's parts out of a statement that may be used again.
func (o *operation) restoreStatement() {
	if o.rewrote {
		if o.hadWhere {
			o.stmt.Clauses["WHERE"] = o.where
		} else {
			delete(o.stmt.Clauses, "WHERE")
		}
	}
	if o.selected {
		o.stmt.Selects = o.selects
	}
}

// after ends a statement that writes, behind gorm's COMMIT.
func (p *Plugin) after(db *gorm.DB) {
	p.judge.finish(db)
	o := operationOf(db.Statement)
	if o == nil {
		return
	}
	stmt := db.Statement
	stmt.BuildClauses = o.clauses
	delete(stmt.Clauses, operationKey)
	if parent, ok := stmt.Settings.Load(parentKey); ok && parent == stmt {
		stmt.Settings.Delete(parentKey)
	}
	if !o.passive && !db.DryRun {
		o.settle(db)
		o.report(db)
	}
	o.free()
}

// settle brings the model in memory to what the database has.
func (o *operation) settle(db *gorm.DB) {
	if db.Error != nil {
		o.memory.restore()
	} else if o.verb != verbInsert {
		callers := inTransaction(db.Statement.ConnPool)
		o.restoreOwn()
		if err := o.raiseVersions(db.Statement.ReflectValue, callers); err != nil { // the row is written, so it is no error of the statement's
			o.p.complain(db.Statement.Context, "version", "gormplugin: the version in memory cannot follow the row's", slog.String("table", o.table.name))
		}
	}
	if db.Error == nil && o.memory.one.live.IsValid() && inTransaction(db.Statement.ConnPool) {
		before := o.memory
		o.p.judge.txs.onRollback(db.Statement.ConnPool, before.restore)
	}
	if o.table.rate != nil && o.raised && o.checksVersion() {
		o.table.rate.add(db.Statement.Context, o.p.logger(), o.table.name, errors.Is(db.Error, ErrVersionConflict))
	}
}

// checksVersion reports whether the statement checked a version.
func (o *operation) checksVersion() bool {
	for i := range o.checks {
		if o.checks[i].kind == checkVersion {
			return true
		}
	}
	return false
}

// restoreOwn undoes what gorm wrote into the model for columns that the plugin then left out of the statement.
func (o *operation) restoreOwn() {
	if !o.wholeRow || o.p.shadow {
		return
	}
	o.memory.each(func(k kept) {
		for _, c := range o.table.columns {
			f := o.fieldOf(c)
			if f == nil || c.kind == kindStock || k.live.Type() != o.stmt.Schema.ModelType {
				continue
			}
			if was, _ := f.ValueOf(o.stmt.Context, k.was); was != nil {
				if now, _ := f.ValueOf(o.stmt.Context, k.live); !reflect.DeepEqual(now, was) {
					f.ReflectValueOf(o.stmt.Context, k.live).Set(f.ReflectValueOf(o.stmt.Context, k.was))
				}
			}
		}
	})
}

func indirect(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}
