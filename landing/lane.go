package landing

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// firstID is below every entry's id: where a search through a stream begins.
const firstID = "0-0"

// message is one entry of the stream.
type message struct {
	id      string
	entry   stock.Entry
	fault   error     // the entry cannot be read, or is to be buried for another reason
	unheard bool      // it may be buried already
	claimed bool      // it comes from another worker, which may have died of it
	tries   int64     // made so far, with the one under way
	due     time.Time // when it is tried again
	waits   int       // how often this lane has postponed it
	alone   bool      // it has failed, so it is landed by itself
	doubted bool      // SQL has refused it in words that do not say whose fault it is; since then
	since   uint64    // counts what lane.landed was
}

// lane is one worker on one stream.
type lane struct {
	e                  *engine
	stream, dead, name string
	own                string // not empty: a reply was lost, and behind this id entries may lie with this consumer that it has not seen
	cursor             string
	claimAt            time.Time
	later              map[string]*message // to be tried again, by id
	hand               hand                // those and the ones that are being landed
	locked             map[string]*lock    // items that are put off, since somebody keeps their rows locked
	landed             uint64              // how many transactions of this lane have landed something
	stalled            bool                // an order was put off, and none has landed since
}

func newLane(e *engine, stream, name string) *lane {
	return &lane{
		e: e, stream: stream, dead: deadKey(stream), name: name, cursor: firstID,
		later: map[string]*message{}, locked: map[string]*lock{},
	}
}

func (l *lane) run(ctx context.Context) {
	work, cancel := graced(ctx, grace)
	defer cancel()
	defer l.leave(ctx)
	defer l.keep(ctx)()
	idle, away := time.Millisecond, 100*time.Millisecond
	for ctx.Err() == nil {
		if l.stalled && len(l.later) >= mostLater { // what is read now would only be put off too
			sleep(ctx, jitter(l.e.pace.awayMost))
		}
		l.stalled = false
		l.hand.only(l.later)
		l.again(ctx, work)
		batch, err := l.take(ctx, mostBatch)
		if err != nil && ctx.Err() == nil {
			l.e.tel.warn(ctx, "cannot read the stream, will try again", err)
			sleep(ctx, jitter(away))
			away = min(2*away, l.e.pace.awayMost)
			continue
		}
		away = 100 * time.Millisecond
		if len(batch) == 0 {
			sleep(ctx, jitter(idle))
			idle = min(2*idle, l.e.pace.idleMost)
			continue
		}
		idle = time.Millisecond
		if len(batch) < mostBatch && sleep(ctx, l.e.pace.gather) {
			if more, err := l.take(ctx, mostBatch-len(batch)); err == nil {
				batch = append(batch, more...)
			}
		}
		l.handle(ctx, work, batch)
	}
}

// take reads up to most entries: those that a lost reply has left with this consumer, those of dead ones, new ones.
func (l *lane) take(ctx context.Context, most int) ([]*message, error) {
	claimAfter, own := int64(0), l.own
	if now := time.Now(); now.After(l.claimAt) {
		claimAfter = l.e.pace.claimAfter.Milliseconds()
		l.claimAt = now.Add(l.e.pace.claimAfter / 4)
	}
	l.own = firstID // until the reply is here
	a, sent, err := l.e.run(ctx, l.e.scripts.take, []string{l.stream, l.dead}, group, l.name, most, own, claimAfter, l.cursor, "1")
	if err != nil {
		return nil, err
	}
	if sent == 1 {
		l.own = a.text(4)
	}
	l.e.tel.looked(ctx, l.stream, a.int(1), time.Duration(a.int(2))*time.Millisecond)
	if claimAfter > 0 {
		l.cursor = a.text(3)
	}
	var batch []*message
	for _, raw := range a[5:] {
		m := read(raw)
		if l.hand.add(m.id) {
			batch = append(batch, m)
		}
	}
	return batch, nil
}

// read reads {id, kind, tries, field, value...}.
func read(raw any) *message {
	list, _ := raw.([]any)
	a := answer(list)
	m := &message{id: a.text(0), claimed: a.text(1) == "claimed", tries: a.int(2)}
	m.entry, m.fault = parseFields(a)
	return m
}

func parseFields(a answer) (stock.Entry, error) {
	fields := make(map[string]any, len(a)/2)
	for i := 3; i+1 < len(a); i += 2 {
		fields[a.text(i)] = a[i+1]
	}
	return stock.ParseEntry(fields)
}

