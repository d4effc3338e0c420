package gormplugin

import "gorm.io/gorm"

// Marks names the guarded columns of a model, in the database's names. A kind that the model does not have is "".
type Marks struct {
	// Stock are the columns marked guard:"stock", in the order of the model's fields.
	Stock []string
	// Request, Fence and Version are the columns of those marks. Request is "" too for a column marked last, which is no
	// unique id.
	Request, Fence, Version string
	// StrictFence is true for a fence that is marked strict: a write that does not commute needs a number.
	StrictFence bool
}

// MarksOf returns the marks of a model, from its tags and [WithColumn] alike, for whoever writes code over the models of
// others. Errors are [ErrInvalid]: db has no plugin, or the model or one of its tags cannot be read.
func MarksOf(db *gorm.DB, model any) (Marks, error) {
	p, err := pluginOf(db)
	if err != nil {
		return Marks{}, err
	}
	stmt := &gorm.Statement{DB: db.Session(&gorm.Session{NewDB: true})}
	if err := stmt.Parse(model); err != nil {
		return Marks{}, &Error{sentinel: ErrInvalid, reason: "model", cause: err}
	}
	e := p.catalog.of(stmt)
	if e == nil || e.err == nil && e.table == nil {
		return Marks{}, nil
	}
	if e.err != nil {
		return Marks{}, e.err
	}
	var m Marks
	for _, c := range e.table.stock {
		m.Stock = append(m.Stock, c.name)
	}
	for _, of := range []struct {
		column *column
		to     *string
	}{{e.table.fence, &m.Fence}, {e.table.version, &m.Version}, {e.table.request, &m.Request}} {
		if of.column != nil && !of.column.last {
			*of.to = of.column.name
		}
	}
	m.StrictFence = e.table.fence != nil && e.table.fence.strict
	return m, nil
}

// Mapped returns the error that [WithUnique] or [WithCheck] made of the index or the constraint that refused the row, nil
// where neither names it.
func (e *Error) Mapped() error { return e.mapped }
