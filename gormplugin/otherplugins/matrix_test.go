package otherplugins

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"
	"gorm.io/plugin/opentelemetry/tracing"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// neighbour is one plugin, or all of them, beside gormplugin: a model with its field types, and what db.Use takes.
type neighbour struct {
	name    string
	kind    kind
	plugins func(d database) []gorm.Plugin // nil: field types alone
	wants   map[string]error               // where it changes what a call comes to
}

func neighbours() []neighbour {
	plain := kindOf[plainShelf]{func(s Shelf) plainShelf { return plainShelf{Shelf: s} }}
	// Its mark says that the statement checked a version, so a row that is not there counts as one that has moved on.
	optimistic := map[string]error{"Update, no row": gormplugin.ErrVersionConflict, "Save, no row": gormplugin.ErrVersionConflict}
	return []neighbour{
		{name: "optimisticlock", kind: kindOf[versionedShelf]{func(s Shelf) versionedShelf { return versionedShelf{Shelf: s} }}, wants: optimistic},
		{name: "soft_delete", kind: kindOf[softShelf]{func(s Shelf) softShelf { return softShelf{Shelf: s} }}},
		{name: "dbresolver", kind: plain, plugins: func(d database) []gorm.Plugin { return []gorm.Plugin{resolver(d)} }},
		{name: "opentelemetry", kind: plain, plugins: func(database) []gorm.Plugin { return []gorm.Plugin{tracer(trace.NewTracerProvider())} }},
		{
			name: "all of them", kind: kindOf[loadedShelf]{func(s Shelf) loadedShelf { return loadedShelf{Shelf: s} }}, wants: optimistic,
			plugins: func(d database) []gorm.Plugin { return []gorm.Plugin{resolver(d), tracer(trace.NewTracerProvider())} },
		},
	}
}

// resolver has the database as its source and as its replica.
func resolver(d database) gorm.Plugin {
	return dbresolver.Register(dbresolver.Config{Sources: []gorm.Dialector{d.dialector()}, Replicas: []gorm.Dialector{d.dialector()}})
}

func tracer(p *trace.TracerProvider) gorm.Plugin {
	return tracing.NewPlugin(tracing.WithTracerProvider(p), tracing.WithoutMetrics())
}

// Every way to a guarded table comes to the same beside every other plugin, whichever db.Use took first, on every database
// and in every kind of transaction.
func TestMatrixBesideOtherPlugins(t *testing.T) {
	onEach(t, func(t *testing.T, _ database) {
		name := t.Name()[len("TestMatrixBesideOtherPlugins/"):]
		for _, n := range neighbours() {
			d := newDatabase(t, name)
			migrate(t, d.open(t, gorm.Config{}), n.kind.model())
			next := int64(0)
			for _, config := range []gorm.Config{{}, {PrepareStmt: true, SkipDefaultTransaction: true, TranslateError: true}} {
				for order, db := range n.orders(t, d, config) {
					for transaction, in := range kindsOfTransaction() {
						t.Run(fmt.Sprintf("%s/%s/prepare=%t skip=%t/%s", n.name, order, config.PrepareStmt, config.SkipDefaultTransaction, transaction), func(t *testing.T) {
							for _, c := range calls() {
								next++
								n.run(t, db, in, c, next)
							}
						})
					}
				}
			}
		}
	})
}

// orders opens the database once with gormplugin before the others, and once behind them.
func (n neighbour) orders(t *testing.T, d database, config gorm.Config) map[string]*gorm.DB {
	t.Helper()
	guard := func() gorm.Plugin {
		return gormplugin.New(gormplugin.WithModels(n.kind.model()), gormplugin.WithUnique("sku", errTaken), gormplugin.WithRawSQL(gormplugin.Refuse), gormplugin.WithLogger(quiet))
	}
	if n.plugins == nil {
		return map[string]*gorm.DB{"alone": use(t, d.open(t, config), guard())}
	}
	return map[string]*gorm.DB{
		"gormplugin first": closing(t, use(t, d.open(t, config), append([]gorm.Plugin{guard()}, n.plugins(d)...)...)),
		"gormplugin last":  closing(t, use(t, d.open(t, config), append(n.plugins(d), guard())...)),
	}
}

func (n neighbour) run(t *testing.T, db *gorm.DB, in func(*gorm.DB, func(*gorm.DB) error) error, c call, id int64) {
	t.Helper()
	if err := db.Unscoped().Where("1 = 1").Delete(n.kind.model()).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Create(n.kind.of(Shelf{ID: id, SKU: fmt.Sprint("row-", id), Title: "mug", Stock: 10})).Error; err != nil {
		t.Fatal(err)
	}
	want := c.want
	if other, ok := n.wants[c.name]; ok {
		want = other
	}
	err := in(db, func(tx *gorm.DB) error { return c.do(tx, n.kind, id) })
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", c.name, err, want)
	}
	var stocks []int64
	switch err := db.Model(n.kind.model()).Where("id = ?", id).Pluck("stock", &stocks).Error; {
	case err != nil:
		t.Errorf("%s: %v", c.name, err)
	case c.stock == -1 && len(stocks) > 0, c.stock != -1 && (len(stocks) != 1 || stocks[0] != c.stock):
		t.Errorf("%s: stock %v, want %d", c.name, stocks, c.stock)
	}
}

func kindsOfTransaction() map[string]func(db *gorm.DB, do func(tx *gorm.DB) error) error {
	return map[string]func(db *gorm.DB, do func(tx *gorm.DB) error) error{
		"none":     func(db *gorm.DB, do func(tx *gorm.DB) error) error { return do(db) },
		"explicit": func(db *gorm.DB, do func(tx *gorm.DB) error) error { return db.Transaction(do) },
		"nested": func(db *gorm.DB, do func(tx *gorm.DB) error) error {
			return db.Transaction(func(tx *gorm.DB) error { return tx.Transaction(do) })
		},
		"retry": func(db *gorm.DB, do func(tx *gorm.DB) error) error {
			return gormplugin.Retry(context.Background(), db, do)
		},
	}
}
