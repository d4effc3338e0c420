package landing

import (
	"errors"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// An entry that cannot be read goes to the dead letters at once; giving it up deletes it. The orders around it land.
func TestMalformedEntry(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	s.buy(1)
	s.deliver(map[string]any{"order": "x", "units": "many"})
	s.buy(2)
	s.work()
	s.want(8, 8, 0)
	letters := s.deadLetters()
	if len(letters) != 1 || letters[0].ErrorType != "corrupt" || letters[0].Fields["units"] != "many" || letters[0].Entry.Order != "" {
		t.Fatalf("dead letters: %+v", letters)
	}
	if err := s.lander.DeadLetters().GiveUp(t.Context(), letters[0].ID); err != nil {
		t.Fatal(err)
	}
	if letters := s.deadLetters(); len(letters) != 0 {
		t.Errorf("still there: %+v", letters)
	}
	if err := s.lander.DeadLetters().GiveUp(t.Context(), letters[0].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second time: %v, want not found", err)
	}
}

// F085: an order that could not be landed is replayed under the same ids when the cause is gone, and lands once, however often
// that is done. Until then its units stay held, and its stream of dead letters has a TTL.
func TestDeadLetterIsReplayed(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		s.warm(8, 5, stock.Limit{Units: 1}) // Redis knows an item that SQL does not have
		no := s.order(stock.Order{Item: 8, User: 1, Units: 1})
		good := s.buy(2)
		s.work()
		s.wantRow(good, 0, "")
		letters := s.deadLetters()
		if len(letters) != 1 || letters[0].Entry.Order != no || letters[0].ErrorType != "not_found" || letters[0].Entry.Units != 1 {
			t.Fatalf("dead letters: %+v", letters)
		}
		half, _, _ := strings.Cut(letters[0].ID, "-") // would name the first entry of its millisecond to some commands, and none to others
		if err := s.lander.DeadLetters().Replay(t.Context(), half); !errors.Is(err, ErrInvalid) {
			t.Errorf("half an id: %v, want invalid", err)
		}
		if got, err := s.lander.DeadLetters().Get(t.Context(), letters[0].ID); err != nil || got.Entry != letters[0].Entry {
			t.Errorf("Get: %+v, %v", got, err)
		}
		if eternal := s.srv.Eternal(t, s.prefix); len(eternal) > 0 {
			t.Errorf("keys without a TTL: %v", eternal)
		}
		if err := s.db.Create(&itemStock{ItemID: 8, Stock: 5}).Error; err != nil {
			t.Fatal(err)
		}
		if n, err := s.lander.DeadLetters().ReplayAll(t.Context()); n != 1 || err != nil {
			t.Fatalf("replayed %d, %v", n, err)
		}
		if err := s.lander.DeadLetters().Replay(t.Context(), letters[0].ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("a second replay: %v, want not found", err)
		}
		s.work()
		s.wantRow(no, 0, "")
		s.wantOf(8, 4, 4, 0)
		if letters := s.deadLetters(); len(letters) != 0 {
			t.Errorf("still there: %+v", letters)
		}
	})
}

// An order that is given up is kept as closed, its units come back once, its user may buy again, and a copy that comes late
// does nothing. One that has landed meanwhile is not given up.
func TestDeadLetterIsGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream(), WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
			for _, row := range landed {
				if row.UserID == 1 {
					return errors.New("no mail address")
				}
			}
			return nil
		}))
		no := s.buy(1)
		entry := s.entries()[0]
		s.work()
		letters := s.deadLetters()
		if len(letters) != 1 || letters[0].Tries != mostTries || letters[0].Error != "no mail address" {
			t.Fatalf("dead letters: %+v", letters)
		}
		for range 2 { // a crash before the dead letter is deleted, then again
			if err := s.lander.DeadLetters().release(t.Context(), &letters[0].Entry); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.lander.DeadLetters().GiveUp(t.Context(), letters[0].ID); err != nil {
			t.Fatal(err)
		}
		s.wantRow(no, 2, "operator")
		s.want(10, 10, 0)
		s.deliver(entry)
		s.work()
		s.want(10, 10, 0)

		other := s.buy(2)
		entry = s.entries()[0]
		s.work()
		s.deliver(entry)
		id, err := s.rdb.XAdd(t.Context(), deadArgs(s, entry)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.lander.DeadLetters().GiveUp(t.Context(), "0/"+id); !errors.Is(err, ErrInvalid) {
			t.Errorf("an order that has landed was given up: %v", err)
		}
		s.wantRow(other, 0, "")
		s.want(9, 9, 0)
		for _, id := range []string{"", "x", "7/1-1", "0/*", "0/1-1/2"} {
			if err := s.lander.DeadLetters().Replay(t.Context(), id); !errors.Is(err, ErrInvalid) {
				t.Errorf("id %q: %v, want invalid", id, err)
			}
		}
	})
}

