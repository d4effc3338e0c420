package stock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// survey makes a survey at rest: not in the millisecond in which an order was taken.
func (e *env) survey(c *Counter) (s *Survey) {
	e.Helper()
	if e.mini != nil {
		e.mini.FastForward(50 * time.Millisecond) // keys do not age there by themselves
	}
	testserver.Eventually(e.T, 10*time.Second, func() bool {
		var err error
		if s, err = c.Survey(e.Context(), nil); err != nil {
			e.Fatal(err)
		}
		return !slices.ContainsFunc(s.Items, func(it SurveyedItem) bool { return it.Unsettled })
	}, "the survey does not settle")
	return s
}

// A survey has every item, order, mark and entry of the Counter, and nothing of others under the same prefix.
func TestSurveySeesAllThatIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"hold": {WithHold(time.Hour), WithStream()}, "record": {WithStream()}} {
			own := &env{T: t, rdb: e.rdb, prefix: e.prefix + name + ":", parts: e.parts, mini: e.mini}
			c, segments := own.counter(opts...), 1
			if e.parts > 0 {
				segments = 4
			}
			own.warm(c, Sale{Activity: "a:b", Units: 20, Segments: segments, Limit: Limit{Units: 3, Over: Variant}})
			quota := own.quota()
			own.warm(quota, Sale{Item: 77, Units: 5})
			own.deduct(quota, Order{Item: 77, Units: 1, RequestID: "of the quota"})
			first := Order{Item: 1001, Variant: "a/b", Activity: "a:b", User: "ü 1", Units: 2, RequestID: "r%1"}
			second := Order{Item: 1001, Variant: "x", Activity: "a:b", User: 2, Units: 1, RequestID: "r2"}
			kept, back := own.deduct(c, first), own.deduct(c, second)
			if _, err := c.Release(t.Context(), back.Order, Operator, Of(second)); err != nil {
				t.Fatal(err)
			}
			var between []string
			_, err := c.Survey(t.Context(), func(items []string) error { between = items; return nil })
			if err != nil || !slices.Equal(between, []string{"1001"}) {
				t.Fatalf("%s: between was told %v, err = %v", name, between, err)
			}
			s := own.survey(c)
			if len(s.Items) != 1 || len(s.Held) != 2 || len(s.Marks) != 1 || len(s.Landing) != 2 || len(s.Dead)+len(s.Strays)+len(s.Eternal)+len(s.Unreadable) != 0 {
				t.Fatalf("%s: %+v", name, s)
			}
			it := s.Items[0]
			if it.Item != "1001" || it.Left != 18 || it.Warmed != 20 || it.State != "open" || it.Gone || it.Unsettled || len(it.Segments) != segments ||
				it.Limits["a:b"] != (Limit{Units: 3, Over: Variant}) || time.Until(it.Ends) < 50*time.Minute {
				t.Errorf("%s: item %+v", name, it)
			}
			m := s.Marks[0]
			if m.Order != kept.Order || m.User != "ü 1" || m.Variant != "a/b" || m.Activity != "a:b" || m.Units != 2 {
				t.Errorf("%s: mark %+v", name, m)
			}
			for _, o := range s.Held {
				// The age of a record is told by its TTL, which does not fall on miniredis.
				counted := o.Counted || name == "record" && own.mini != nil
				if o.RequestID == "r%1" && (o.Order != kept.Order || o.Kept() != 2 || o.Nth != 1 || !counted || time.Since(o.At).Abs() > time.Minute) ||
					o.RequestID == "r2" && (o.Kept() != 0 || o.Released != 1) {
					t.Errorf("%s: order %+v", name, o)
				}
				if (name == "hold") != !o.Deadline.IsZero() || o.Listed != (name == "hold" && o.Open() > 0) {
					t.Errorf("%s: deadline %v, listed %t", name, o.Deadline, o.Listed)
				}
			}
		}
	})
}

// What came back while the survey was made is told: the sums belong to no instant.
func TestSurveyTellsOfReturnsMeanwhile(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20})
		o := e.order(1)
		res := e.deduct(c, o)
		s, err := c.Survey(t.Context(), func([]string) error {
			_, err := c.Release(t.Context(), res.Order, Failed, Of(o))
			return err
		})
		if err != nil || !s.Items[0].Unsettled {
			t.Errorf("%+v, %v; want it unsettled", s, err)
		}
		e.survey(c)
		broken := errors.New("no snapshot")
		if _, err := c.Survey(t.Context(), func([]string) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("err = %v", err)
		}
		_, err = e.quota().Survey(t.Context(), nil)
		e.wants(err, ErrInvalid, "Survey of a quota")
	})
}

