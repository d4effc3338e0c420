package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
)

// embedded starts the server that the examples use instead of a real one.
func embedded() (*redis.Client, func()) {
	srv, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() { rdb.Close(); srv.Close() }
}

// A consumer of a queue that delivers at least once: the message id is the key, so a message that is delivered again,
// here or to another process, is not worked on again.
func ExampleDedup_Do() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb, dedup.Prefix("shop:"))
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	receive := func(messageID, body string) {
		req := dedup.Request{Scope: "mailer", Name: "order-confirmed", Key: messageID}
		_, replayed, err := d.Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
			fmt.Println("sending a mail about", body)
			return nil, nil
		})
		switch {
		case errors.Is(err, dedup.ErrInFlight):
			fmt.Println(messageID, "is being worked on: not acknowledged, so that it comes again")
		case err != nil:
			fmt.Println(messageID, "failed: not acknowledged, so that it comes again")
		case replayed:
			fmt.Println(messageID, "was done: acknowledged")
		default:
			fmt.Println(messageID, "done: acknowledged")
		}
	}
	receive("m-1", "order 1001")
	receive("m-2", "order 1002")
	receive("m-1", "order 1001")
	// Output:
	// sending a mail about order 1001
	// m-1 done: acknowledged
	// sending a mail about order 1002
	// m-2 done: acknowledged
	// m-1 was done: acknowledged
}

// A job that must run once a day although several processes have it in their schedule: the period is the key. A period
// that failed is run by whoever asks next.
func ExampleDedup_Do_oncePerPeriod() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	settle := func(process string, day time.Time) {
		req := dedup.Request{Scope: "jobs", Name: "settle", Key: day.Format(time.DateOnly), TTL: 48 * time.Hour}
		_, replayed, err := d.Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
			if process == "A" && day.Day() == 2 {
				return nil, errors.New("the bank does not answer")
			}
			return nil, nil
		})
		fmt.Println(day.Format(time.DateOnly), process, "replayed:", replayed, "error:", err)
	}
	for day := range 2 {
		for _, process := range []string{"A", "B", "C"} {
			settle(process, time.Date(2030, time.May, 1+day, 0, 0, 0, 0, time.UTC))
		}
	}
	// Output:
	// 2030-05-01 A replayed: false error: <nil>
	// 2030-05-01 B replayed: true error: <nil>
	// 2030-05-01 C replayed: true error: <nil>
	// 2030-05-02 A replayed: false error: the bank does not answer
	// 2030-05-02 B replayed: false error: <nil>
	// 2030-05-02 C replayed: true error: <nil>
}

// Begin is Do in steps: what came out is told by Complete, Fail or Forget, with a code that a repeat can read without
// the data.
func ExampleDedup_Begin() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	ctx := context.Background()
	req := dedup.Request{Scope: "user-7", Name: "POST /orders", Key: "8e03978e", Fingerprint: []byte("hash of the body")}
	serve := func() {
		claim, rec, err := d.Begin(ctx, req)
		switch {
		case err != nil:
			fmt.Println(err)
		case rec != nil:
			fmt.Printf("replayed: %d %s\n", rec.Code, rec.Data)
		default:
			defer claim.Fail(ctx, nil, nil) // a safety net: after Complete it does nothing
			fmt.Println("attempt", claim.Attempt())
			if err := claim.Complete(ctx, dedup.Result{Code: 201, Data: []byte("order 1001")}, 0); err != nil {
				fmt.Println(err) // the answer may be sent all the same, see Complete
			}
		}
	}
	serve()
	serve()
	req.Fingerprint = []byte("hash of another body")
	_, _, err = d.Begin(ctx, req)
	fmt.Println(err)
	// Output:
	// attempt 1
	// replayed: 201 order 1001
	// dedup: the key was used for another request
}

// The code that does the work decides what is kept of it.
func ExampleFromContext() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	req := dedup.Request{Scope: "user-7", Name: "charge", Key: "8e03978e"}
	for range 2 {
		_, replayed, err := d.Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
			run := dedup.FromContext(ctx)
			fmt.Println("charged under", run.RequestID()[:8], "as attempt", run.Attempt())
			run.Commit() // whatever comes now, the card is not charged again
			return nil, errors.New("the receipt could not be written")
		})
		fmt.Println("replayed:", replayed, "error:", err)
	}
	// Output:
	// charged under 67NFSLV6 as attempt 1
	// replayed: false error: the receipt could not be written
	// replayed: true error: <nil>
}
