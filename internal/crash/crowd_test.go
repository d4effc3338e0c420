package crash

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/checker"
	"github.com/holdfast-go/holdfast/internal/fault"
)

// crowd is many clients who want many things, come again when there was no final answer, and sometimes when there was.
type crowd struct {
	m     *market
	addrs func() string // a shop to ask
	users int64
	items []int64
	most  int64       // requests for orders, or more
	more  func() bool // tells whether it is to go on asking although it has asked that often
	asked func()      // called when all of them have been made; may be called again
	pace  float64     // new wishes a second, 0: as fast as can be

	mu    sync.Mutex
	dice  *rand.Rand
	later jobs
	busy  int // jobs in hand
	made  int64
	began time.Time
	late  map[string]int // answers to those who pay or close what has ended already
}

// wants tells whether there is more to be asked.
func (c *crowd) wants() bool { return c.m.asked.Load() < c.most || c.more() }

// job is something to do at a time: to ask for the wish, or to end an order.
type job struct {
	wish
	at    time.Time
	tries int
	hasty time.Duration // how long the client waits for the first answer, 0: long
	order string
	how   string // "pay" or "close" the order; empty: ask for the wish
}

// run has n clients at work until everybody has a final answer.
func (c *crowd) run(ctx context.Context, n int) {
	c.began, c.late = time.Now(), map[string]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				j, wait, over := c.next()
				switch {
				case over:
					return
				case wait > 0:
					pause(wait)
				default:
					c.do(ctx, j)
				}
			}
		})
	}
	all.Wait()
}

// next returns what is due, or else a new wish. over says that there will be nothing more.
func (c *crowd) next() (j job, wait time.Duration, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.later) > 0 && !c.later[0].at.After(now) {
		c.busy++
		return heap.Pop(&c.later).(job), 0, false
	}
	if c.wants() {
		if c.pace > 0 && float64(c.made) > c.pace*now.Sub(c.began).Seconds() {
			return job{}, 50 * time.Millisecond, false
		}
		c.busy++
		c.made++
		// Items are not equally wanted: a third of the wishes are for a tenth of them.
		among := len(c.items)
		if c.dice.IntN(3) == 0 {
			among = max(1, among/10)
		}
		w := wish{key: fmt.Sprint("k", c.made), user: 1 + c.dice.Int64N(c.users), item: c.items[c.dice.IntN(among)]}
		if c.dice.IntN(25) == 0 { // sent twice at the same time
			heap.Push(&c.later, job{wish: w, at: now})
		}
		j := job{wish: w}
		if c.dice.IntN(50) == 0 {
			j.hasty = time.Duration(1+c.dice.IntN(5)) * time.Millisecond
		}
		return j, 0, false
	}
	c.asked()
	if len(c.later) == 0 && c.busy == 0 {
		return job{}, 0, true
	}
	wait = 50 * time.Millisecond // somebody else's job may have consequences
	if len(c.later) > 0 {
		wait = min(wait, c.later[0].at.Sub(now))
	}
	return job{}, wait, false
}

// do does a job, and notes what follows from it.
func (c *crowd) do(ctx context.Context, j job) {
	var a answer
	if j.hasty > 0 { // a client who does not wait for the answer
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, j.hasty)
		defer cancel()
	}
	if j.how != "" {
		a = c.m.end(ctx, c.addrs(), j.order, j.how)
	} else {
		a = c.m.buy(ctx, c.addrs(), j.wish)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	again := func(d time.Duration) {
		j.at = time.Now().Add(d)
		j.tries++
		heap.Push(&c.later, j)
	}
	j.hasty = 0
	backOff := min(50*time.Millisecond<<min(j.tries, 7), 5*time.Second)
	switch {
	case j.how != "":
		// Paid, closed, or by somebody else first. Without an answer it is asked again, for a while: the sweeper does the rest.
		switch {
		case a.status == 200:
			if j.how == "close" && c.dice.IntN(3) == 0 { // the payment was under way already
				heap.Push(&c.later, job{order: j.order, how: "pay", at: time.Now()})
			}
		case a.code == string(fault.AlreadyReleased), a.code == string(fault.AlreadyConfirmed):
			c.late[j.how+" of what is "+map[bool]string{true: "closed", false: "paid"}[a.code == string(fault.AlreadyReleased)]]++
		case j.tries < 12:
			again(backOff)
		}
	case a.code == string(fault.InFlight): // by a shop that has died, perhaps: then its lease has to end
		again(10 * time.Second)
	case !a.final():
		again(backOff)
	case a.ok() && j.tries < 100: // the first success: the order is paid, closed, or left to its fate
		end := job{order: a.order, at: time.Now().Add(time.Duration(c.dice.IntN(2000)) * time.Millisecond)}
		switch n := c.dice.IntN(10); {
		case n < 6:
			end.how = "pay"
		case n < 7:
			end.how = "close"
		case n < 8: // so late that the sweeper may have been there
			end.how, end.at = "pay", end.at.Add(2500*time.Millisecond)
		}
		if end.how != "" {
			heap.Push(&c.later, end)
		}
		fallthrough
	default:
		if c.dice.IntN(4) == 0 && c.wants() { // comes again although it has an answer
			j.tries = 100
			again(time.Duration(c.dice.IntN(3000)) * time.Millisecond)
		}
	}
}

// jobs is a heap by time.
type jobs []job

func (j jobs) Len() int           { return len(j) }
func (j jobs) Less(a, b int) bool { return j[a].at.Before(j[b].at) }
func (j jobs) Swap(a, b int)      { j[a], j[b] = j[b], j[a] }
func (j *jobs) Push(x any)        { *j = append(*j, x.(job)) }
func (j *jobs) Pop() any {
	old := *j
	last := old[len(old)-1]
	*j = old[:len(old)-1]
	return last
}

// outcomes counts the answers.
func outcomes(recs []checker.Record) map[string]int {
	n := map[string]int{}
	for i := range recs {
		n[recs[i].Outcome]++
	}
	return n
}