// handle lands a batch. What came from another worker is landed by itself, since that one may have died of it. Orders of items
// that are locked wait with those that wait already.
func (l *lane) handle(ctx, work context.Context, batch []*message) {
	var together []*message
	for _, m := range batch {
		switch {
		case m.fault != nil:
			l.bury(work, nil, m, m.fault)
		case l.locked[m.entry.Item] != nil:
			l.wait(m)
		case m.claimed:
			l.suspect(ctx, work, m)
		default:
			together = append(together, m)
		}
	}
	for part := range slices.Chunk(together, mostBatch) { // more than one after a lost reply
		l.land(ctx, work, part)
	}
}

// suspect lands an entry of another worker, after it has counted that one's try: should this worker die of it too, the next
// one knows. A worker that leaves in good order takes its try back.
func (l *lane) suspect(ctx, work context.Context, m *message) {
	if ctx.Err() != nil {
		return
	}
	tries, err := l.tried(work, 1, m)
	switch {
	case err != nil:
		l.postpone(m)
	case tries[0] == 0: // somebody has finished it
	case tries[0] > mostTries:
		m.tries = tries[0] - 1
		l.bury(work, nil, m, fail(ErrInvalid, "the workers that had it in hand have died"))
	default:
		m.tries = tries[0]
		l.land(ctx, work, []*message{m})
	}
}

// again tries those again that are due.
func (l *lane) again(ctx, work context.Context) {
	if len(l.later) == 0 {
		return
	}
	var due []*message
	now := time.Now()
	for _, m := range l.later {
		if k := l.locked[m.entry.Item]; k != nil && k.until.After(now) {
			continue // another one of its item has asked meanwhile
		}
		if !m.due.After(now) {
			due = append(due, m)
		}
	}
	slices.SortFunc(due, func(a, b *message) int { return cmp.Or(a.due.Compare(b.due), strings.Compare(a.id, b.id)) })
	due = due[:min(len(due), mostBatch)] // new ones have their turn
	var parts [][]*message
	var locked, together []*message
	for _, m := range due {
		delete(l.later, m.id)
		switch {
		case m.fault != nil:
			l.bury(work, nil, m, m.fault)
		case l.locked[m.entry.Item] != nil:
			locked = append(locked, m)
		case m.alone || m.claimed:
			parts = append(parts, []*message{m})
		default:
			together = append(together, m)
		}
	}
	for _, part := range append(parts, together, locked) {
		if len(part) > 0 && ctx.Err() == nil {
			l.land(ctx, work, part)
		}
	}
}

// postpone has an entry tried again by itself after a while; how often it was tried does not change.
func (l *lane) postpone(m *message) {
	m.due = time.Now().Add(jitter(l.e.pace.backoff(m.waits)))
	m.waits++
	m.alone = true
	l.later[m.id] = m
	l.stalled = true
}

// backoff is the pause before an entry is tried again that was put off some times before.
func (p *pace) backoff(before int) time.Duration {
	wait := p.retryFirst
	for range min(before, 6) {
		wait = min(4*wait, p.claimAfter/2)
	}
	return wait
}

// tried counts a try of each entry more than this worker knows of, or none, and keeps the entries with this worker.
func (l *lane) tried(ctx context.Context, add int64, ms ...*message) ([]int64, error) {
	args := []any{group, l.name}
	for _, m := range ms {
		if add == 0 {
			args = append(args, m.id, 0)
		} else {
			args = append(args, m.id, m.tries+add)
		}
	}
	a, _, err := l.e.run(ctx, l.e.scripts.tried, []string{l.stream}, args...)
	if err != nil {
		return nil, err
	}
	tries := make([]int64, len(ms))
	for i := range ms {
		tries[i] = a.int(i + 1)
	}
	return tries, nil
}

// leave hands what is not finished to the next worker.
func (l *lane) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for from := firstID; from != ""; {
		a, _, err := l.e.run(ctx, l.e.scripts.leave, []string{l.stream}, group, l.name, l.e.pace.claimAfter.Milliseconds(), from)
		if err != nil {
			l.e.tel.warn(ctx, "cannot hand the rest to other workers, which will take it after a while", err)
			return
		}
		from = a.text(2)
	}
}

// jitter returns a duration between a half and the whole of d.
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}
