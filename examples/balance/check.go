package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
)

// books are what lies in SQL.
type books struct {
	accounts       []Account
	received, sent map[int64]int64 // by the ledger
	transfers      int64
	entries        int64
	operations     int64 // different ones
}

func (b *bank) read(ctx context.Context) (*books, error) {
	r := &books{received: map[int64]int64{}, sent: map[int64]int64{}}
	db := b.DB.WithContext(ctx)
	var ledger []Entry
	for _, err := range []error{
		db.Order("id").Find(&r.accounts).Error,
		db.Find(&ledger).Error,
		db.Model(&Transfer{}).Count(&r.transfers).Error,
		db.Model(&Entry{}).Distinct("operation_id").Count(&r.operations).Error,
	} {
		if err != nil {
			return nil, err
		}
	}
	r.entries = int64(len(ledger))
	for _, e := range ledger {
		if e.Cents < 0 {
			r.sent[e.AccountID] -= e.Cents
		} else {
			r.received[e.AccountID] += e.Cents
		}
	}
	return r, nil
}

// check judges by what lies in the database.
func check(c config, h *history, b *books, refused error, immortal []string) error {
	var must stores.Check
	must.Must(len(immortal) == 0, "keys without a TTL: %v", immortal)
	for _, err := range h.unlikely {
		must.Must(false, "%w", err)
	}
	var total int64
	for _, a := range b.accounts {
		total += a.Cents
		must.Must(a.Cents >= 0, "account %d has %d", a.ID, a.Cents)
		must.Must(a.Cents == c.opening+b.received[a.ID]-b.sent[a.ID], "account %d has %d, the ledger says %d",
			a.ID, a.Cents, c.opening+b.received[a.ID]-b.sent[a.ID])
		must.Must(b.sent[a.ID] <= c.limit, "account %d sent %d, its limit is %d", a.ID, b.sent[a.ID], c.limit)
	}
	must.Must(total == int64(len(b.accounts))*c.opening, "there were %d cents, now there are %d", int64(len(b.accounts))*c.opening, total)
	must.Must(b.operations == b.entries, "%d ledger rows have %d operation ids", b.entries, b.operations)
	must.Must(b.entries == 2*b.transfers, "%d transfers have %d ledger rows", b.transfers, b.entries)
	must.Must(int64(h.made)+1 == b.transfers, "clients were told of %d transfers, and the second holder made one; SQL has %d", h.made, b.transfers)
	must.Must(errors.Is(refused, gormplugin.ErrStaleFence), "who had lost the lock wrote: %v", refused)
	return must.Err()
}
