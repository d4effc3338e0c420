package checker

import (
	"net/url"
	"strings"
)

const hour = int64(3600_000)

func unescape(text string) (string, bool) {
	plain, err := url.PathUnescape(text)
	return plain, err == nil
}

// sum adds up the segments of an item.
func (r *Redis) sum(it *item) {
	for _, s := range it.parts {
		state := s.fields["state"]
		if s.counter != "" {
			it.left += s.left
			it.counters[s.counter] = s.left
			if state == "" {
				r.ghosts = append(r.ghosts, s.counter)
			}
		}
		if state == "" {
			continue // no switch, or one that only remembers where the item lies
		}
		it.open = true
		values := map[string]*int64{
			"warmed": &it.warmed, "restocked": &it.restocked, "withdrawn": &it.withdrawn, "withheld": &it.withheld, "moving": &it.moving,
		}
		for name, to := range values {
			n, ok := number(s.fields[name])
			if !ok {
				r.strange = append(r.strange, s.switchName)
			}
			*to += n
		}
		ends, _ := number(s.fields["end"])
		it.ends = max(it.ends, ends)
		if s.counter == "" && r.now < ends+hour {
			it.gone = append(it.gone, strings.TrimSuffix(s.switchName, ":ctl"))
		}
		for name, text := range s.fields {
			if act, ok := strings.CutPrefix(name, "act:"); ok {
				r.activity(it, act, text)
			}
			if _, ok := strings.CutPrefix(name, "op:"); ok {
				it.ops = append(it.ops, text)
			}
		}
	}
}

// activity reads "start end limit most scope earliest".
func (r *Redis) activity(it *item, name, text string) {
	f := strings.Fields(text)
	if len(f) != 6 {
		r.strange = append(r.strange, it.name+" "+name)
		return
	}
	a := activity{over: map[string]string{"0": "item", "1": "activity", "2": "variant"}[f[4]]}
	a.ends, _ = number(f[1])
	a.limit, _ = number(f[2])
	it.activities[name] = a
}
