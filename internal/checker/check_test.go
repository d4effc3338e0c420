package checker

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// A run in which nothing is wrong has no findings, whatever the counter is made with.
func TestCleanRun(t *testing.T) {
	t.Parallel()
	for kind := range kindsOfCounter() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, kind)
			s.run()
			s.finds(s.check())
		})
	}
}

// The same on a cluster's nodes and in PostgreSQL's tables.
func TestCleanRunOnClusterAndPostgres(t *testing.T) {
	t.Parallel()
	srv := testserver.Cluster(t)
	db, err := sql.Open("pgx", testserver.Postgres(t).DSN)
	if err != nil {
		t.Fatal(err)
	}
	s := openShop(t, "segments, hold", srv.Client(t), srv.Prefix(t), db)
	s.run()
	s.finds(s.check())
	s.exec(`UPDATE item_stock SET stock = stock + 1`)
	s.finds(s.check(), StockDiffers)
}

// planted is something wrong that is planted into a run, and what must be found then: that, and nothing else.
type planted struct {
	name  string
	plant func(s *shop)
	want  []Kind
	kinds string // of counter; empty: all
}

func faults() []planted {
	return []planted{
		{"a unit is lost from the counter", func(s *shop) { s.do("DECR", s.counterKey()) }, []Kind{UnitsLost}, ""},
		{"a unit comes back twice", func(s *shop) { s.do("INCR", s.counterKey()) }, []Kind{UnitsExtra}, ""},
		{"a release is answered twice as done", func(s *shop) {
			for _, r := range s.rec.Records() {
				if r.Op == Release {
					r.ID = "again"
					s.rec.Add(r)
				}
			}
		}, []Kind{EndedTwice}, ""},
		{"a hold ends twice", func(s *shop) {
			o, order := s.buy(7, 1)
			key := s.key("req:*" + o.RequestID)
			if s.hold {
				key = s.key("hold:" + order)
			}
			s.do("HSET", key, "confirmed", "1", "released", "1")
			s.exec(`UPDATE seckill_order SET status = 2 WHERE request_id = '` + o.RequestID + `'`)
			s.exec(`UPDATE item_stock SET stock = stock + 1`)
			s.do("INCR", s.counterKey())
			s.do("HDEL", s.key("user:7:"), order)
		}, []Kind{EndedTwice}, ""},
		{"a counter that nobody warmed appears", func(s *shop) {
			s.do("SET", s.prefix+"stock:item:77", "5", "PX", "100000")
		}, []Kind{GhostCounter}, "flat"},
		{"the counter is gone", func(s *shop) { s.do("DEL", s.counterKey()) }, []Kind{CounterGone}, ""},
		{"a counter below zero", func(s *shop) {
			s.do("DECRBY", s.counterKey(), testUnits)
		}, []Kind{BelowZero, UnitsLost}, ""},
		{"a value that is no number", func(s *shop) { s.do("HSET", s.key("user:1:"), "x", "many", "y", "1") }, []Kind{MarkerAlone, MarkerAlone, Unreadable}, ""},
		{"a user has a second live order", func(s *shop) {
			o := s.order(1, 2)
			s.land(o, "foreign", 0)
			s.do("DECRBY", s.counterKey(), 2)
		}, []Kind{OrderUnmarked, OverLimit}, ""},
		{"a request has two rows", func(s *shop) {
			o, order := s.buy(7, 1)
			s.exec(fmt.Sprintf(`INSERT INTO seckill_order VALUES ('%s', '%s', 7, 1001, 9, 1, 2)`, order+"x", o.RequestID))
		}, []Kind{RequestRows}, ""},
		{"a key without TTL", func(s *shop) { s.do("PERSIST", s.key("user:1:")) }, []Kind{Eternal}, ""},
		{"a marker without order", func(s *shop) {
			s.do("HSET", s.key("user:1:"), "nobodys", "1")
		}, []Kind{MarkerAlone}, ""},
		{"an order without marker", func(s *shop) {
			_, order := s.buy(7, 1)
			s.do("HDEL", s.key("user:7:"), order)
		}, []Kind{OrderUnmarked}, ""},
		{"a marker with other units", func(s *shop) {
			_, order := s.buy(7, 1)
			s.do("HSET", s.key("user:7:"), order, "2:1")
		}, []Kind{MarkerUnits}, ""},
		{"a replay with another order", func(s *shop) {
			r := s.rec.Records()[0]
			r.Start, r.End = s.tick()
			r.Outcome, r.Order = Replayed, "another"
			s.rec.Add(r)
		}, []Kind{OtherOrder, RequestOrders}, ""},
		{"a request that is done twice", func(s *shop) {
			r := s.rec.Records()[0]
			r.Start, r.End = s.tick()
			s.rec.Add(r)
		}, []Kind{RequestTwice}, ""},
		{"a repeat that is told sold out after its success", func(s *shop) {
			r := s.rec.Records()[0]
			r.Start, r.End = s.tick()
			r.Outcome, r.Order = "paused", ""
			s.rec.Add(r)
		}, []Kind{RepeatRefused}, ""},
		{"sold out while units were left", func(s *shop) {
			start, end := s.tick()
			s.rec.Add(Record{Request: "late", User: "8", Item: testItem, Activity: testActivity, Units: 1, Outcome: "insufficient", Start: start, End: end})
		}, []Kind{FalseSoldOut}, ""},
		{"limit reached below the limit", func(s *shop) {
			start, end := s.tick()
			s.rec.Add(Record{Request: "late", User: "8", Item: testItem, Activity: testActivity, Units: 2, Outcome: "limit_reached", Start: start, End: end})
		}, []Kind{FalseLimit}, ""},
		{"an accepted order is nowhere", func(s *shop) {
			start, end := s.tick()
			s.rec.Add(Record{Request: "gone", Order: "gone", User: "8", Item: testItem, Activity: testActivity, Units: 1, Outcome: Deducted, Start: start, End: end})
		}, []Kind{AcceptedLost}, ""},
		{"a refused request has a live order", func(s *shop) {
			o, _ := s.buy(7, 1)
			recs := s.rec.Records()
			s.rec = NewRecorder(nil)
			for _, r := range recs {
				if r.Request == o.RequestID {
					if r.Op == Confirm {
						continue
					}
					r.Outcome, r.Order = "paused", ""
				}
				s.rec.Add(r)
			}
		}, []Kind{RefusedLive}, ""},
		{"a fence falls", func(s *shop) {
			for _, fence := range []int64{3, 5, 4} {
				start, end := s.tick()
				s.rec.Add(Record{Op: Write, Item: testItem, Outcome: Applied, Fence: fence, Start: start, End: end})
			}
			s.exec(`UPDATE item_stock SET fence = 5`)
		}, []Kind{FenceFell}, ""},
		{"the row's fence is below an accepted one", func(s *shop) {
			start, end := s.tick()
			s.rec.Add(Record{Op: Write, Item: testItem, Outcome: Applied, Fence: 3, Start: start, End: end})
		}, []Kind{FenceFell}, ""},
		{"a deduct that never landed", func(s *shop) { s.deduct(s.order(7, 1)) }, []Kind{HoldOpen}, "no stream"},
		{"a stream entry that never landed", func(s *shop) { s.deduct(s.order(7, 1)) }, []Kind{HoldOpen, StreamOpen}, "stream"},
		{"a closed order whose units have not come back", func(s *shop) {
			o := s.order(7, 1)
			s.land(o, s.deduct(o).Order, 2)
		}, []Kind{MarkerAlone, ReturnOpen}, ""},
		{"a hold that nobody will ever sweep", func(s *shop) {
			o := s.order(7, 1)
			res := s.deduct(o)
			s.land(o, res.Order, 0)
			s.do("ZREM", s.key("deadlines"), res.Order)
		}, []Kind{HoldUndue}, "hold"},
		{"a hold that is swept too early", func(s *shop) {
			o := s.order(7, 1)
			res := s.deduct(o)
			s.land(o, res.Order, 0)
			s.do("ZADD", s.key("deadlines"), 1, res.Order)
		}, []Kind{HoldUndue}, "hold"},
		{"a hold that was put off is no fault", func(s *shop) {
			o := s.order(7, 1)
			res := s.deduct(o)
			s.land(o, res.Order, 0)
			s.do("ZADD", s.key("deadlines"), time.Now().Add(24*time.Hour).UnixMilli(), res.Order)
		}, nil, "hold"},
		{"a deadline of an order that has ended", func(s *shop) {
			s.deduct(s.order(7, 1)) // the key is there
			_, order := s.buy(8, 1)
			s.do("ZADD", s.key("deadlines"), time.Now().Add(time.Hour).UnixMilli(), order)
		}, []Kind{DeadlineAlone, HoldOpen}, "hold"},
		{"a paid order whose hold is not confirmed", func(s *shop) {
			o := s.order(7, 1)
			s.land(o, s.deduct(o).Order, 1)
		}, []Kind{ConfirmOpen}, "hold"},
		{"a confirmed hold that nobody has paid", func(s *shop) {
			o, _ := s.buy(7, 1)
			s.exec(`UPDATE seckill_order SET status = 0 WHERE request_id = '` + o.RequestID + `'`)
		}, []Kind{ConfirmedUnpaid}, "hold"},
		{"told that it is paid, and it is not", func(s *shop) {
			o := s.order(7, 1)
			res := s.deduct(o)
			s.land(o, res.Order, 0)
			s.rec.Add(Record{Op: Pay, Order: res.Order, Outcome: Applied})
			s.rec.Add(Record{Op: Close, Order: res.Order, Outcome: "already_confirmed"})
		}, []Kind{PaidLost, PaidLost}, ""},
		{"told that it is closed, and it is not", func(s *shop) {
			_, order := s.buy(7, 1)
			s.rec.Add(Record{Op: Close, Order: order, Outcome: Applied})
			s.rec.Add(Record{Op: Pay, Order: order, Outcome: "already_released"})
		}, []Kind{ClosedLost, ClosedLost}, ""},
		{"paid twice", func(s *shop) {
			_, order := s.buy(7, 1)
			s.rec.Add(Record{Op: Pay, Order: order, Outcome: Applied})
			s.rec.Add(Record{Op: Pay, Order: order, Outcome: "already_confirmed"})
			s.rec.Add(Record{Op: Pay, Order: order, Outcome: Applied})
		}, []Kind{EndedTwice}, ""},
		{"an order in the marker of another user", func(s *shop) {
			_, order := s.buy(7, 1)
			s.do("HDEL", s.key("user:7:"), order)
			s.do("HSET", s.key("user:1:"), order, "1:2")
		}, []Kind{MarkerForeign}, ""},
		{"told another order than the row has", func(s *shop) {
			o, _ := s.buy(7, 1)
			recs := s.rec.Records()
			s.rec = NewRecorder(nil)
			for _, r := range recs {
				if r.Request == o.RequestID && r.Op == Deduct {
					r.Order = "another"
				}
				s.rec.Add(r)
			}
		}, []Kind{OtherOrder}, ""},
		{"an order of several lines that is under way for ever", func(s *shop) {
			s.do("HSET", s.prefix+"req:lines", "what", "=1", "order", "o", "state", "open")
			s.do("PEXPIRE", s.prefix+"req:lines", "100000")
		}, []Kind{RequestOpen}, "flat"},
		{"stock below zero", func(s *shop) { s.exec(`UPDATE item_stock SET stock = -1`) }, []Kind{BelowZero, StockDiffers}, ""},
		{"a restock without its operation", func(s *shop) {
			if _, err := s.counter.Adjust(s.Context(), testItem, 3, "more", "ops"); err != nil {
				s.Fatal(err)
			}
			s.exec(`UPDATE item_stock SET stock = stock + 3`)
			s.do("HDEL", s.key("item:1001:ctl"), "op:more")
		}, []Kind{LedgerDiffers}, "flat"},
	}
}

