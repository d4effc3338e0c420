package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

func (s *shop) routes() chi.Router {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.With(s.guard.Dedup("{userID}", holdfast.StillTrue(s.stands))).Post("/items/{itemID}/orders", s.buy)
	r.Get("/orders/{orderNo}", s.status)
	r.With(s.guard.Dedup("{userID}")).Post("/orders/{orderNo}/payments", s.pay)
	r.Delete("/orders/{orderNo}", s.cancel)
	return r
}

// buy answers as soon as Redis has decided. The order lands in SQL a moment later.
func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	user, err := currentUser(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	res, err := s.stock.Deduct(r.Context(), stock.Order{Item: chi.URLParam(r, "itemID"), Activity: activity, User: user, Units: 1})
	if err != nil {
		holdfast.WriteProblem(w, r, err) // sold out, limit reached, over: 409; Redis away, not warmed: 503
		return
	}
	w.Header().Set("Location", "/orders/"+res.Order)
	answer(w, http.StatusAccepted, map[string]any{"order": res.Order, "status": "accepted", "pay_before": time.Now().Add(s.payFor)})
}

// stands reports whether the success of a request is still one: an order that was closed must not be replayed as accepted.
func (s *shop) stands(ctx context.Context, requestID string) (bool, error) {
	var n int64
	err := s.db.WithContext(ctx).Model(&Order{}).Where("request_id = ? AND status = ?", requestID, closed).Count(&n).Error
	return n == 0, err
}

// status answers what became of an order. One that has not landed yet is told with Retry-After.
func (s *shop) status(w http.ResponseWriter, r *http.Request) {
	order, err := s.mine(r)
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	body := map[string]any{"order": order.OrderNo, "item": order.ItemID, "status": statusNames[order.Status]}
	if order.CloseReason != nil {
		body["reason"] = *order.CloseReason
	}
	answer(w, http.StatusOK, body)
}

// mine finds the user's order. landing.ErrNotLanded: there is none, or none yet, or it is somebody else's.
func (s *shop) mine(r *http.Request) (*Order, error) {
	user, err := currentUser(r)
	if err != nil {
		return nil, err
	}
	var order Order
	err = s.db.WithContext(r.Context()).Where("order_no = ? AND user_id = ?", chi.URLParam(r, "orderNo"), user).Take(&order).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, landing.ErrNotLanded
	}
	return &order, err
}

// pay takes the money for an order that is still unpaid: its row and the payment's are one transaction.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	order, err := s.mine(r)
	if err == nil {
		err = s.lander.Pay(r.Context(), order.OrderNo, func(tx *gorm.DB) error {
			first, err := gormplugin.InsertOnce(tx, &Payment{OrderNo: order.OrderNo})
			if err == nil && !first {
				err = dedup.ErrMismatch // this payment was used for another order
			}
			return err
		})
	}
	switch {
	case err == nil:
		answer(w, http.StatusCreated, map[string]any{"order": order.OrderNo, "status": "paid"})
	case errors.Is(err, landing.ErrAlreadyPaid), errors.Is(err, landing.ErrClosed):
		s.late(w, r, order)
	default:
		holdfast.WriteProblem(w, r, err)
	}
}

// late notes that a payment goes back, unless an earlier try of the same request has paid: then its row is there.
func (s *shop) late(w http.ResponseWriter, r *http.Request, order *Order) {
	payment := Payment{OrderNo: order.OrderNo, Refunded: true}
	_, err := gormplugin.InsertOnce(s.db.WithContext(r.Context()), &payment)
	if err == nil && payment.OrderNo != order.OrderNo {
		err = dedup.ErrMismatch
	}
	switch {
	case err != nil:
		holdfast.WriteProblem(w, r, err)
	case payment.Refunded:
		answer(w, http.StatusConflict, map[string]any{"order": order.OrderNo, "status": "refunded"})
	default:
		answer(w, http.StatusCreated, map[string]any{"order": order.OrderNo, "status": "paid"})
	}
}

// cancel closes an order that is not paid.
func (s *shop) cancel(w http.ResponseWriter, r *http.Request) {
	order, err := s.mine(r)
	if err == nil {
		err = s.lander.Close(r.Context(), order.OrderNo, stock.Operator)
	}
	if err != nil && !errors.Is(err, landing.ErrClosed) { // closed before: what was wanted
		holdfast.WriteProblem(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"order": order.OrderNo, "status": "closed"})
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}
