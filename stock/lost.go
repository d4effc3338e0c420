package stock

import (
	"context"
	"strconv"
	"strings"
)

// A segment may be lost whole, switch and counter: its node has come back empty, or both were evicted. The other segments
// know the item's layout, so it is missed; and they know, once all segments have been warmed up, that it was there before, so
// that nobody warms it up a second time with units that are sold. It is made again as a counter is: with units that a
// comparison with SQL has found, by Restore.

// model is what the other segments say about one that is lost.
type model struct {
	state  string
	layout string
	ends   int64
	whole  int64             // units that the whole item was warmed up with
	fields map[string]string // others of the switch that all segments have
}

// modelOf reads the segments of an item but one. An item of which none knows that all were there once is not warmed up.
func (c *Counter) modelOf(ctx context.Context, item string, p place, lost int) (*model, error) {
	m := &model{state: stateOpen, layout: p.layout(), fields: map[string]string{}}
	for i := range p.segments {
		part := c.segment(p, i)
		if i == lost {
			continue
		}
		a, err := c.run(ctx, c.scripts.survey, []string{c.keys.control(part, item), c.keys.item(part, item)})
		if err != nil {
			return nil, reading(err)
		}
		if a.code() != 0 {
			continue // lost too
		}
		for f := 3; f+1 < len(a); f += 2 {
			if err := m.learn(a.text(f), a.text(f+1)); err != nil {
				return nil, err
			}
		}
	}
	if m.whole == 0 {
		return nil, fail(ErrNotWarmed, "no segment knows that the item was warmed up wholly: call Warm again")
	}
	return m, nil
}

// learn adds a field of another segment's switch.
func (m *model) learn(name, value string) error {
	number := map[string]*int64{"end": &m.ends, "whole": &m.whole}[name]
	switch {
	case number != nil:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return corrupt("switch")
		}
		*number = max(*number, n)
	case name == "state":
		m.state = closer(m.state, value)
	case strings.HasPrefix(name, "act:"), name == "anew", name == "paused":
		m.fields[name] = value
	}
	return nil
}

// closer returns which of two states keeps a sale shut more firmly.
func closer(a, b string) string {
	for _, state := range []string{stateFrozen, statePaused} {
		if a == state || b == state {
			return state
		}
	}
	return stateOpen
}

// remake makes a segment again that is lost whole.
func (c *Counter) remake(ctx context.Context, item string, p place, lost int, units int64, operation, operator string) (answer, error) {
	m, err := c.modelOf(ctx, item, p, lost)
	if err != nil {
		return nil, err
	}
	part := c.segment(p, lost)
	args := []any{
		units, operation, operator, m.state, m.layout, m.ends, share(m.whole, p.segments, lost), m.whole, c.keys.channel(), item,
	}
	for field, value := range m.fields {
		args = append(args, field, value)
	}
	a, err := c.run(ctx, c.scripts.segment, []string{c.keys.control(part, item), c.keys.item(part, item)}, args...)
	if err == nil && a.code() == -4 {
		err = fail(ErrStray, "a segment's switch is lost and its counter is there: remove the counter, then Restore")
	}
	return a, err
}

// search looks in every partition for the place of an item whose home does not know it any more. usual is where it lies if
// none does.
func (c *Counter) search(ctx context.Context, item string, usual place) (place, error) {
	home, err := c.look(ctx, c.home(item), item, 1)
	if err != nil || home.layout != "" {
		return usual, err
	}
	for part := range c.keys.parts {
		v, err := c.look(ctx, part, item, 1)
		if err != nil {
			return place{}, err
		}
		if segments, at, ok := parseLayout(v.layout); ok {
			p := place{segments: segments, at: at}
			c.places.store(item, "", p)
			return p, nil
		}
	}
	return usual, nil
}
