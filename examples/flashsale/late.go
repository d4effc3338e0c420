package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
)

// latePolicy says what becomes of a payment for an order that was closed, whose unit may be somebody else's by now. There
// is no default in the code: a shop that takes payments chooses one.
type latePolicy func(s *shop, w http.ResponseWriter, r *http.Request, order *SeckillOrder)

// latePolicies by name. A time of grace is not among them, since it is no answer to a late payment: with -grace the hold
// simply lasts longer than the customer is told.
var latePolicies = map[string]latePolicy{"refund": (*shop).refund, "again": (*shop).sellAgain}

func latePolicyOf(name string) (latePolicy, error) {
	p, ok := latePolicies[name]
	if !ok {
		return nil, fmt.Errorf("-late is refund or again, not %q", name)
	}
	return p, nil
}

// refund notes that the payment goes back: 409, with the reason in the body.
func (s *shop) refund(w http.ResponseWriter, r *http.Request, order *SeckillOrder) {
	_, err := gormplugin.InsertOnce(s.DB.WithContext(r.Context()), &Payment{OrderNo: order.OrderNo, Refunded: true})
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	answer(w, http.StatusConflict, map[string]any{"order": order.OrderNo, "payment": "refunded"})
}

// sellAgain sells the user another unit if there is one, under the payment's own request id, and pays for it at once; else
// it refunds. A unit never has two owners: the new order takes its own.
func (s *shop) sellAgain(w http.ResponseWriter, r *http.Request, order *SeckillOrder) {
	ctx := r.Context()
	var back int64
	err := s.DB.WithContext(ctx).Model(&Payment{}).Where("request_id = ? AND refunded", dedup.FromContext(ctx).RequestID()).Count(&back).Error
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	if back > 0 { // an earlier try of this request was told so
		s.refund(w, r, order)
		return
	}
	no, err := s.buyOnce(ctx, purchase{user: order.UserID, item: order.ItemID, units: order.Units})
	if err == nil {
		err = s.lander.Pay(ctx, no, taken(no))
		if errors.Is(err, landing.ErrAlreadyPaid) && s.paidBy(ctx, no) { // by an earlier try of this request
			err = nil
		}
	}
	switch p := holdfast.Describe(err); {
	case err == nil:
		answer(w, http.StatusCreated, map[string]any{"order": no, "status": "paid", "instead_of": order.OrderNo})
	case p.Status == http.StatusConflict && !p.Retryable: // sold out, at the limit, over
		s.refund(w, r, order)
	default:
		holdfast.WriteProblem(w, r, err)
	}
}
