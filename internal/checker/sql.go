package checker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tables says where SQL keeps stock and orders. Names that are empty are not there.
type Tables struct {
	Stock  StockTable
	Orders OrderTable
	Ledger LedgerTable
}

// StockTable has one row an item. Fence is the column of the highest fence accepted.
type StockTable struct{ Name, Item, Units, Fence string }

// OrderTable has one row an order. Without Units each has one, without Status all are live.
type OrderTable struct {
	Name, Request, Order, Item, User, Activity, Units, Status string
	// Closed are the values of Status of an order that is not live; "2" if there are none.
	Closed []string
	// Paid are the values of Status of an order that is paid for; without any nothing is said about payment.
	Paid []string
	// Item, if it cannot be found in a column, is the same for all rows.
	OneItem string
}

// LedgerTable has one row a movement: how much was added to an item's stock, less than 0 if taken, and in which operation.
type LedgerTable struct{ Name, Item, Units, Operation string }

// Seckill returns the tables item_stock and seckill_order.
func Seckill() Tables {
	return Tables{
		Stock: StockTable{Name: "item_stock", Item: "item_id", Units: "stock", Fence: "fence"},
		Orders: OrderTable{
			Name: "seckill_order", Request: "request_id", Order: "order_no", Item: "item_id", User: "user_id", Activity: "activity_id",
			Units: "units", Status: "status", Paid: []string{"1"},
		},
	}
}

// SQL is what lies in the tables.
type SQL struct {
	tables Tables
	stock  map[string]stockRow
	orders []orderRow
	ledger []movement

	byRequest, byOrder map[string]*orderRow
}

type stockRow struct{ units, fence int64 }

type orderRow struct {
	request, order, item, user, activity string
	units                                int64
	closed, paid                         bool
}

type movement struct {
	item, operation string
	units           int64
}

// ReadSQL reads the tables. The names are the test's own and are put into the statement as they are.
func ReadSQL(ctx context.Context, db *sql.DB, t Tables) (*SQL, error) {
	s := &SQL{tables: t, stock: map[string]stockRow{}, byRequest: map[string]*orderRow{}, byOrder: map[string]*orderRow{}}
	err := read(ctx, db, t.Stock.Name, []string{t.Stock.Item, t.Stock.Units, t.Stock.Fence}, func(v []string) error {
		units, err := whole(v[1])
		if err != nil {
			return err
		}
		fence, err := whole(v[2])
		s.stock[v[0]] = stockRow{units: units, fence: fence}
		return err
	})
	if err != nil {
		return nil, err
	}
	closed := t.Orders.Closed
	if len(closed) == 0 {
		closed = []string{"2"}
	}
	o := t.Orders
	columns := []string{o.Request, o.Order, o.Item, o.User, o.Activity, o.Units, o.Status}
	err = read(ctx, db, o.Name, columns, func(v []string) error {
		row := orderRow{request: v[0], order: v[1], item: v[2], user: v[3], activity: v[4], units: 1}
		if o.Item == "" {
			row.item = o.OneItem
		}
		row.paid = o.Status != "" && slices.Contains(o.Paid, v[6])
		row.closed = o.Status != "" && slices.Contains(closed, v[6])
		var err error
		if o.Units != "" {
			row.units, err = whole(v[5])
		}
		s.orders = append(s.orders, row)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range s.orders {
		row := &s.orders[i]
		s.byOrder[row.order] = row
		if was := s.byRequest[row.request]; was == nil || was.closed {
			s.byRequest[row.request] = row
		}
	}
	delete(s.byRequest, "")
	delete(s.byOrder, "")
	err = read(ctx, db, t.Ledger.Name, []string{t.Ledger.Item, t.Ledger.Units, t.Ledger.Operation}, func(v []string) error {
		units, err := whole(v[1])
		s.ledger = append(s.ledger, movement{item: v[0], units: units, operation: v[2]})
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// read calls fn with the columns of each row as text; a column without a name is empty.
func read(ctx context.Context, db *sql.DB, table string, columns []string, fn func(values []string) error) (err error) {
	if table == "" {
		return nil
	}
	var names []string
	for _, c := range columns {
		if c == "" {
			c = "NULL"
		}
		names = append(names, c)
	}
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+table)
	if err != nil {
		return fmt.Errorf("checker: %s: %w", table, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	values := make([]sql.NullString, len(columns))
	to := make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return fmt.Errorf("checker: %s: %w", table, err)
		}
		texts := make([]string, len(values))
		for i := range values {
			texts[i] = values[i].String
		}
		if err := fn(texts); err != nil {
			return fmt.Errorf("checker: %s: %w", table, err)
		}
	}
	return rows.Err()
}

func whole(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// of returns the row of what Redis knows as this request and order, nil if there is none.
func (s *SQL) of(request, order string) *orderRow {
	if s == nil {
		return nil
	}
	if row := s.byOrder[order]; row != nil && row.request == request {
		return row
	}
	if row := s.byRequest[request]; row != nil {
		return row
	}
	return s.byOrder[order]
}
