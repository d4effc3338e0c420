package stock

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// D47a, D47b, D47d, D10, D11: names, types and times to live of what a sale stores are exactly those of the table.
func TestKeysTypesAndTTLs(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(30*time.Minute), WithStream())
		e.warm(c, Sale{Activity: 9, Units: 10, Limit: Limit{Units: 2}, Ends: time.Now().Add(7 * 24 * time.Hour)})
		e.deduct(c, Order{ID: "o1", RequestID: "q1", Item: 1001, Activity: 9, User: 42, Units: 1})

		const week, day = 7 * 24 * time.Hour, 24 * time.Hour
		for _, k := range []struct {
			key, kind string
			ttl       time.Duration
		}{
			{"stock:item:1001", "string", week + time.Hour},
			{"stock:item:1001:ctl", "hash", week + day},
			{"limit:user:42:item:1001:act:9", "hash", week + day},
			{"req:q1", "hash", 40 * time.Minute},
			{"stock:hold:o1", "hash", week + day},
			{"stock:deadlines", "zset", 30*time.Minute + day + time.Hour},
			{"stock:orders", "stream", week + 8*day},
		} {
			if got := e.kind(k.key); got != k.kind {
				t.Errorf("%s is a %s, want %s", k.key, got, k.kind)
			}
			e.ttl(k.key, k.ttl)
		}
		if got := len(e.names()); got != 8 {
			t.Errorf("%d keys, want the seven above and the number of partitions: %v", got, e.names())
		}
		e.everyKeyExpires()

		if _, err := c.Confirm(t.Context(), "o1", Of(Order{RequestID: "q1", Item: 1001, Activity: 9, User: 42, Units: 1})); err != nil {
			t.Fatal(err)
		}
		e.ttl("req:q1", 40*time.Minute)
		if got := e.hash("req:q1")["state"]; got != "confirmed" {
			t.Errorf("after payment the request is %q, want confirmed", got)
		}
	})
}

// D47d: without a hold the request record lives for ten minutes, or for the retry window.
func TestRequestRecordLivesForTheRetryWindow(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for window, opts := range map[time.Duration][]Option{
			10 * time.Minute: nil, time.Hour: {WithRetryWindow(time.Hour)},
		} {
			c := e.counter(opts...)
			e.warm(c, Sale{Units: 10})
			o := e.order(window.String())
			e.deduct(c, o)
			e.ttl("req:"+o.RequestID, window)
		}
		if e.exists("stock:deadlines") || e.exists("stock:orders") {
			t.Error("a counter without hold and stream keeps deadlines or a stream")
		}
	})
}

// An order that lands late, or lies with the dead letters, may have to be given back: with a stream and no hold its record, which
// is the proof that it was taken, lives for a day.
func TestRequestRecordOfAnOrderThatLandsLater(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for window, opts := range map[time.Duration][]Option{24 * time.Hour: nil, 11 * time.Minute: {WithRetryWindow(11 * time.Minute)}} {
			c := e.counter(append(opts, WithStream())...)
			e.warm(c, Sale{Units: 10})
			o := e.order(window.String())
			e.deduct(c, o)
			e.ttl("req:"+o.RequestID, window)
		}
	})
}

// D10: the marker's key names exactly the parts that the limit counts over.
func TestMarkerKeys(t *testing.T) {
	k := keyspace{prefix: "shop:"}
	l := &line{item: "i:1", variant: "{v}", activity: "a", user: "u"}
	for over, want := range map[Scope]string{
		ItemInActivity: "shop:limit:user:u:item:i%3A1:act:a",
		Activity:       "shop:limit:user:u:act:a",
		Variant:        "shop:limit:user:u:item:i%3A1:var:%7Bv%7D:act:a",
	} {
		if got := k.marker(0, over, l); got != want {
			t.Errorf("marker over %d = %q, want %q", over, got, want)
		}
	}
}

