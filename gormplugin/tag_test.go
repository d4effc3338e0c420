package gormplugin

import (
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"
)

// A fault in a tag or option surfaces in db.Use, all of them at once, with the model and the field.
func TestFaultsSurfaceInUse(t *testing.T) {
	for want, model := range map[string]any{
		`unknown kind "stok"`: &struct {
			A int64 `guard:"stok"`
		}{},
		`unknown setting "mn=0" of stock`: &struct {
			A int64 `guard:"stock,mn=0"`
		}{},
		`unknown setting "strict"`: &struct {
			A int64 `guard:"stock,strict"`
		}{},
		`setting "min" has no value`: &struct {
			A int64 `guard:"stock,min="`
		}{},
		"namespace of its lock": &struct {
			A int64 `guard:"fence"`
		}{},
		"max 1 is below min 2": &struct {
			A int64 `guard:"stock,min=2,max=1"`
		}{},
		`bound "1x"`: &struct {
			A int64 `guard:"stock,min=1x"`
		}{},
		"no such column": &struct {
			A int64 `guard:"stock,max=b"`
		}{},
		"last needs the attempt": &struct {
			A string `guard:"request,last"`
		}{},
		"attempt=b": &struct {
			A string `guard:"request,attempt=b"`
		}{},
		"not string": &struct {
			A string `guard:"stock"`
		}{},
		"not float": &struct {
			A float64 `guard:"stock"`
		}{},
		"not bytes": &struct {
			A []byte `guard:"stock"`
		}{},
		"not json": &struct {
			A int64 `guard:"stock" gorm:"type:json"`
		}{},
		"a request id is a text": &struct {
			A int64 `guard:"request"`
		}{},
		"whole numbers, not decimal": &struct {
			A int64 `guard:"version" gorm:"type:decimal(9,2)"`
		}{},
		"one version column": &struct {
			A int64 `guard:"version"`
			B int64 `guard:"version"`
		}{},
		"SQLite keeps fractions as floats": &struct {
			A string `guard:"stock" gorm:"type:decimal(9,2)"`
		}{},
		"a bound with a fraction": &struct {
			A int64 `guard:"stock,max=1.5"`
		}{},
		"the field is no column": &struct {
			A int64 `guard:"stock" gorm:"-"`
		}{},
		"holds no number": &struct {
			A int64 `guard:"stock,max=b"`
			B string
		}{},
	} {
		db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
		err := db.Use(New(WithModels(model)))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ".A") && !strings.Contains(err.Error(), ".B") && !strings.Contains(err.Error(), ".a:") {
			t.Errorf("%T: %v, want ErrInvalid with %q and the field", model, err, want)
		}
		// Without WithModels the first write fails, each time.
		db = newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
		if err := db.Use(New()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := db.Table("x").Create(model).Error; !errors.Is(err, ErrInvalid) {
				t.Errorf("first write of %T: %v, want ErrInvalid", model, err)
			}
		}
	}
	db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
	stop := errors.New("stop")
	err := db.Use(New(WithColumn("", "a", "stock"), WithColumn("t", "a", "nonsense"), WithUnique("", stop), WithUnique("uk", nil),
		WithUnique("uk", stop, "column"), WithCheck("", stop), WithCheck("ck", nil), WithRawSQL(9), WithModels(nil), WithModels(7), nil))
	for _, want := range []string{"must be named", `unknown kind "nonsense"`, "index has no name", "error is nil", "table.column", "constraint has no name", "WithRawSQL(9)", "model 1 is nil", "WithModels(int)", "option is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in %v", want, err)
		}
	}
	if errors.Is(db.Use(New()), gorm.ErrRegistered) {
		t.Error("a plugin that was refused counts as registered")
	}
}

func TestEmbeddedAndRenamedColumns(t *testing.T) {
	type Level struct {
		Units int64 `guard:"stock,max=cap" gorm:"column:n"`
		Cap   int64
	}
	type place struct {
		ID    int64
		Left  Level `gorm:"embedded;embeddedPrefix:left_"`
		Right Level `gorm:"embedded;embeddedPrefix:right_"`
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&place{}})
		row := place{Left: Level{1, 3}, Right: Level{5, 6}}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Model(&row).Updates(map[string]any{"left_n": Sub(1), "right_n": Add(1)}).Error; err != nil {
			t.Error(err)
		}
		if err := db.Model(&row).Update("left_n", Add(4)).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("above its own cap: %v", err)
		}
		if err := db.Model(&row).Update("right_n", 1).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("literal: %v", err)
		}
	})
}

func TestWithColumnGuardsModelsOneCannotEdit(t *testing.T) {
	type foreign struct {
		ID     int64
		Amount int64
		Most   int64
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&foreign{}}, WithColumn("foreigns", "amount", "stock,min=-5,max=most"))
		row := foreign{Amount: 0, Most: 5}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Model(&row).Update("amount", Sub(5)).Error; err != nil {
			t.Errorf("down to min -5: %v", err)
		}
		if err := db.Model(&row).Update("amount", Sub(1)).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("below min: %v", err)
		}
		if err := db.Table("foreigns").Where("id = ?", row.ID).Update("amount", 1).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("by table: %v", err)
		}
		if err := db.Table("unknown").Where("id = ?", row.ID).Update("amount", Sub(1)).Error; err == nil {
			t.Error("Sub on a table nobody marked")
		}
	})
}

// Decimals are exact: no float anywhere, and MySQL compares parameters as decimals.
func TestDecimalColumns(t *testing.T) {
	type account struct {
		ID      int64
		Balance string `guard:"stock,min=-0.50" gorm:"type:decimal(30,2);not null"`
	}
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, name).open(t, gorm.Config{}, []any{&account{}})
			row := account{Balance: "9007199254740993.11"}
			if err := db.Create(&row).Error; err != nil {
				t.Fatal(err)
			}
			step := func(text string) error {
				return db.Model(&account{ID: row.ID}).Update("balance", gorm.Expr("balance - ?", text)).Error
			}
			stored := func() string {
				var got account
				if err := db.Take(&got, row.ID).Error; err != nil {
					t.Fatal(err)
				}
				return got.Balance
			}
			if err := step("0.01"); err != nil || stored() != "9007199254740993.10" {
				t.Fatalf("%v, %s", err, stored())
			}
			err := step("9007199254740993.61")
			var e *Error
			if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Available() != "9007199254740993.10" || e.Requested() != "9007199254740993.61" || e.Limit() != "-0.5" {
				t.Errorf("a cent too much: %v %s %s %s", err, e.Available(), e.Requested(), e.Limit())
			}
			if err := step("9007199254740993.60"); err != nil || stored() != "-0.50" {
				t.Errorf("down to the cent: %v, %s", err, stored())
			}
			for _, bad := range []string{"0.001", "0", "-1", "1e3", "NaN", ""} {
				if err := step(bad); !errors.Is(err, ErrInvalid) {
					t.Errorf("%q: %v, want ErrInvalid", bad, err)
				}
			}
			if err := db.Model(&row).Update("balance", Sub(1)).Error; !errors.Is(err, ErrInsufficient) {
				t.Errorf("Sub on a decimal column: %v", err)
			}
		})
	}
}
