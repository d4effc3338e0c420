package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/dedup"
)

// A webhook. Providers deliver an event again until they see a 2xx, and sometimes after it: the event's id is the key, and
// the status says whether to come again.
func ExampleDedup_Do_webhook() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	ledgerDown := true
	book := func(_ context.Context, event string) error {
		if ledgerDown {
			return errors.New("the ledger is down")
		}
		fmt.Println("booked", event)
		return nil
	}
	webhook := func(w http.ResponseWriter, r *http.Request) {
		// The signature has been checked: before that nobody may choose a key.
		req := dedup.Request{Scope: "provider", Name: "payment-settled", Key: r.Header.Get("Event-Id")}
		_, _, err := d.Do(r.Context(), req, func(ctx context.Context) ([]byte, error) {
			return nil, book(ctx, r.Header.Get("Event-Id"))
		})
		switch {
		case errors.Is(err, dedup.ErrInvalid):
			w.WriteHeader(http.StatusBadRequest) // no id: coming again would not help
		case errors.Is(err, dedup.ErrInFlight):
			w.WriteHeader(http.StatusConflict) // another delivery is at work: come again
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable) // not booked: come again
		default:
			w.WriteHeader(http.StatusNoContent) // booked, now or before
		}
	}
	deliver := func(event string) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/webhooks", http.NoBody)
		r.Header.Set("Event-Id", event)
		w := httptest.NewRecorder()
		webhook(w, r)
		fmt.Println(w.Code)
	}
	deliver("evt-1")
	ledgerDown = false
	deliver("evt-1")
	deliver("evt-1")
	deliver("")
	// Output:
	// 503
	// booked evt-1
	// 204
	// 204
	// 400
}
