package stock

import (
	"context"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// place says where an item lies and what its limit counts over. Every instance must know it before it can name the keys
// of a deduct; it is written in the switch, and a script that is asked in the wrong place answers with the right one.
type place struct {
	over     Scope
	segments int // partitions that share the item's units; of a quota, its shards
	at       int // the first of those partitions
}

// layout is the part of the place that the switch keeps for the item; the scope is kept for each activity.
func (p place) layout() string {
	if p.segments == 1 && p.at == 0 {
		return "1 0" // without partitions it is always this
	}
	return strconv.Itoa(p.segments) + " " + strconv.Itoa(p.at)
}

// shards is how many keys a counter has in one partition.
func (c *Counter) shards(p place) int {
	if c.keys.quota {
		return p.segments
	}
	return 1
}

// parseLayout reads what layout has written.
func parseLayout(text string) (segments, at int, ok bool) {
	first, second, _ := strings.Cut(text, " ")
	segments, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	at, err = strconv.Atoi(second)
	return segments, at, err == nil && segments > 0 && at >= 0
}

// sum spreads values evenly over a few numbers. It is CRC-32 (IEEE), so that other languages find the same partition.
func sum(value string) int { return int(crc32.ChecksumIEEE([]byte(value))) }

// spread returns the value's number below n.
func spread(value string, n int) int {
	if n <= 1 {
		return 0
	}
	return sum(value) % n
}

// home is the partition in which everybody looks for an item first.
func (c *Counter) home(item string) int { return spread(item, c.keys.parts) }

// usual is where an item lies unless somebody has said otherwise.
func (c *Counter) usual(item string) place { return place{segments: 1, at: c.home(item)} }

// segment returns the partition of the item's n-th segment.
func (c *Counter) segment(p place, n int) int {
	if c.keys.parts == 0 {
		return 0
	}
	return (p.at + n) % c.keys.parts
}

// partOf returns the partition of a user's orders of an item: fixed by the user's hash, so that limit and request record
// stay with the counter.
func (c *Counter) partOf(p place, user string) int {
	if p.segments == 1 || c.keys.quota {
		return p.at
	}
	return c.segment(p, spread(user, p.segments))
}

// places remembers places that were learned, for each item and activity.
type places struct {
	m sync.Map // [2]string -> place
	n atomic.Int64
}

// mostPlaces bounds the memory; a place that was forgotten costs a round trip.
const mostPlaces = 10_000

func (p *places) load(item, activity string) (place, bool) {
	v, ok := p.m.Load([2]string{item, activity})
	if !ok {
		return place{}, false
	}
	return v.(place), true
}

func (p *places) store(item, activity string, at place) {
	if _, was := p.m.Swap([2]string{item, activity}, at); was {
		return
	}
	if p.n.Add(1) > mostPlaces {
		p.m.Clear()
		p.n.Store(0)
	}
}

// forget reports whether there was something to forget.
func (p *places) forget(item, activity string) bool {
	_, was := p.m.LoadAndDelete([2]string{item, activity})
	if was {
		p.n.Add(-1)
	}
	return was
}

// placeOf returns what is known about the place of a line's item, or the usual place.
func (c *Counter) placeOf(item, activity string) place {
	if p, ok := c.places.load(item, activity); ok {
		return p
	}
	return c.usual(item)
}

// redirected learns the right place from a script's answer {-20, line, scope or empty, layout}.
func (c *Counter) redirected(a answer, item, activity string) error {
	p := c.placeOf(item, activity)
	if scope := a.text(2); scope != "" {
		n, err := strconv.Atoi(scope)
		if err != nil || n > int(Variant) {
			return corrupt("switch")
		}
		p.over = Scope(n)
	}
	if layout := a.text(3); layout != "" {
		var ok bool
		if p.segments, p.at, ok = parseLayout(layout); !ok || p.at > max(c.keys.parts-1, 0) {
			return corrupt("switch")
		}
	}
	c.places.store(item, activity, p)
	return nil
}

// find makes sure that the place of an item is known, by asking for it if need be. An item that is not there lies in its
// usual place.
func (c *Counter) find(ctx context.Context, item, activity string) (place, error) {
	if p, ok := c.places.load(item, activity); ok {
		return p, nil
	}
	if c.keys.parts == 0 && !c.keys.quota {
		return c.usual(item), nil
	}
	v, err := c.look(ctx, c.home(item), item, 1)
	if err != nil {
		return place{}, err
	}
	p := c.usual(item)
	if v.layout != "" {
		var ok bool
		if p.segments, p.at, ok = parseLayout(v.layout); !ok {
			return place{}, corrupt("switch")
		}
	}
	c.places.store(item, activity, p)
	return p, nil
}
