package interop

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/middleware/interop/shopapi"
)

// generatedShop is the shop behind the generated server, on the router itself.
func generatedShop(r chi.Router, s *shop) {
	shopapi.HandlerFromMuxWithBaseURL(generated{s}, r, "/v1")
}

// generated implements what the generated server calls.
type generated struct{ shop *shop }

func (g generated) GetItem(w http.ResponseWriter, _ *http.Request, _, _ int64) {
	w.WriteHeader(http.StatusOK)
}

func (g generated) PlaceOrder(w http.ResponseWriter, r *http.Request, _, _ int64) {
	var in shopapi.NewOrder
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	id, err := g.shop.order(r.Context())
	if err != nil {
		http.Error(w, "no lock", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(shopapi.Order{Id: id, Units: in.Units}) // fails if the client has left
}
