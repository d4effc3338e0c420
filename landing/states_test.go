package landing

import (
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// F069: each final state of an order has one effect on the stock, in SQL and in Redis, and one on its user's limit.
func TestEachFinalStateHasItsEffect(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		for name, c := range map[string]struct {
			end            func(s *shop, order string) // brings the order into its final state
			status         int16
			reason         string
			inSQL, inRedis int64 // of 10 units
			counts         bool  // against the user's limit
		}{
			"paid":     {func(s *shop, o string) { s.must(s.lander.Pay(s.Context(), o)) }, 1, "", 9, 9, true},
			"unpaid":   {func(s *shop, o string) { s.due(); s.sweep() }, 2, "unpaid", 10, 10, false},
			"failed":   {func(s *shop, o string) { s.must(s.lander.Close(s.Context(), o, stock.Failed)) }, 2, "failed", 10, 10, false},
			"operator": {func(s *shop, o string) { s.must(s.lander.Close(s.Context(), o, stock.Operator)) }, 2, "operator", 10, 10, false},
		} {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, dialect, withHold())
				order := s.buy(1)
				s.work()
				c.end(s, order)
				s.wantRow(order, c.status, c.reason)
				s.want(c.inSQL, c.inRedis, 0)
				s.due()
				s.sweep() // whatever the state, a sweep past the deadline adds nothing
				s.want(c.inSQL, c.inRedis, 0)
				_, err := s.counter.Deduct(t.Context(), stock.Order{RequestID: "next", Item: 1001, Activity: 1, User: 1, Units: 1})
				if refused := errors.Is(err, stock.ErrLimitReached); refused != c.counts || err != nil && !refused {
					t.Errorf("the user's next order: %v; the limit counts this one: %v", err, c.counts)
				}
			})
		}
	})
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// F079: the order's row and the stock's change together or not at all.
func TestRowAndStockChangeTogether(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		refuse := errors.New("no")
		s.must(s.db.Callback().Create().Before("gorm:create").Register("test:refuse", func(tx *gorm.DB) {
			if tx.Statement.Table == "seckill_order" {
				_ = tx.AddError(refuse)
			}
		}))
		order := s.buy(1)
		batch := s.takeAll(s.newLane("one"))
		if _, err := s.lander.transact(t.Context(), batch); !errors.Is(err, refuse) {
			t.Fatalf("an insert that fails: %v", err)
		}
		s.want(10, 9, 0)
		s.must(s.db.Callback().Create().Remove("test:refuse"))

		s.must(s.db.Callback().Update().After("gorm:update").Register("test:refuse", func(tx *gorm.DB) {
			if tx.Statement.Table == "item_stock" {
				_ = tx.AddError(refuse)
			}
		}))
		if _, err := s.lander.transact(t.Context(), batch); !errors.Is(err, refuse) {
			t.Fatalf("an update that fails: %v", err)
		}
		if row := s.row(order); row.ID != 0 {
			t.Errorf("there is a row without its units: %+v", row)
		}
		s.want(10, 9, 0)
		s.must(s.db.Callback().Update().Remove("test:refuse"))
	})
}