// Each fault is found, and nothing else with it.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		for kind := range kindsOfCounter() {
			flat := kind != "segments" && kind != "segments, hold"
			stream := kind == "stream" || kind == "hold, stream"
			if f.kinds == "flat" && !flat || f.kinds == "stream" && !stream || f.kinds == "no stream" && stream || f.kinds == "hold" && !strings.Contains(kind, "hold") {
				continue
			}
			t.Run(f.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, kind)
				s.run()
				f.plant(s)
				s.finds(s.check(), f.want...)
			})
		}
	}
}

// Units between two segments are accounted for, and an open transfer is no rest.
func TestOpenTransfer(t *testing.T) {
	t.Parallel()
	s := newShop(t, "segments")
	s.run()
	counter := s.counterKey()
	s.do("DECR", counter)
	s.do("HINCRBY", counter+":ctl", "moving", 1)
	s.finds(s.check(func(r *Run) { r.Settled = false }))
	s.finds(s.check(), TransferOpen)
}

// Units that SQL refused are withheld: accounted for, and neither sold nor for sale.
func TestWithheldUnits(t *testing.T) {
	t.Parallel()
	for kind := range kindsOfCounter() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, kind)
			s.run()
			o := s.order(7, 1)
			res := s.deduct(o)
			s.exec(`UPDATE item_stock SET stock = stock - 1`) // SQL never had it
			s.land(o, res.Order, 2)
			if _, err := s.counter.Release(t.Context(), res.Order, stock.Insufficient, stock.Of(o)); err != nil {
				t.Fatal(err)
			}
			s.finds(s.check())
		})
	}
}

