package stock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// surveying is a Survey that is being made.
type surveying struct {
	c *Counter
	*Survey
	items map[string]*SurveyedItem
	known map[string]bool // SCAN may return a key twice
}

// readKeys reads every key of the Counter.
func (s *surveying) readKeys(ctx context.Context) error {
	s.known = map[string]bool{}
	var fault error
	err := s.c.rdb.ScanAll(ctx, s.c.keys.prefix, func(keys []string) bool {
		keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
			if s.c.keys.parse(key).role == roleOther {
				return true // without a prefix there may be millions of these
			}
			seen := s.known[key]
			s.known[key] = true
			return seen
		})
		if len(keys) > 0 {
			fault = s.read(ctx, keys)
		}
		return fault == nil
	})
	if err != nil {
		return reading(transport(err))
	}
	return fault
}

// read reads some keys with two round trips.
func (s *surveying) read(ctx context.Context, keys []string) error {
	kinds, ttls := make([]*redis.StatusCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, err := s.c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			kinds[i], ttls[i] = p.Type(ctx, key), p.PTTL(ctx, key)
		}
		return nil
	})
	if err != nil {
		return &Error{sentinel: ErrUnavailable, cause: err}
	}
	hashes, listed := make([]*redis.MapStringStringCmd, len(keys)), map[int]*redis.FloatCmd{}
	cmds, _ := s.c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			if kinds[i].Val() != "hash" {
				continue
			}
			hashes[i] = p.HGetAll(ctx, key)
			if of := s.c.keys.parse(key); of.role == roleHold {
				listed[i] = p.ZScore(ctx, s.c.keys.deadlines(of.part), of.id)
			}
		}
		return nil
	})
	for _, cmd := range cmds { // a hold that is not listed is no error, and neither is a list of another type
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return &Error{sentinel: ErrUnavailable, cause: err}
		}
	}
	taken, err := s.whenTaken(ctx, keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		kind, ttl := kinds[i].Val(), ttls[i].Val()
		if kind == "none" || ttl == -2 {
			continue
		}
		p := s.c.keys.parse(key)
		if p.role == roleCounter && !s.hasSwitch(p) {
			s.Strays = append(s.Strays, Stray{Key: key, Item: p.item})
			continue
		}
		if ttl == -1 {
			s.Eternal = append(s.Eternal, key)
		}
		ok, held := true, len(s.Held)
		switch p.role {
		case roleCounter:
			ok = kind == "string"
		case roleStream, roleDead:
			ok, err = s.stream(ctx, key, kind, p.role)
			if err != nil {
				return err
			}
		case roleSwitch, roleMarker, roleRequest, roleHold:
			ok = hashes[i] != nil && s.hash(key, p, hashes[i].Val(), taken[key])
			if of := len(s.Held) - 1; listed[i] != nil && listed[i].Err() == nil && of >= held {
				s.Held[of].Listed = true
			}
		}
		if !ok {
			s.Unreadable = append(s.Unreadable, key)
		}
	}
	return nil
}

// whenTaken returns when the orders of request records were taken, for Counters without holds, by the clock of the server
// that has them.
func (s *surveying) whenTaken(ctx context.Context, keys []string) (map[string]time.Time, error) {
	if s.c.cfg.hold > 0 {
		return nil, nil // the holds say it
	}
	slots := map[int][]string{}
	for _, key := range keys {
		if p := s.c.keys.parse(key); p.role == roleRequest {
			slots[p.part] = append(slots[p.part], key)
		}
	}
	taken := map[string]time.Time{}
	for _, keys := range slots {
		a, err := s.c.run(ctx, s.c.scripts.ages, keys)
		if err != nil {
			return nil, reading(err)
		}
		now, err := a.number(1)
		if err != nil {
			return nil, err
		}
		for i, key := range keys {
			left, err := a.number(i + 2)
			if err != nil {
				return nil, err
			}
			taken[key] = time.UnixMilli(now + left - s.c.cfg.recordLife().Milliseconds())
		}
	}
	return taken, nil
}

func (s *surveying) hasSwitch(p keyParts) bool {
	it := s.items[p.item]
	if it == nil {
		return false
	}
	_, here := it.read[p.part]
	return here
}

