package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/checker"
	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// C22: many requests through the whole way, deduct with limit and request record, stream, landing, payment, while
// everything breaks at random: afterwards nothing is oversold, nothing doubled, nothing lost, nothing unsold that could have
// been sold; every key has a TTL and nothing is left to be done.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t, int64(*soakFor), seed(t))
	s.run()
	s.check()
	s.rare()
	t.Log(s.summary())
	if *soakFor >= soakShown {
		fmt.Println(s.summary())
	}
}

// soakShown is from how many requests on the summary is printed also without -v.
const soakShown = 10_000

// clients is how many ask at once; in a short run, which is one test of many, fewer do.
const clients, fewClients = 96, 32

// troubleMost is how long there may be trouble until each kind of it has happened.
const troubleMost = 5 * time.Minute

type soak struct {
	*fleet
	crowd   *crowd
	chaos   *chaos
	watch   *watcher
	most    int64
	seed    uint64
	units   int64 // of each item
	clients int

	began          time.Time
	took, settling time.Duration
	dead, never    int // dead letters; orders that were closed before they could land
	findings       []checker.Finding
	history        []checker.Record
	checked        time.Duration
}

func newSoak(t testing.TB, most int64, seed uint64) *soak {
	t.Helper()
	stands := stands{
		redis: testserver.NewRedis(t, testserver.AppendOnly()),
		sql:   testserver.NewPostgres(t, testserver.PostgresConfig("shared_buffers", "128MB"), testserver.PostgresConfig("autovacuum", "on")),
	}
	short := most < soakShown
	// More users than units, or nobody would ever hear "sold out"; so few units that it comes while units still come back.
	items, units := make([]item, max(4, most/1000)), int64(60)
	if short {
		items, units = make([]item, 24), 12
	}
	for i := range items {
		items[i] = item{id: int64(1000 + i), units: units}
	}
	// A long run measures, too: without a lock, which lets an item's buyers in one by one.
	w := newWorld(t, setup{Landing: true, Run: true, Hold: 3 * time.Second, Conns: 12, Lock: short}, stands, seed, items...)
	s := &soak{fleet: &fleet{world: w}, most: most, seed: seed, units: units, clients: clients}
	w.market = newMarket(clients, 10*time.Second)
	t.Cleanup(w.market.http.CloseIdleConnections)
	for range 2 {
		w.shop = nil
		w.open()
		s.shops = append(s.shops, w.shop)
	}
	s.crowd = &crowd{m: w.market, addrs: s.addr, users: max(3*units, most/200), dice: rand.New(rand.NewPCG(seed, 3)), most: most}
	for _, it := range items {
		s.crowd.items = append(s.crowd.items, it.id)
	}
	s.chaos = &chaos{f: s.fleet, dice: rand.New(rand.NewPCG(seed, 4)), every: 400 * time.Millisecond, within: 200, counts: map[string]int{}}
	s.watch = newWatcher(w, time.Second, false)
	if short {
		s.chaos.hasten, s.chaos.every, s.chaos.within = true, 250*time.Millisecond, 20
		s.crowd.pace, s.clients = 200, fewClients
		s.watch.every, s.watch.whole = 250*time.Millisecond, true
	} else if most >= 100_000 {
		s.chaos.every = time.Second
	}
	return s
}

// run is the sale: the crowd, with trouble until it has asked for all it wants. Those who have no final answer by then
// get one while all is quiet.
func (s *soak) run() {
	s.Helper()
	s.began = time.Now()
	ctx, over := context.WithCancel(s.ctx)
	defer over()
	trouble, quiet := context.WithTimeout(ctx, max(troubleMost, time.Duration(s.most)*10*time.Millisecond))
	defer quiet()
	s.crowd.asked, s.crowd.more = quiet, func() bool { return !s.chaos.each.Load() && trouble.Err() == nil }
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.crowd.run(ctx, s.clients)
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch.run(ctx)
	}()
	defer func() { // it has looked once more when nothing is left to be done
		over()
		<-watched
	}()
	s.chaos.run(trouble)
	s.toRedis.Heal(s)
	s.toSQL.Heal(s)
	const most = 3 * time.Minute
	testserver.Eventually(s, most, func() bool {
		s.living()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, "every client has a final answer")
	s.took = time.Since(s.began)
	s.settle()
}