// "Sold out" is true when all units were taken at some instant of the request, even if one came back right then.
func TestTrueSoldOut(t *testing.T) {
	t.Parallel()
	s := newShop(t, "record")
	var last stock.Order
	var order string
	for user := 1; user <= testUnits; user++ {
		last, order = s.buy(user, 1)
	}
	s.deduct(s.order(100, 1))
	s.cancel(last, order)
	s.finds(s.check())
	start, end := s.tick()
	late := Record{Request: "late", User: "8", Item: testItem, Activity: testActivity, Units: 1, Outcome: "insufficient", Start: start, End: end}
	s.rec.Add(late)
	s.finds(s.check(), FalseSoldOut)
	s.finds(s.check(func(r *Run) { r.SoldOutFor = time.Minute })) // a filter may go on saying so for a while
}

// Units that somebody has seen come back, as the sweeper brings them, make "sold out" false from then on, and "limit reached"
// too; before they were seen nothing is known. An order that no answer told of counts as taken until its row says otherwise.
func TestSoldOutAfterWhatWasSeenToComeBack(t *testing.T) {
	t.Parallel()
	at := time.Now()
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	ask := func(request, user, order, outcome string, n int) Record {
		return Record{
			Request: request, User: user, Item: "1", Activity: "9", Units: 1, Order: order, Outcome: outcome,
			Start: second(n), End: second(n).Add(time.Millisecond),
		}
	}
	lost := &orderRow{request: "r2", order: "o2", item: "1", user: "2", activity: "9", units: 1, closed: true}
	rows := &SQL{
		orders: []orderRow{{request: "r1", order: "o1", item: "1", user: "1", activity: "9", units: 1, closed: true}, *lost},
		stock:  map[string]stockRow{}, byRequest: map[string]*orderRow{"r2": lost},
	}
	run := Run{Sales: []Sale{{Item: "1", Activity: "9", Units: 2, Limit: 1}}, SQL: rows, History: []Record{
		ask("r1", "1", "o1", Deducted, 0),
		ask("r2", "2", "", NoAnswer, 0),
		ask("r3", "3", "", "insufficient", 1),
		ask("r4", "1", "", "limit_reached", 1),
		{Op: Return, Order: "o1", Units: 1, End: second(3)},
		ask("r5", "4", "o5", Deducted, 4),
		ask("r6", "5", "", "insufficient", 5),
	}}
	if found := Check(run); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	run.History = append(run.History, Record{Op: Return, Order: "o2", Units: 1, End: second(6)},
		ask("r7", "6", "", "insufficient", 7), ask("r8", "1", "", "limit_reached", 7))
	var got []string
	for _, f := range Check(run) {
		got = append(got, fmt.Sprint(f.Kind, " ", f.Request))
	}
	if diff := cmp.Diff([]string{"false_limit r8", "false_sold_out r7"}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// A history in which two writers overlap proves nothing about their order: no finding.
func TestOverlappingFencesAreNoFall(t *testing.T) {
	t.Parallel()
	at := time.Now()
	run := Run{History: []Record{
		{Op: Write, Item: "1", Outcome: Applied, Fence: 5, Start: at, End: at.Add(2 * time.Second)},
		{Op: Write, Item: "1", Outcome: Applied, Fence: 4, Start: at.Add(time.Second), End: at.Add(3 * time.Second)},
		{Op: Write, Item: "1", Outcome: "stale_fence", Fence: 1, Start: at.Add(4 * time.Second), End: at.Add(5 * time.Second)},
	}}
	if found := Check(run); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// A quota has no rows in SQL: what is confirmed has come to its end.
func TestQuota(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	rdb, prefix := srv.Client(t), srv.Prefix(t)
	for _, shards := range []int{1, 4} {
		own := fmt.Sprint(prefix, shards, ":")
		quota, err := stock.NewQuota(rdb, stock.Prefix(own))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := quota.Warm(t.Context(), stock.Sale{Item: 77, Units: 100, Segments: shards, Ends: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			o := stock.Order{Item: 77, Units: 3, RequestID: fmt.Sprint("q", i)}
			res, err := quota.Deduct(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			switch i {
			case 0, 1, 2:
				_, err = quota.Confirm(t.Context(), res.Order, stock.Of(o))
			case 3:
				_, err = quota.Release(t.Context(), res.Order, stock.Failed, stock.Of(o))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		kept, err := ReadRedis(t.Context(), rdb, own)
		if err != nil {
			t.Fatal(err)
		}
		run := Run{Sales: []Sale{{Item: "quota:77", Units: 100}}, Redis: kept, Settled: true}
		found := Check(run)
		if len(found) != 1 || found[0].Kind != HoldOpen || found[0].Got != 3 {
			t.Errorf("%d shards: found %v, want one open hold of 3 units", shards, found)
		}
	}
}
