package gormplugin

import (
	"database/sql"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"gorm.io/gorm"
)

// txState is what the plugin remembers of one transaction.
type txState struct {
	mu       sync.Mutex
	cause    error    // what ended it, or on PostgreSQL may have, up to the last savepoint
	repeats  bool     // it is one of Retry, which may run it again
	inserted bool     // an InsertOnce in it inserted its row, and no savepoint undid it, so a repeat can tell whether this one landed
	resolved bool     // an InsertOnce in it inserted or found its row, so it is known whether an earlier one landed
	undo     []func() // puts models in memory back

	savepoints []savepoint
}

// savepoint is one that the transaction has set, and what inserted was then.
type savepoint struct {
	name     string
	inserted bool
}

// transactions finds the state of a transaction by its *sql.Tx, whatever sessions and contexts were made on top of it. The
// key is weak, and the state goes with the transaction. The zero value is ready.
type transactions struct{ m sync.Map } // weak.Pointer[sql.Tx] -> *txState

// of returns the state of the transaction that pool is, or nil where pool is none, or one that cannot be known again.
func (t *transactions) of(pool gorm.ConnPool) *txState {
	tx := sqlTx(pool)
	if tx == nil {
		return nil
	}
	key := weak.Make(tx)
	if s, ok := t.m.Load(key); ok {
		return s.(*txState)
	}
	s, there := t.m.LoadOrStore(key, &txState{})
	if !there {
		runtime.AddCleanup(tx, func(key weak.Pointer[sql.Tx]) { t.m.Delete(key) }, key)
	}
	return s.(*txState)
}

// known is of without making one.
func (t *transactions) known(pool gorm.ConnPool) *txState {
	if tx := sqlTx(pool); tx != nil {
		if s, ok := t.m.Load(weak.Make(tx)); ok {
			return s.(*txState)
		}
	}
	return nil
}

func sqlTx(pool gorm.ConnPool) *sql.Tx {
	switch p := pool.(type) {
	case *sql.Tx:
		return p
	case *gorm.PreparedStmtTX:
		tx, _ := p.Tx.(*sql.Tx)
		return tx
	}
	return nil
}

// inTransaction reports whether pool is a transaction, gorm's own or the caller's.
func inTransaction(pool gorm.ConnPool) bool {
	_, ok := pool.(gorm.TxCommitter)
	return ok
}

// begin makes the state of a transaction of Retry, which calls the returned function at its end.
func (t *transactions) begin(pool gorm.ConnPool) (s *txState, forget func()) {
	s = &txState{repeats: true}
	tx := sqlTx(pool)
	if tx == nil {
		return s, func() {}
	}
	key := weak.Make(tx)
	t.m.Store(key, s)
	return s, func() { t.m.Delete(key) }
}

// onRollback hands undo to the Retry that pool's transaction belongs to: when it rolls back, undo puts back a model that a
// statement changed in memory, so that the repeat starts from what the first attempt had. Elsewhere it does nothing.
func (t *transactions) onRollback(pool gorm.ConnPool, undo func()) {
	if s := t.known(pool); s != nil && s.repeats {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.undo = append(s.undo, undo)
	}
}

// putBack undoes what statements changed in memory, the last first.
func (s *txState) putBack() {
	s.mu.Lock()
	undo := s.undo
	s.undo = nil
	s.mu.Unlock()
	for _, f := range slices.Backward(undo) {
		f()
	}
}

// once notes what an InsertOnce found.
func (s *txState) once(inserted bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inserted = s.inserted || inserted
	s.resolved = true
}

// heard follows the savepoints of a transaction of Retry, by the SQL that gorm's Transaction and SavePoint send: a row that
// is rolled back to one is not there, and a repeat could not tell by it whether this attempt landed.
func (s *txState) heard(sql string) {
	const verb = len("SAVEPOINT")
	if s == nil || !s.repeats || len(sql) < verb || !strings.EqualFold(sql[:verb], "SAVEPOINT") && !strings.EqualFold(sql[:verb], "ROLLBACK ") {
		return
	}
	words := strings.Fields(strings.TrimRight(sql, "; "))
	name := words[len(words)-1]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.EqualFold(words[0], "SAVEPOINT"):
		s.savepoints = append(s.savepoints, savepoint{name, s.inserted})
	default:
		i := len(s.savepoints) - 1
		for i >= 0 && s.savepoints[i].name != name {
			i--
		}
		s.inserted = i >= 0 && s.savepoints[i].inserted
		s.savepoints = s.savepoints[:i+1]
	}
}

func (s *txState) onceSaw() (inserted, resolved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inserted, s.resolved
}

// end keeps err as the reason why the transaction is over. Of several the last counts: after the one that ended it there
// are only answers of class deadTx, which are never kept, and one before it was undone by a savepoint.
func (s *txState) end(err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause = err
}

func (s *txState) ended() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}