// again delivers a few orders three times, and tells whether it could.
func (f *fleet) again(n int) bool {
	var rows []seckillOrder
	err := f.db.Order("random()").Limit(n).Find(&rows).Error // SQL may be away
	return err == nil && len(rows) > 0 && f.deliver(rows) == nil
}

// settle waits until nothing is under way any more.
func (s *soak) settle() {
	s.Helper()
	since := time.Now()
	if s.chaos.hasten {
		s.age()
	}
	const most = 3 * time.Minute
	left := func() int64 {
		s.living()
		entries, err := s.backlog()
		s.must(err)
		holds, err := s.rdb.ZCard(s.ctx, s.setup.Prefix+"stock:deadlines").Result()
		s.must(err)
		return entries + holds
	}
	settled := func(what string) { // however much is left, it becomes less
		s.Helper()
		for n := left(); n > 0; {
			before := n
			testserver.Eventually(s, most, func() bool { n = left(); return n < before }, fmt.Sprintf("%s: %d are left", what, before))
		}
	}
	settled("every order has landed, and every hold has ended")
	letters, err := s.lander.DeadLetters().List(s.ctx, 1000)
	s.must(err)
	for _, letter := range letters {
		if s.dead++; letter.Fields["order"] != garbled {
			s.Errorf("a dead letter that nobody garbled: %v: %s", letter.Fields, letter.Error)
		}
		s.must(s.lander.DeadLetters().GiveUp(s.ctx, letter.ID))
	}
	s.again(1000)
	settled("what was delivered again changes nothing")
	s.settling = time.Since(since)
	// What the shops have opened they have closed: compared with one that was started just now.
	s.market.http.CloseIdleConnections()
	fresh, err := s.reopen()
	s.must(err)
	s.children = append(s.children, fresh)
	want := s.level(fresh.addr) + 30 // connections of clients and pools come and go
	for i, c := range s.shops {
		testserver.Eventually(s, most, func() bool { return s.level(c.addr) <= want }, fmt.Sprintf("the goroutines of shop %d have ended", i))
	}
}

// level returns how many goroutines a shop has.
func (s *soak) level(addr string) int {
	s.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, "http://"+addr+"/level", nil)
	s.must(err)
	res, err := s.market.http.Do(req)
	s.must(err)
	defer res.Body.Close()
	var n int
	_, err = fmt.Fscan(res.Body, &n)
	s.must(err)
	return n
}

// check judges the run.
func (s *soak) check() {
	s.Helper()
	since := time.Now()
	s.findings = s.judge()
	s.history = s.market.history()
	s.checked = time.Since(since)
	s.never = s.watch.judge()
	for i, f := range s.findings {
		if i == 20 {
			s.Errorf("and %d more", len(s.findings)-i)
			break
		}
		s.Error(f)
	}
	if s.Failed() {
		for i, c := range s.children {
			s.Logf("shop %d:\n%s", i+1, c.last())
		}
	}
}

// rare checks that all has come to pass that the run is to show: each trouble, and what comes of it.
func (s *soak) rare() {
	s.Helper()
	n := outcomes(s.history)
	reasons := map[string]int{}
	for _, r := range s.rows() {
		switch {
		case r.CloseReason != nil:
			reasons[*r.CloseReason]++
		case r.Status == paid:
			reasons["paid"]++
		}
	}
	seen := map[string]int{
		"sold out": n[string(fault.Insufficient)], "limit reached": n[string(fault.LimitReached)], "replayed": n[checker.Replayed],
		"no answer": n[checker.NoAnswer], "paid": reasons["paid"], "closed by a customer": reasons[string(stock.Operator)],
		"closed by the sweeper": reasons[string(stock.Unpaid)], "units seen to come back": s.watch.returned, "dead letters": s.dead,
		"late payments": s.crowd.late["pay of what is closed"],
	}
	if s.chaos.hasten {
		seen[takenOver] = s.chaos.counts[takenOver]
	}
	for _, t := range s.chaos.troubles() {
		seen[t.name] = s.chaos.counts[t.name]
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if seen[name] == 0 {
			s.Errorf("the run has not shown: %s", name)
		}
	}
}

