package stock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A waiting room is a Counter of its own in front of the sale: half as many admissions again as there are units, each held
// for as long as a visitor may take. Who buys confirms his admission, who leaves lets it lapse.

// admit lets a visitor in, if there is room once those who stayed away too long have made some.
func admit(ctx context.Context, room *Counter, visitor string) error {
	enter := Order{Item: "sale", User: visitor, Units: 1, RequestID: "admission-" + visitor}
	_, err := room.Deduct(ctx, enter)
	if !errors.Is(err, ErrInsufficient) {
		return err
	}
	if err := makeRoom(ctx, room); err != nil {
		return err
	}
	_, err = room.Deduct(ctx, enter)
	return err
}

// makeRoom takes the admissions back whose time is over.
func makeRoom(ctx context.Context, room *Counter) error {
	gone, err := room.Expired(ctx, 100)
	for _, hold := range gone {
		_, releaseErr := room.Release(ctx, hold.Order, Unpaid)
		err = errors.Join(err, releaseErr)
	}
	return err
}

// F074: visitors who were let in and never came back do not keep the room full: after their time others are let in.
func TestAbandonedAdmissionsComeBack(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		room := e.counter(WithHold(time.Second))
		const units = 10
		e.warm(room, Sale{Item: "sale", Units: units * 3 / 2, Limit: Limit{Units: 1}})
		for i := range units * 3 / 2 {
			if err := admit(t.Context(), room, fmt.Sprint("early-", i)); err != nil {
				t.Fatalf("visitor %d: %v", i, err)
			}
		}
		testserver.Eventually(t, time.Minute, func() bool {
			err := admit(t.Context(), room, "late")
			if err != nil && !errors.Is(err, ErrInsufficient) {
				t.Fatal(err)
			}
			return err == nil
		}, "a new visitor is let in once the others' time is over")
		testserver.Eventually(t, time.Minute, func() bool {
			if err := makeRoom(t.Context(), room); err != nil {
				t.Fatal(err)
			}
			left, err := room.Remaining(t.Context(), "sale")
			return err == nil && left == units*3/2
		}, "nobody has come back, and the whole room is free")
	})
}
