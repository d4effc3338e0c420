package interop

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
)

type newOrder struct {
	ShopID int64 `path:"shopID"`
	ItemID int64 `path:"itemID"`
	Body   struct {
		Units int64 `json:"units" minimum:"1"`
	}
}

type placedOrder struct {
	Body struct {
		ID    int64 `json:"id"`
		Units int64 `json:"units"`
	}
}

// humaShop is the shop as an API of huma's, on a sub-router.
func humaShop(r chi.Router, s *shop) {
	r.Route("/v1", func(r chi.Router) {
		api := humachi.New(r, huma.DefaultConfig("shop", "1"))
		registerOrder(api, s)
	})
}

func registerOrder(api huma.API, s *shop) {
	huma.Register(api, huma.Operation{
		OperationID: "placeOrder", Method: http.MethodPost, Path: "/shops/{shopID}/items/{itemID}/orders",
		DefaultStatus: http.StatusCreated,
	}, func(ctx context.Context, in *newOrder) (*placedOrder, error) {
		id, err := s.order(ctx)
		if err != nil {
			return nil, err
		}
		out := &placedOrder{}
		out.Body.ID, out.Body.Units = id, in.Body.Units
		return out, nil
	})
}
