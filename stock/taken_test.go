package stock

import (
	"testing"
)

// A trace context takes 32 bytes in Redis instead of 55, and comes back as it was; what is not of the usual form stays.
func TestTraceContextIsKeptShort(t *testing.T) {
	const usual = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for trace, size := range map[string]int{
		usual: 32,
		"":    0,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03": 55,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": 55,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": 55,
		"00-0af7651916cd43dd8448eb211c80319cxb7ad6b7169203331-01": 55,
		"00-xyz7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": 55,
		"00-01":                                  5,
		"00-0af7651916cd43dd8448eb211c80319c-01": 38,
	} {
		packed := packTrace(trace)
		if got := unpackTrace(packed); got != trace || len(packed) != size {
			t.Errorf("%q is kept as %q, %d bytes, and read as %q", trace, packed, len(packed), got)
		}
	}
}

// A hold or a record that a newer version has written otherwise is refused, not taken for none: its deadline stays listed
// and its units stay held.
func TestNewerFormsAreRefused(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 9})
		o := Order{ID: "o", RequestID: "q", Item: 1001, User: 42, Units: 1}
		e.deduct(c, o)
		for _, key := range []string{"req:q", "stock:hold:o"} {
			if !e.exists(key) {
				continue
			}
			taken := e.hash(key)["taken"]
			e.rdb.HDel(t.Context(), e.key(key), "taken")
			e.hset(key, "taken2", taken)
		}
		e.unchanged("a newer form", func() {
			e.refused(c, o, ErrInvalid)
			_, err := c.Confirm(t.Context(), "o", Of(o))
			e.wants(err, ErrInvalid, "Confirm")
			_, err = c.Release(t.Context(), "o", Failed, Of(o))
			e.wants(err, ErrInvalid, "Release")
		})
	})
}
