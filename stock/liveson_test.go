package stock

import (
	"strconv"
	"testing"
	"time"
)

// Keys that many orders share, the deadlines of holds, the stream and a user's marker, live as long as the newest order needs
// them, however long the sale lasts: each order pushes their TTL forward. A sale may last longer than one order's keys live.
func TestSharedKeysLiveOnWithEachOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		const wait, day = 10 * time.Minute, 24 * time.Hour
		c := e.counter(WithHold(wait), WithStream())
		other := 1002 // for an order of lines that lie apart, where there are partitions
		for e.parts > 0 && spread(strconv.Itoa(other), e.parts) == spread("1001", e.parts) {
			other++
		}
		e.warm(c, Sale{Units: 9, Limit: Limit{Units: 9}})
		e.warm(c, Sale{Item: other, Units: 9, Limit: Limit{Units: 9}})
		shared := map[string]time.Duration{ // at least
			"stock:deadlines": wait + day, "stock:orders": time.Hour + 7*day - time.Minute, "limit:user:1:item:1001:act:": time.Hour + day - time.Minute,
		}
		e.deduct(c, e.order(1))
		for name, order := range map[string]Order{
			"a line":        e.order(1),
			"several lines": {User: 1, RequestID: e.id(), Lines: []Line{{Item: 1001, Units: 1}, {Item: other, Units: 1}}},
		} {
			for key := range shared { // as if the sale had gone on for long
				if ok, err := e.rdb.PExpire(t.Context(), e.key(key), time.Minute).Result(); err != nil || !ok {
					t.Fatalf("%s: %t, %v", key, ok, err)
				}
			}
			e.deduct(c, order)
			for key, least := range shared {
				if life := e.rdb.PTTL(t.Context(), e.key(key)).Val(); life < least {
					t.Errorf("an order of %s: %s lives for %v more, want %v at least", name, key, life, least)
				}
			}
		}
		e.everyKeyExpires()
	})
}
