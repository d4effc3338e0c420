package landing

import (
	"cmp"
	"database/sql"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// mostIn is how many values one IN has.
const mostIn = 500

// snapshot is how a transaction sees one state of the database all the time. SQLite's do so anyway.
func snapshot(db *gorm.DB) *sql.TxOptions {
	if db.Name() == "sqlite" {
		return &sql.TxOptions{ReadOnly: true}
	}
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

// readStock reads the items' rows. It is the first statement of the transaction, and so makes its snapshot.
func (l *look) readStock(tx *gorm.DB, items []string) error {
	m := l.e.items
	var keys []any
	for _, item := range items {
		row, err := m.row(item)
		if err != nil {
			continue // an id that the model cannot hold has no row
		}
		keys = append(keys, plain(m.key, reflect.ValueOf(row)))
	}
	if len(keys) == 0 { // no item, and a snapshot all the same
		return tx.Exec("SELECT 1").Error
	}
	for keys := range slices.Chunk(keys, mostIn) {
		rows := reflect.New(reflect.SliceOf(m.typ))
		err := tx.Session(&gorm.Session{}).Unscoped().Model(reflect.New(m.typ).Interface()).
			Select([]string{m.key.DBName, m.stock.DBName}).Where(in(m.key, keys)).Find(rows.Interface()).Error
		if err != nil {
			return err
		}
		for i := range rows.Elem().Len() {
			row := rows.Elem().Index(i).Addr()
			units, err := asInt(plain(m.stock, row))
			if err != nil {
				return err
			}
			l.stock[textOf(plain(m.key, row))] = units
		}
	}
	return nil
}

// readStrays reads the rows of items whose counter belongs to no sale.
func (l *look) readStrays(tx *gorm.DB) error {
	if len(l.Strays) == 0 || l.asked != nil {
		return nil
	}
	var items []string
	for _, s := range l.Strays {
		items = append(items, s.Item)
	}
	return l.readStock(tx, items)
}

// readLive reads all orders of the items that are not closed.
func (l *look) readLive(tx *gorm.DB) error {
	m := l.e.orders
	var items []any
	for _, item := range l.names() {
		r := m.newRow()
		if r.set(m.item, item) == nil {
			items = append(items, plain(m.item, r.v))
		}
	}
	for items := range slices.Chunk(items, mostIn) {
		err := l.each(tx, func(q *gorm.DB) *gorm.DB {
			return q.Where(in(m.item, items)).Where(clause.Neq{Column: column(m.status), Value: m.closed}).Order(primary(m.schema))
		}, func(r orderRow) {
			l.live = append(l.live, r)
			l.byRequest[r.requestID()], l.byNumber[r.number()] = r, r
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// names are the items that Redis knows or that were asked for, sorted.
func (l *look) names() []string {
	names := append(slices.Clone(l.asked), l.also...)
	for name := range l.items {
		names = append(names, name)
	}
	for i := range l.Held { // Redis may have lost the item, and not its orders
		names = append(names, l.Held[i].Item)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readElsewhere looks for the orders of marks by their number. A mark lives longer than the rest that tells of an order: it
// counts over several items, say, and the order's own has long ended; or a switch is lost.
func (l *look) readElsewhere(tx *gorm.DB) error {
	m := l.e.orders
	known := map[string]bool{}
	for i := range l.Held {
		known[l.Held[i].Order] = l.Held[i].Kept() > 0
	}
	for _, o := range slices.Concat(l.Landing, l.Dead) {
		known[o.Order] = true
	}
	var numbers []any
	for _, mark := range l.Marks {
		_, live := l.byNumber[mark.Order]
		if r := m.newRow(); !live && !known[mark.Order] && r.set(m.number, mark.Order) == nil {
			numbers = append(numbers, plain(m.number, r.v))
		}
	}
	for numbers := range slices.Chunk(numbers, mostIn) {
		err := l.each(tx, func(q *gorm.DB) *gorm.DB {
			return q.Where(in(m.number, numbers)).Where(clause.Neq{Column: column(m.status), Value: m.closed})
		}, func(r orderRow) { l.elsewhere[r.number()] = true })
		if err != nil {
			return err
		}
	}
	return nil
}

// readClosed reads the closed rows of orders that Redis still holds or has to land.
func (l *look) readClosed(tx *gorm.DB) error {
	m := l.e.orders
	var requests []any
	for i := range l.Held {
		if o := &l.Held[i]; o.Kept() > 0 && !l.has(&o.Entry) {
			requests = append(requests, o.RequestID)
		}
	}
	for _, o := range slices.Concat(l.Landing, l.Dead) {
		if l.wants(o.Item) && !l.has(&o.Entry) {
			requests = append(requests, o.RequestID)
		}
	}
	for requests := range slices.Chunk(requests, mostIn) {
		err := l.each(tx, func(q *gorm.DB) *gorm.DB { return q.Where(in(m.request, requests)) }, func(r orderRow) {
			if r.state() == stateClosed {
				l.closed[r.requestID()] = r
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each reads rows one by one.
func (l *look) each(tx *gorm.DB, where func(*gorm.DB) *gorm.DB, fn func(orderRow)) (err error) {
	m := l.e.orders
	tx = tx.Session(&gorm.Session{})
	rows, err := where(tx.Unscoped().Model(m.newRow().any())).Rows()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, rows.Close()) }()
	for rows.Next() {
		r := m.newRow()
		if err := tx.ScanRows(rows, r.any()); err != nil {
			return err
		}
		fn(r)
	}
	return rows.Err()
}

func column(f *schema.Field) clause.Column {
	return clause.Column{Table: clause.CurrentTable, Name: f.DBName}
}

func primary(s *schema.Schema) clause.OrderBy {
	var by clause.OrderBy
	for _, f := range s.PrimaryFields {
		by.Columns = append(by.Columns, clause.OrderByColumn{Column: column(f)})
	}
	return by
}