// The handler's rows and the orders are one transaction. It may fail, or panic, for one order of a batch: the others land, each
// with its own row, and the handler's rows of the one that failed are not there.
func TestHandlerRunsInTheTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		handler := func(tx *gorm.DB, landed []*seckillOrder) error {
			for _, row := range landed {
				if err := tx.Create(&orderEvent{OrderNo: row.OrderNo}).Error; err != nil {
					return err
				}
				if row.UserID == 2 {
					panic("a bug")
				}
			}
			return nil
		}
		s := newShop(t, dialect, withStream(), WithHandler(handler))
		for user := int64(1); user <= 4; user++ {
			s.buy(user)
		}
		entries := s.entries()
		s.work()
		for _, e := range entries {
			if entry, err := stock.ParseEntry(e); err != nil {
				t.Fatal(err)
			} else if entry.User != "2" {
				s.deliver(e)
			}
		}
		s.work()
		var events []orderEvent
		if err := s.db.Find(&events).Error; err != nil {
			t.Fatal(err)
		}
		if rows := s.rows(); len(rows) != 3 || len(events) != 3 {
			t.Errorf("%d orders and %d events, want 3 of each", len(rows), len(events))
		}
		if letters := s.deadLetters(); len(letters) != 1 || letters[0].Entry.User != "2" || letters[0].ErrorType != "internal" {
			t.Errorf("dead letters: %+v", letters)
		}
		s.want(7, 6, 0)
	})
}

// Somebody hears of each dead letter, once, in the log and in the metric: of an entry that cannot be read, of an order that workers died of,
// of one whose row is refused, and of one whose burial got no answer, be it once or each time that it was sent.
func TestEachDeadLetterIsToldOf(t *testing.T) {
	t.Parallel()
	unreadable := func(s *shop) { s.deliver(map[string]any{"order": "x", "units": "many"}) }
	cases := map[string]struct {
		happen func(s *shop)
		lost   int
	}{
		"unreadable":                  {happen: unreadable},
		"unreadable, reply lost":      {happen: unreadable, lost: 1},
		"unreadable, no reply at all": {happen: unreadable, lost: 3},
		"refused":                     {happen: func(s *shop) { s.buy(1) }},
		"refused, reply lost":         {happen: func(s *shop) { s.buy(1) }, lost: 1},
		"refused, no reply at all":    {happen: func(s *shop) { s.buy(1) }, lost: 3},
		"workers have died of it": {happen: func(s *shop) {
			s.buy(2)
			l := s.newLane("dead")
			if _, err := l.tried(s.Context(), mostTries, s.takeAll(l)...); err != nil {
				s.Fatal(err)
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := sdkmetric.NewManualReader()
			s, proxy := newProxiedShop(t, WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
				WithHandler(func(_ *gorm.DB, landed []*seckillOrder) error {
					if landed[0].UserID == 1 {
						return errors.New("no")
					}
					return nil
				}))
			c.happen(s)
			if c.lost > 0 {
				proxy.On(faultproxy.Named("EVALSHA").Containing(sha(t, "bury")).Times(c.lost), faultproxy.LoseReply())
			}
			stop := s.start(s.lander)
			testserver.Eventually(t, 20*time.Second, func() bool {
				return strings.Contains(s.log.String(), "lies with the dead letters")
			}, "nobody is told: "+s.log.String())
			stop()
			if n := strings.Count(s.log.String(), "lies with the dead letters"); n != 1 {
				t.Errorf("told %d times", n)
			}
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			if n := counted(all, telemetry.MetricLandingOrders, outcomeDeadLetter); n != 1 {
				t.Errorf("counted %d times", n)
			}
			if n := len(s.deadLetters()); n != 1 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

// counted is what a counter has for one outcome.
func counted(all metricdata.ResourceMetrics, name, outcome string) (n int64) {
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != name || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				if v, ok := p.Attributes.Value(telemetry.LandingOutcome); ok && v.AsString() == outcome {
					n += p.Value
				}
			}
		}
	}
	return n
}

// Giving up gives units back only with a closed row, or where the database refuses the row for what is in it, so that no copy can land
// either. A fault of the database is an error, and the same call does it afterwards.
func TestGiveUpWaitsForTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold(), WithHandler(func(*gorm.DB, []*seckillOrder) error { return errors.New("no") }))
		no := s.buy(1)
		s.work()
		id := s.deadLetters()[0].ID
		s.failInserts("> 0")
		if err := s.lander.DeadLetters().GiveUp(t.Context(), id); err == nil {
			t.Error("given up without a closed row")
		}
		s.want(10, 9, 0)
		if len(s.deadLetters()) != 1 {
			t.Error("the dead letter is gone")
		}
		s.healInserts()
		if err := s.lander.DeadLetters().GiveUp(t.Context(), id); err != nil {
			t.Error(err)
		}
		s.wantRow(no, 2, "operator")
		s.want(10, 10, 0)

		l := s.newLanderOf(func(e stock.Entry) seckillOrder {
			row := rowOf(e)
			row.Units = -1
			return row
		})
		s.buy(2)
		s.workWith(l)
		if err := l.DeadLetters().GiveUp(t.Context(), s.deadLetters()[0].ID); err != nil {
			t.Errorf("a row that a check refuses: %v", err)
		}
		s.want(10, 10, 0)
	})
}