func (s *surveying) hash(key string, p keyParts, f map[string]string, taken time.Time) bool {
	switch {
	case len(f) == 0:
		return true // gone since
	case p.role == roleMarker:
		return s.marker(key, p, f)
	case p.role == roleHold:
		f = unfoldHold(f)
		at, err := strconv.ParseInt(f["at"], 10, 64)
		if err != nil {
			return false
		}
		deadline, err := strconv.ParseInt(f["deadline"], 10, 64)
		return err == nil && s.order(p.id, f["request"], f, time.UnixMilli(at), time.UnixMilli(deadline))
	case p.role == roleRequest:
		f = unfoldRecord(f)
		_, proves := f["confirmed"]
		if !proves || f["state"] == "undone" {
			return true // a hold is the proof, or it is a whole order's record
		}
		return s.order(f["order"], p.id, f, taken, time.Time{})
	}
	return true // a switch: read before
}

func (s *surveying) marker(key string, p keyParts, f map[string]string) bool {
	ok := true
	for order, value := range f {
		if order == "" {
			continue // the last number of a user with many orders, see deduct.lua
		}
		text, _, _ := strings.Cut(value, ":")
		units, err := strconv.ParseInt(text, 10, 64)
		ok = ok && err == nil
		s.Marks = append(s.Marks, Mark{
			Order: order, User: p.user, Item: p.item, Variant: p.variant, Activity: p.activity, Units: units, key: key, value: value,
		})
	}
	return ok
}

func (s *surveying) order(order, request string, f map[string]string, at, deadline time.Time) bool {
	l, ok := parseLine(f["what"])
	confirmed, err := strconv.ParseInt(f["confirmed"], 10, 64)
	released, err2 := strconv.ParseInt(f["released"], 10, 64)
	if !ok || order == "" || request == "" || err != nil || err2 != nil {
		return false
	}
	nth, _ := strconv.Atoi(f["nth"])
	o := SurveyedOrder{
		Entry: Entry{
			Order: order, RequestID: request, Item: l.item, Variant: l.variant, Activity: l.activity, User: l.user, Units: l.units,
			Nth: nth, At: at, TraceParent: f["trace"],
		},
		Confirmed: confirmed, Released: released, Deadline: deadline,
	}
	o.Counted = s.counted(&o.Entry)
	s.Held = append(s.Held, o)
	return true
}

// near is how close to the reading of a counter an order may have been taken before nobody can tell which was first: the
// clock counts milliseconds, and of a record only the end of its life is known.
func (s *surveying) near() time.Duration {
	if s.c.cfg.hold > 0 {
		return 0
	}
	return time.Millisecond
}

// counted reports whether an order was taken before its item's counter was read.
func (s *surveying) counted(e *Entry) bool {
	it := s.items[e.Item]
	if it == nil {
		return true
	}
	h := heldLine{order: e.Order, line: line{item: e.Item, activity: e.Activity, user: e.User}}
	h.fixed = s.c.keys.parts > 0 && len(s.c.partsIn(h.order)) == 1
	s.c.locateHeld(&h)
	at, here := it.read[h.line.part]
	if !here { // an order id of the caller's own, in segments: any of them may be meant
		for _, at = range it.read {
			break
		}
	}
	apart := e.At.Sub(time.UnixMilli(at))
	if apart.Abs() <= s.near() {
		it.Unsettled = true
	}
	return apart < 0
}

// stream reads a whole stream, a thousand entries at a time.
func (s *surveying) stream(ctx context.Context, key, kind string, role keyRole) (bool, error) {
	if kind != "stream" {
		return false, nil
	}
	ok := true
	for from := "-"; ; {
		found, err := s.c.rdb.XRangeN(ctx, key, from, "+", 1000).Result()
		if err != nil {
			return false, &Error{sentinel: ErrUnavailable, cause: err}
		}
		for _, m := range found {
			from = "(" + m.ID
			e, err := ParseEntry(m.Values)
			switch {
			case err != nil:
				ok = role == roleDead // what cannot be read lies there for that reason
			case role == roleDead:
				s.Dead = append(s.Dead, SurveyedOrder{Entry: e, Counted: s.counted(&e)})
			default:
				s.Landing = append(s.Landing, SurveyedOrder{Entry: e, Counted: s.counted(&e)})
			}
		}
		if len(found) < 1000 {
			return ok, nil
		}
	}
}
