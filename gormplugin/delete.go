package gormplugin

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// buildDelete guards a hard delete: nobody deletes behind a newer holder, or a row that has changed since it was read. A
// soft delete is an update, and goes through buildSet.
func (o *operation) buildDelete(c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	o.checks = makeRoom(o.checks, len(o.from)+2)
	for _, f := range o.from {
		o.addState(f)
	}
	if !o.p.shadow {
		o.ownFence(false)
	}
	if o.table.version != nil && (!o.p.shadow || o.hasVersion) {
		o.checkVersion(false)
	}
	if o.refusal == nil {
		o.joinWhere(stmt)
	}
	return c, o.refusal == nil
}