// summary is the page that the run ends with.
func (s *soak) summary() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	rate := func(n int) string { return fmt.Sprintf("%9d  %8.0f/s", n, float64(n)/s.took.Seconds()) }
	per := map[int16]int{}
	reasons := map[string]int{}
	for _, r := range s.rows() {
		per[r.Status]++
		if r.CloseReason != nil {
			reasons[*r.CloseReason]++
		}
	}
	line("\nSoak: seed %d, %d items of %d units, %d users, %d clients, 2 shops, GOMAXPROCS %d", s.seed, len(s.crowd.items), s.units, s.crowd.users, s.clients, runtime.GOMAXPROCS(0))
	line("sale %.1fs, settling %.1fs, checking %.1fs", s.took.Seconds(), s.settling.Seconds(), s.checked.Seconds())
	var asked, others []checker.Record // for orders; to pay and to close
	for _, r := range s.history {
		switch r.Op {
		case checker.Deduct, "":
			asked = append(asked, r)
		case checker.Return: // nobody's question
		default:
			others = append(others, r)
		}
	}
	line("\n%-34s %s", "requests for orders", rate(len(asked)))
	n := outcomes(asked)
	for _, name := range slices.Sorted(maps.Keys(n)) {
		shown := name
		if name == checker.NoAnswer {
			shown = "no answer"
		}
		line("  %-32s %s", shown, rate(n[name]))
	}
	var took []time.Duration
	for i := range asked {
		took = append(took, asked[i].End.Sub(asked[i].Start))
	}
	slices.Sort(took)
	if len(took) > 0 {
		line("  time to an answer: median %v, p99 %v", took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond))
	}
	line("%-34s %s", "requests to pay and to close", rate(len(others)))
	line("%-34s %s", "orders landed in SQL", rate(per[unpaid]+per[paid]+per[closed]))
	line("  %-32s %9d", "paid", per[paid])
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		line("  %-32s %9d", "closed: "+name, reasons[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.crowd.late)) {
		line("%-34s %9d", name, s.crowd.late[name])
	}
	line("%-34s %9d", "units seen to come back", s.watch.returned)
	line("%-34s %9d", "closed before they had landed", s.never)
	line("%-34s %9d", "dead letters", s.dead)
	line("%-34s %9d", "looks at keys' TTLs", s.watch.sampled)
	line("\nfaults")
	for _, name := range slices.Sorted(maps.Keys(s.chaos.counts)) {
		line("  %-32s %9d", name, s.chaos.counts[name])
	}
	kinds := map[checker.Kind]int{}
	for _, f := range s.findings {
		kinds[f.Kind]++
	}
	line("\n%-34s %9d", "oversold", kinds[checker.Oversold]+kinds[checker.BelowZero]+kinds[checker.OverLimit])
	line("%-34s %9d", "doubled", kinds[checker.RequestRows]+kinds[checker.RequestOrders]+kinds[checker.RequestTwice]+kinds[checker.EndedTwice])
	line("%-34s %9d", "lost", kinds[checker.AcceptedLost]+kinds[checker.UnitsLost]+kinds[checker.CounterGone]+kinds[checker.RepeatRefused])
	line("%-34s %9d", "unsold that could have been sold", kinds[checker.FalseSoldOut]+kinds[checker.FalseLimit])
	line("%-34s %9d", "keys without TTL", kinds[checker.Eternal])
	line("%-34s %9d", "left to be done", kinds[checker.HoldOpen]+kinds[checker.ReturnOpen]+kinds[checker.StreamOpen]+kinds[checker.TransferOpen])
	line("%-34s %9d", "findings in all", len(s.findings))
	return b.String()
}