// What must not be there is found: a counter without a sale, a key without TTL, a value that is not of its form.
func TestSurveyFindsWhatMustNotBeThere(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20, Limit: Limit{Units: 1}})
		e.deduct(c, e.order(1))
		stray, marker := strings.Replace(e.key("stock:item:1001"), "1001", "77", 1), e.key("limit:user:1:item:1001:act:")
		for _, do := range []error{
			e.rdb.Set(t.Context(), stray, 5, 0).Err(),
			e.rdb.Persist(t.Context(), marker).Err(),
			e.rdb.Set(t.Context(), e.key("req:odd"), "x", time.Hour).Err(),
			e.rdb.Set(t.Context(), e.prefix+"nobodys", "x", 0).Err(),
		} {
			if do != nil {
				t.Fatal(do)
			}
		}
		s := e.survey(c)
		if !slices.Equal(s.Strays, []Stray{{Key: stray, Item: "77"}}) || !slices.Equal(s.Eternal, []string{marker}) || !slices.Equal(s.Unreadable, []string{e.key("req:odd")}) {
			t.Fatalf("strays %v, eternal %v, unreadable %v", s.Strays, s.Eternal, s.Unreadable)
		}
		twice := func(what string, fn func() (bool, error)) {
			t.Helper()
			if did, err := fn(); err != nil || !did {
				t.Errorf("%s: %t, %v", what, did, err)
			}
			e.unchanged(what+", repeated", func() {
				if did, err := fn(); err != nil || did {
					t.Errorf("%s, repeated: %t, %v", what, did, err)
				}
			})
		}
		twice("RemoveStray", func() (bool, error) { return c.RemoveStray(t.Context(), stray) })
		twice("Expire", func() (bool, error) { return c.Expire(t.Context(), marker, time.Now()) })
		e.ttl("limit:user:1:item:1001:act:", leastLife)
		e.unchanged("RemoveStray of a counter on sale", func() {
			if did, err := c.RemoveStray(t.Context(), e.key("stock:item:1001")); did || err != nil {
				t.Errorf("removed %t, %v", did, err)
			}
			_, err := c.RemoveStray(t.Context(), e.prefix+"nobodys")
			e.wants(err, ErrInvalid, "RemoveStray of another's key")
			_, err = c.Expire(t.Context(), e.prefix+"nobodys", time.Now())
			e.wants(err, ErrInvalid, "Expire of another's key")
		})
	})
}

// A value that cannot be read does not stop the survey, and is no stray: its item's sums prove nothing.
func TestSurveyGoesOnPastWhatCannotBeRead(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20})
		e.warm(c, Sale{Item: 5, Units: 7})
		for name, spoil := range map[string]func(){
			"counter": func() {
				e.set("stock:item:1001", "ten")
				e.rdb.Expire(t.Context(), e.key("stock:item:1001"), time.Hour)
			},
			"switch": func() { e.hset("stock:item:1001:ctl", "warmed", "ten") },
		} {
			spoil()
			s, err := c.Survey(t.Context(), nil)
			if err != nil || len(s.Items) != 2 || !s.Items[0].Unsettled || s.Items[1].Unsettled || s.Items[1].Left != 7 ||
				!slices.Equal(s.Unreadable, []string{e.key("stock:item:1001:ctl")}) || len(s.Strays) > 0 || s.At.IsZero() {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
			e.set("stock:item:1001", 20)
			e.hset("stock:item:1001:ctl", "warmed", "20")
		}
	})
}

