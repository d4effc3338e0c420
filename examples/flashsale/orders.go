package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

var statusNames = map[int16]string{unpaid: "unpaid", paid: "paid", closed: "closed"}

// mine finds a user's order; ErrNotLanded if there is none, or none yet, or none of this user.
func (s *shop) mine(r *http.Request, column, value string) (*SeckillOrder, error) {
	user, err := currentUser(r)
	if err != nil {
		return nil, err
	}
	var order SeckillOrder
	err = s.DB.WithContext(r.Context()).Where(column+" = ? AND user_id = ?", value, user).Take(&order).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, landing.ErrNotLanded
	}
	return &order, err
}

// statusOf answers what became of a request.
func (s *shop) statusOf(w http.ResponseWriter, r *http.Request) {
	order, err := s.mine(r, "request_id", chi.URLParam(r, "requestID"))
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	body := map[string]any{"order": order.OrderNo, "status": statusNames[order.Status]}
	if order.CloseReason != nil {
		body["reason"] = *order.CloseReason
	}
	answer(w, http.StatusOK, body)
}

// stands reports whether a request's order is not closed: one that is must not be answered with its first success again.
func (s *shop) stands(ctx context.Context, requestID string) (bool, error) {
	var n int64
	err := s.DB.WithContext(ctx).Model(&SeckillOrder{}).Where("request_id = ? AND status = ?", requestID, closed).Count(&n).Error
	return n == 0, err
}

// pay takes a payment for an order. Either the order is paid and keeps its unit, or the payment is late, and the policy
// says what becomes of it. The payment's row and the order's change are one transaction.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	order, err := s.mine(r, "order_no", chi.URLParam(r, "orderNo"))
	if err == nil {
		err = s.lander.Pay(ctx, order.OrderNo, taken(order.OrderNo))
	}
	switch {
	case err == nil:
		answer(w, http.StatusCreated, map[string]any{"order": order.OrderNo, "status": "paid"})
	case errors.Is(err, landing.ErrAlreadyPaid) && s.paidBy(ctx, order.OrderNo): // by an earlier try of this request
		answer(w, http.StatusCreated, map[string]any{"order": order.OrderNo, "status": "paid"})
	case errors.Is(err, landing.ErrAlreadyPaid), errors.Is(err, errUsed):
		s.refund(w, r, order)
	case errors.Is(err, landing.ErrClosed):
		s.late(s, w, r, order)
	default:
		holdfast.WriteProblem(w, r, err)
	}
}

var errUsed = errors.New("this payment went back, or to another order")

// taken writes the payment of this request beside the order's change.
func taken(orderNo string) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		p := Payment{OrderNo: orderNo}
		first, err := gormplugin.InsertOnce(tx, &p)
		if err == nil && !first && (p.Refunded || p.OrderNo != orderNo) {
			return errUsed
		}
		return err
	}
}

// paidBy reports whether this request's payment was taken for the order before.
func (s *shop) paidBy(ctx context.Context, orderNo string) bool {
	var n int64
	err := s.DB.WithContext(ctx).Model(&Payment{}).
		Where("request_id = ? AND order_no = ? AND NOT refunded", dedup.FromContext(ctx).RequestID(), orderNo).Count(&n).Error
	return err == nil && n > 0
}

// cancel closes an order that its user does not want any more.
func (s *shop) cancel(w http.ResponseWriter, r *http.Request) {
	order, err := s.mine(r, "order_no", chi.URLParam(r, "orderNo"))
	if err == nil {
		err = s.lander.Close(r.Context(), order.OrderNo, stock.Operator)
	}
	if err != nil && !errors.Is(err, landing.ErrClosed) { // closed before: what was wanted
		holdfast.WriteProblem(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"order": order.OrderNo, "status": "closed"})
}
