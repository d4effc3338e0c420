package gormplugin

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// quiet returns gorm's logger for a statement of ours that may meet a duplicate: there it is an answer, and is not logged
// as an error.
func quiet(l logger.Interface) logger.Interface { return quietLogger{l} }

type quietLogger struct{ logger.Interface }

// LogMode implements logger.Interface.
func (q quietLogger) LogMode(level logger.LogLevel) logger.Interface {
	return quietLogger{q.Interface.LogMode(level)}
}

// Trace implements logger.Interface.
func (q quietLogger) Trace(ctx context.Context, begin time.Time, fc func() (string, int64), err error) {
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		err = nil
	}
	q.Interface.Trace(ctx, begin, fc, err)
}

// ParamsFilter implements gorm.ParamsFilter: without it a logger that hides values would show them.
func (q quietLogger) ParamsFilter(ctx context.Context, sql string, params ...any) (string, []any) {
	if f, ok := q.Interface.(gorm.ParamsFilter); ok {
		return f.ParamsFilter(ctx, sql, params...)
	}
	return sql, params
}
