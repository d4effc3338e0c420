package gormplugin

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"

	"gorm.io/gorm"
)

// txState is what the plugin remembers of one transaction.
type txState struct {
	mu       sync.Mutex
	cause    error    // what ended it, or on PostgreSQL may have, up to the last savepoint
	inserted bool     // an InsertOnce in it inserted its row
	repeats  bool     // it is one of Retry, which may run it again
	undo     []func() // puts models in memory back, for the repeat
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

// onRepeat hands undo to the Retry that pool's transaction belongs to: before it runs fn again, undo puts back a model that
// a statement changed in memory. Elsewhere it does nothing.
func (t *transactions) onRepeat(pool gorm.ConnPool, undo func()) {
	s := t.known(pool)
	if s == nil || !s.repeats {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo = append(s.undo, undo)
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
