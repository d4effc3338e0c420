package gormplugin

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// soldOut remembers which questions a table has last answered with "not enough" or "too full". A statement that asks one of
// them again reads the row before it writes: most likely it would hit nothing and be followed by that same SELECT, so a row
// that is sold out costs one round trip instead of two. What is remembered decides only what is sent first, never the
// answer: that is always read from the database, and whatever fits is written by the guarded statement as ever.
//
// It is remembered for soldOutFor after a write was refused, not after a read was: a proxy may send a read to a replica, and
// one that lags must not refuse for longer than that what its source would sell.
//
// Fixed in size: two questions that share a slot forget each other.
type soldOut struct {
	ever  atomic.Bool // a table that never refused costs its statements nothing
	slots [256]soldOutSlot
}

type soldOutSlot struct {
	question atomic.Uint64 // fingerprint, 0 for none, ^fingerprint for one that is about several rows
	refused  atomic.Int64  // when a write was last refused, in nanoseconds of the plugin's life
}

// soldOutFor is how long a refusal is remembered.
const soldOutFor = time.Second

func (s *soldOut) slot(question uint64) *soldOutSlot {
	return &s.slots[question%uint64(len(s.slots))]
}

func (s *soldOut) knows(question uint64, now time.Duration) bool {
	slot := s.slot(question)
	return slot.question.Load() == question && now-time.Duration(slot.refused.Load()) < soldOutFor
}

func (s *soldOut) fitted(question uint64) { s.slot(question).question.CompareAndSwap(question, 0) }

func (s *soldOut) refused(question uint64, now time.Duration) {
	s.ever.Store(true)
	if slot := s.slot(question); slot.question.Load() != ^question {
		slot.refused.Store(int64(now))
		slot.question.Store(question)
	}
}

// severalRows notes that a question is about more than one row, which one read cannot answer.
func (s *soldOut) severalRows(question uint64) { s.slot(question).question.Store(^question) }

// askFirst reads the row of a statement whose question was refused the last time. It reports whether the statement may go
// on; else the refusal, with the numbers that were read, is its error.
//
// Outside a transaction a read sees what a write would find. In one that holds on PostgreSQL alone: MySQL would have to
// lock the row for reading, and two who then want to write it deadlock; on SQLite a transaction that reads before it
// writes may not write any more.
func (o *operation) askFirst(db *gorm.DB) bool {
	switch {
	case o.table.soldOut == nil || !o.table.soldOut.ever.Load():
		return true
	case o.verb != verbUpdate || !o.rewrote || o.expects || o.save || o.p.shadow || db.DryRun:
		return true
	case inTransaction(o.stmt.ConnPool) && o.dialect != dialectPostgres:
		return true
	}
	question := o.fingerprint()
	if question == 0 || !o.table.soldOut.knows(question, o.p.age()) {
		return true
	}
	rows, err := o.look(db, false, 2)
	switch {
	case err == nil && len(rows) > 1:
		o.table.soldOut.severalRows(question)
	case err == nil:
		if _, refusal := o.judgeRows(db, rows); refusal != nil {
			o.insist(refusal)
			return false
		}
		o.table.soldOut.fitted(question)
	case inTransaction(o.stmt.ConnPool): // PostgreSQL takes nothing more in it
		o.fail(err)
		return false
	}
	return true // and the statement itself meets the trouble that the read had, or does not
}

// remember notes a refusal that the next statement with the same question should look for first.
func (o *operation) remember(refusal *Error) {
	if o.table.soldOut == nil || refusal.reason != "below_min" && refusal.reason != "above_max" {
		return
	}
	if question := o.fingerprint(); question != 0 {
		o.table.soldOut.refused(question, o.p.age())
	}
}

// fingerprint identifies what a statement asks of which row: its bounds with their amounts, and its own WHERE. It is 0 for a
// statement without bounds, and for a WHERE that is more than names and plain values.
func (o *operation) fingerprint() uint64 {
	var h maphash.Hash
	h.SetSeed(o.p.seed)
	bounds := false
	for i := range o.checks {
		c := &o.checks[i]
		if c.kind != checkMin && c.kind != checkMax {
			continue
		}
		bounds = true
		_ = h.WriteByte(byte(c.kind))
		hashText(&h, c.column.name)
		hashText(&h, c.n.text)
		hashInt(&h, c.n.i)
	}
	w, plain := o.where.Expression.(clause.Where)
	if !bounds || !plain || !hashAll(&h, w.Exprs) {
		return 0
	}
	return h.Sum64() | 1 // never 0
}

func hashAll(h *maphash.Hash, exprs []clause.Expression) bool {
	for _, e := range exprs {
		switch e := e.(type) {
		case clause.Eq:
			if !hashValue(h, e.Column) || !hashValue(h, e.Value) {
				return false
			}
		case clause.Expr:
			hashText(h, e.SQL)
			for _, v := range e.Vars {
				if !hashValue(h, v) {
					return false
				}
			}
		case clause.AndConditions:
			hashInt(h, int64(len(e.Exprs)))
			if !hashAll(h, e.Exprs) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func hashValue(h *maphash.Hash, v any) bool {
	switch v := v.(type) {
	case nil:
		hashText(h, "nil")
	case string:
		hashText(h, v)
	case clause.Column:
		hashText(h, v.Table)
		hashText(h, v.Name)
		return !v.Raw
	case int:
		hashInt(h, int64(v))
	case int64:
		hashInt(h, v)
	case int32:
		hashInt(h, int64(v))
	case uint:
		hashInt(h, int64(v))
	case uint64:
		hashInt(h, int64(v))
	case uint32:
		hashInt(h, int64(v))
	default:
		return false
	}
	return true
}

func hashText(h *maphash.Hash, s string) {
	hashInt(h, int64(len(s)))
	_, _ = h.WriteString(s)
}

func hashInt(h *maphash.Hash, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	_, _ = h.Write(b[:])
}