// Remember writes what is lost of a live order, once, and touches neither counter nor what is there; Unmark takes off an entry
// only as it was seen.
func TestRememberAndUnmark(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Hour))
		e.warm(c, Sale{Units: 20, Limit: Limit{Units: 2}})
		o := e.order(1)
		res := e.deduct(c, o)
		entry := Entry{Order: res.Order, RequestID: o.RequestID, Item: "1001", User: "1", Units: 1, Nth: 1}
		remember := func(want bool) {
			t.Helper()
			if did, err := c.Remember(t.Context(), entry, true); err != nil || did != want {
				t.Errorf("Remember = %t, %v; want %t", did, err, want)
			}
		}
		e.unchanged("Remember of what is there", func() { remember(false) })
		before := e.survey(c)
		e.del("stock:hold:" + res.Order)
		if did, err := c.Unmark(t.Context(), before.Marks[0]); err != nil || !did {
			t.Fatalf("Unmark = %t, %v", did, err)
		}
		remember(true)
		e.unchanged("Remember, repeated", func() { remember(false) })
		after := e.survey(c)
		if len(after.Held) != 1 || after.Held[0].Kept() != 1 || len(after.Marks) != 1 || after.Marks[0] != before.Marks[0] || after.Items[0].Left != 19 {
			t.Errorf("after it: %+v", after)
		}
		e.everyKeyExpires()
		e.ended(c.Release(t.Context(), res.Order, Unpaid, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.left(c, 20)

		m := before.Marks[0]
		m.value = "9:9"
		remember(true) // the entry only: the hold is there, and has ended
		e.unchanged("Unmark of an entry that is another by now", func() {
			if did, err := c.Unmark(t.Context(), m); err != nil || did {
				t.Errorf("Unmark = %t, %v", did, err)
			}
			_, err := c.Unmark(t.Context(), Mark{Order: res.Order})
			e.wants(err, ErrInvalid, "Unmark of a mark that nobody has seen")
			entry.Item = "5"
			_, err = c.Remember(t.Context(), entry, true)
			e.wants(err, ErrNotWarmed, "Remember of an item that is not on sale")
		})
	})
}

// An item's activities end one by one: the survey tells each one's own end, and the latest.
func TestSurveyTellsWhenEachActivityEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		first, last := time.Now().Add(time.Hour).Truncate(time.Millisecond), time.Now().Add(48*time.Hour).Truncate(time.Millisecond)
		e.warm(c, Sale{Activity: 1, Units: 20, Ends: first})
		e.warm(c, Sale{Activity: 2, Units: 20, Ends: last})
		it := e.survey(c).Items[0]
		if !it.Until["1"].Equal(first) || !it.Until["2"].Equal(last) || len(it.Until) != 2 || !it.Ends.Equal(last) {
			t.Errorf("until %v, ends %v; want %v and %v", it.Until, it.Ends, first, last)
		}
	})
}

// A hold that has dropped out of the deadlines would never be swept: the survey tells, and Remember lists it again under the
// deadline that it has. One that has ended is listed nowhere and stays so.
func TestRememberListsAnOpenHoldAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Hour))
		e.warm(c, Sale{Units: 20})
		o := e.order(1)
		res := e.deduct(c, o)
		entry := Entry{Order: res.Order, RequestID: o.RequestID, Item: "1001", User: "1", Units: 1, Nth: 1}
		before := e.survey(c).Held[0]
		for name, lose := range map[string]func(){
			"the entry": func() { e.rdb.ZRem(t.Context(), e.key("stock:deadlines"), res.Order) },
			"the list":  func() { e.del("stock:deadlines") },
		} {
			lose()
			if e.survey(c).Held[0].Listed {
				t.Errorf("%s is lost, and the survey has the hold listed", name)
			}
			if did, err := c.Remember(t.Context(), entry, true); err != nil || !did {
				t.Errorf("%s: Remember = %t, %v", name, did, err)
			}
			if after := e.survey(c).Held[0]; after != before {
				t.Errorf("%s: the hold %+v became %+v", name, before, after)
			}
			due, err := e.rdb.ZScore(t.Context(), e.key("stock:deadlines"), res.Order).Result()
			if err != nil || int64(due) != before.Deadline.UnixMilli() {
				t.Errorf("%s: listed at %f, %v; want %d", name, due, err, before.Deadline.UnixMilli())
			}
			e.everyKeyExpires()
		}
		e.ended(c.Confirm(t.Context(), res.Order, Of(o)))(Ended{Outcome: OutcomeConfirmed, Units: 1})
		e.unchanged("Remember of an order that is paid for", func() {
			if did, err := c.Remember(t.Context(), entry, true); err != nil || did {
				t.Errorf("Remember = %t, %v", did, err)
			}
		})
	})
}

// Without a prefix every key of the server is scanned: of those that are nobody's here none is remembered.
func TestSurveyForgetsForeignKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20})
		for i := range 50 {
			if err := e.rdb.Set(t.Context(), fmt.Sprint(e.prefix, "foreign:", i), "x", time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
		}
		items, _, err := c.surveyItems(t.Context(), []string{e.key("stock:item:1001:ctl")})
		if err != nil {
			t.Fatal(err)
		}
		s := &surveying{c: c, Survey: &Survey{}, items: items}
		if err := s.readKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		for key := range s.known {
			if strings.Contains(key, "foreign:") {
				t.Errorf("%q is remembered", key)
			}
		}
		if len(s.known) < 2 {
			t.Errorf("seen %v, want the counter and its switch", s.known)
		}
	})
}
