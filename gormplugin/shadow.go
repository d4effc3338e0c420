package gormplugin

// judgeShadow remembers that an assignment would have been refused. What would have been guarded instead is looked at when
// the statement has run.
func (o *operation) judgeShadow(c *column, found bool, refusal *Error) {
	o.marked = true
	switch {
	case refusal != nil:
		o.refuse(refusal)
	case !found && !o.allowsAbsolute(o.table, c):
		reason := "absolute"
		if o.wholeRow {
			reason = "whole_row"
		}
		o.refuse(fail(ErrUnguardedWrite, reason, "").at(o.table, c.name))
	}
}
