package dedup_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/dedup"
)

// provider stands for a payment provider, which knows idempotency keys, too: one charge a key. The reply to its first
// charge is lost.
type provider struct {
	charges map[string]int
	calls   int
}

var errNoReply = errors.New("the provider did not answer")

func (p *provider) charge(key string, cents int) error {
	p.calls++
	p.charges[key] = cents
	if p.calls == 1 {
		return errNoReply
	}
	return nil
}

// A payment. The effect is in another house, so it gets the request id: whether the first call charged the card or not, the
// second one charges it once. What failed runs again, what succeeded is answered from the record.
func ExampleDedup_Do_payment() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())

	bank := &provider{charges: map[string]int{}}
	pay := func(key string, cents int) {
		req := dedup.Request{Scope: "user-7", Name: "pay", Key: key, Fingerprint: fmt.Append(nil, cents)}
		receipt, replayed, err := d.Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
			if err := bank.charge(dedup.FromContext(ctx).RequestID(), cents); err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, "paid %d cents", cents), nil
		})
		fmt.Printf("%q replayed: %v, error: %v\n", receipt, replayed, err)
	}
	pay("8e03978e", 500)
	pay("8e03978e", 500) // the client's retry
	pay("8e03978e", 500) // and another one
	pay("8e03978e", 700) // the key of one payment for another
	fmt.Println(bank.calls, "calls,", len(bank.charges), "charge")
	// Output:
	// "" replayed: false, error: the provider did not answer
	// "paid 500 cents" replayed: false, error: <nil>
	// "paid 500 cents" replayed: true, error: <nil>
	// "" replayed: false, error: dedup: the key was used for another request
	// 2 calls, 1 charge
}
