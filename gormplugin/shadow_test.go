package gormplugin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gorm.io/gorm"
)

// In shadow mode statements go out as they were written, and what would have been refused is reported; what asks for the
// guard still gets it.
func TestShadow(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		var out bytes.Buffer
		db := d.open(t, gorm.Config{}, []any{&fenced{}}, WithShadow(), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		item := fenced{Title: "mug", Stock: 3}
		if err := db.Create(&item).Error; err != nil {
			t.Fatal(err)
		}
		said := func(what string) {
			t.Helper()
			if !strings.Contains(out.String(), what) {
				t.Errorf("the log does not say %q:\n%s", what, out.String())
			}
			out.Reset()
		}
		quiet := func() {
			t.Helper()
			if strings.Contains(out.String(), "shadow") {
				t.Errorf("the log should say nothing:\n%s", out.String())
			}
			out.Reset()
		}
		load := func() (row fenced) {
			t.Helper()
			if err := db.Take(&row, item.ID).Error; err != nil {
				t.Fatal(err)
			}
			return row
		}
		if err := db.Model(&item).Update("stock", 2).Error; err != nil || load().Stock != 2 {
			t.Errorf("an absolute write: %v", err)
		}
		said("reason=absolute")
		item.Stock, item.Fence = 9, 4
		if err := db.Save(&item).Error; err != nil || load().Stock != 9 || load().Fence != 4 {
			t.Errorf("a whole row: %v", err)
		}
		said("reason=whole_row")
		if err := db.Model(&item).Update("stock", gorm.Expr("stock - ?", 5)).Error; err != nil || load().Stock != 4 {
			t.Errorf("an expression: %v", err)
		}
		quiet()
		if err := db.Model(&item).Update("stock", gorm.Expr("stock - ?", 5)).Error; err != nil || load().Stock != -1 {
			t.Errorf("an expression that oversells goes out too: %v", err)
		}
		said("reason=below_min")
		old := db.WithContext(ContextWithFence(context.Background(), "stock:1", 3))
		if err := old.Model(&item).Update("stock", gorm.Expr("stock + ?", 5)).Error; err != nil || load().Stock != 4 {
			t.Errorf("an older holder: %v", err)
		}
		said("reason=fence")
		if err := db.Model(&item).Update("stock", Sub(5)).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("Sub binds: %v", err)
		}
		if err := db.Model(&item).Clauses(From("title", "cup")).Update("title", "jar").Error; !errors.Is(err, ErrVersionConflict) {
			t.Errorf("From binds: %v", err)
		}
		if err := db.Delete(&item).Error; err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}