// X23: in the partitioned keyspace all keys of one partition share a slot, and the flat names have no hash tag.
func TestKeysOfOnePartitionShareASlot(t *testing.T) {
	l := &line{item: "1001", variant: "v", activity: "9", user: "42"}
	for _, quota := range []bool{false, true} {
		k := keyspace{prefix: "shop:", parts: 16, quota: quota}
		keys := k.appendCounter(nil, 7, "1001", 10)
		keys = append(keys, k.control(7, "1001"), k.request(7, "r"), k.hold(7, "o"), k.deadlines(7), k.stream(7), k.transfer(7, "m"),
			k.transfers(7), k.activity(7, "9"), k.marker(7, Variant, l))
		seen := map[string]bool{}
		for _, key := range keys {
			if redisx.Slot(key) != redisx.Slot("{07}") {
				t.Errorf("%s is not in the slot of {07}", key)
			}
			if seen[key] {
				t.Errorf("%s is the key of two things", key)
			}
			seen[key] = true
		}
	}
	if got := (&keyspace{parts: 16}).item(7, "1001"); got != "stock:{07}:item:1001" {
		t.Errorf("counter in partition 7 = %q", got)
	}
	if got := (&keyspace{}).item(0, "1001"); strings.ContainsAny(got, "{}") {
		t.Errorf("the flat key %q has a hash tag", got)
	}
}

// No id can forge another key: two different values give two different keys, and none breaks out of its part.
func FuzzKeys(f *testing.F) {
	f.Add("1001", "1001:ctl")
	f.Add("7", "07")
	f.Add("}:item:{", "item")
	f.Add("a/1", "a")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > maxID || len(b) > maxID {
			return
		}
		k := keyspace{parts: 4}
		for name, key := range map[string]func(string) string{
			"counter": func(v string) string { return k.item(1, v) },
			"switch":  func(v string) string { return k.control(1, v) },
			"request": func(v string) string { return k.request(1, v) },
			"hold":    func(v string) string { return k.hold(1, v) },
			"marker":  func(v string) string { return k.marker(1, Variant, &line{item: v, variant: "v", user: v}) },
		} {
			if (a == b) != (key(a) == key(b)) {
				t.Errorf("%s: %q and %q give %q and %q", name, a, b, key(a), key(b))
			}
			if redisx.Slot(key(a)) != redisx.Slot("{01}") {
				t.Errorf("%s: %q leaves the partition: %q", name, a, key(a))
			}
		}
		if k.item(1, a) == k.control(1, b) {
			t.Errorf("the counter of %q is the switch of %q", a, b)
		}
	})
}

// What a line is for is written so that it can be read again, whatever the ids are.
func FuzzFingerprint(f *testing.F) {
	f.Add("1001", "", "9", "42", int64(1))
	f.Add("a:b", "%", "{", "\x00\xff", int64(maxUnits))
	f.Fuzz(func(t *testing.T, item, variant, activity, user string, units int64) {
		if max(len(item), len(variant), len(activity), len(user)) > maxID || units < 1 {
			return
		}
		want := line{item: item, variant: variant, activity: activity, user: user, units: units}
		want.what = want.fingerprint()
		if got, ok := parseLine(want.what); !ok || got != want {
			t.Errorf("%q reads as %+v, %v; want %+v", want.what, got, ok, want)
		}
	})
}

func TestOrderIDsTellTheirPartitions(t *testing.T) {
	id := newOrderID()
	lines := []line{{part: 3}, {part: 7}, {part: 12}}
	for _, tt := range []struct {
		id   string
		want []int
	}{
		{withParts(id, lines[:1]), []int{3}},
		{withParts(id, lines), []int{3, 7, 12}},
		{withParts(id, lines) + "/2", []int{7}},
		{withParts(id, lines) + "/4", nil},
		{withParts(id, lines) + "/x", nil},
		{withParts(id, lines) + "/01", nil},
		{id, nil},
		{"order-07", nil},
		{id[1:] + "-07", nil},
		{id + "-7", nil},
		{id + "-", nil},
		{strings.ToLower(id) + "-07", nil},
	} {
		got := partsOf(tt.id)
		if len(got) != len(tt.want) {
			t.Errorf("partsOf(%q) = %v, want %v", tt.id, got, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("partsOf(%q) = %v, want %v", tt.id, got, tt.want)
			}
		}
	}
}
