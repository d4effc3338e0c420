package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is what lies in Redis under one prefix.
type Redis struct {
	now     int64 // Unix milliseconds, by the server's clock
	items   map[string]*item
	proofs  map[string]*proof  // by order
	records map[string][]proof // by request, as many as there are partitions that have one
	marks   []mark
	landing []entry // in the streams
	dead    []entry
	due     map[due]int64 // Unix milliseconds at which a hold is swept, once they have passed
	eternal []string
	strange []string
	ghosts  []string
	opened  []string // requests of several lines that are under way
}

// item is one item, all segments summed up. A quota is named quota:<id>.
type item struct {
	name                                         string
	counters                                     map[string]int64 // by key
	parts                                        map[string]*segment
	left, moving                                 int64
	warmed, restocked, withdrawn, withheld, ends int64
	open                                         bool // there is a switch
	gone                                         []string
	activities                                   map[string]activity
	ops                                          []string
}

type segment struct {
	counter    string // key, empty if there is none
	left       int64
	fields     map[string]string // of the switch, nil if there is none
	switchName string
}

type activity struct {
	ends  int64
	limit int64
	over  string
}

// proof is what says that units are held: a hold, or without holds a request record.
type proof struct {
	order, request                string
	item, variant, activity, user string
	units, confirmed, released    int64
	state                         string

	hold     bool   // a hold of its own, not a request record
	part     string // of the hold
	deadline int64  // of the hold, Unix milliseconds
}

// open is how many units of it have not ended yet.
func (p *proof) open() int64 { return p.units - p.confirmed - p.released }

// due is an order that has a deadline, in one partition.
type due struct {
	part  string
	quota bool
	order string
}

func (p *proof) kept() int64 { return p.units - p.released }

type mark struct {
	key
	name, order string
	units       int64
}

type entry struct {
	order, request, item, activity, user string
	units                                int64
}

// raw is a key as it was read.
type raw struct {
	name, kind string
	ttl        time.Duration
	text       string
	fields     map[string]string
	entries    []redis.XMessage
	scores     []redis.Z
}

// ReadRedis reads everything under the prefix, from every master of a cluster, with SCAN. It changes nothing.
func ReadRedis(ctx context.Context, rdb redis.UniversalClient, prefix string) (*Redis, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("checker: Redis: %w", err)
	}
	var all []raw
	err = scan(ctx, rdb, prefix, func(ctx context.Context, names []string) error {
		got, err := fetch(ctx, rdb, names)
		all = append(all, got...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("checker: Redis: %w", err)
	}
	r := &Redis{now: now.UnixMilli(), items: map[string]*item{}, proofs: map[string]*proof{}, records: map[string][]proof{}, due: map[due]int64{}}
	for i := range all {
		r.take(&all[i], strings.TrimPrefix(all[i].name, prefix))
	}
	for _, it := range r.items {
		r.sum(it)
	}
	return r, nil
}

// scan calls fn with the keys of each master, each key once. fn is not called by two goroutines at once.
func scan(ctx context.Context, rdb redis.UniversalClient, prefix string, fn func(ctx context.Context, names []string) error) error {
	var mu sync.Mutex
	one := func(ctx context.Context, node redis.Cmdable) error {
		var names []string
		for cursor := uint64(0); ; {
			found, next, err := node.Scan(ctx, cursor, escapePattern(prefix)+"*", 1000).Result()
			if err != nil {
				return err
			}
			names = append(names, found...)
			if cursor = next; cursor == 0 {
				break
			}
		}
		slices.Sort(names) // SCAN may return a key twice
		mu.Lock()
		defer mu.Unlock()
		return fn(ctx, slices.Compact(names))
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return one(ctx, node) })
	}
	return one(ctx, rdb)
}

func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// fetch reads keys whole, a few hundred with one round trip.
func fetch(ctx context.Context, rdb redis.UniversalClient, names []string) ([]raw, error) {
	var all []raw
	for chunk := range slices.Chunk(names, 300) {
		kinds := make([]*redis.StatusCmd, len(chunk))
		ttls := make([]*redis.DurationCmd, len(chunk))
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range chunk {
				kinds[i], ttls[i] = p.Type(ctx, name), p.PTTL(ctx, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		got := make([]raw, len(chunk))
		reads := make([]redis.Cmder, len(chunk))
		_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range chunk {
				got[i] = raw{name: name, kind: kinds[i].Val(), ttl: ttls[i].Val()}
				switch got[i].kind {
				case "string":
					reads[i] = p.Get(ctx, name)
				case "hash":
					reads[i] = p.HGetAll(ctx, name)
				case "zset":
					reads[i] = p.ZRangeWithScores(ctx, name, 0, -1)
				case "stream":
					reads[i] = p.XRange(ctx, name, "-", "+")
				}
			}
			return nil
		})
		if err != nil && !isNil(err) {
			return nil, err
		}
		for i, read := range reads {
			switch read := read.(type) {
			case *redis.StringCmd:
				got[i].text = read.Val()
			case *redis.MapStringStringCmd:
				got[i].fields = read.Val()
			case *redis.ZSliceCmd:
				got[i].scores = read.Val()
			case *redis.XMessageSliceCmd:
				got[i].entries = read.Val()
			}
		}
		all = append(all, slices.DeleteFunc(got, func(r raw) bool { return r.kind == "none" })...)
	}
	return all, nil
}

func isNil(err error) bool { return err == redis.Nil } //nolint:errorlint // the pipeline returns it bare

// take files a key under its role.
func (r *Redis) take(v *raw, name string) {
	if v.ttl == -1 {
		r.eternal = append(r.eternal, v.name)
	}
	k := parseKey(name)
	ok := true
	switch k.role {
	case counterKey:
		s := r.segment(k)
		s.counter = v.name
		s.left, ok = number(v.text)
	case switchKey:
		s := r.segment(k)
		s.fields, s.switchName = v.fields, v.name
		ok = v.kind == "hash"
	case quotaKey:
		ok = r.quota(k, v)
	case markerKey:
		ok = r.marker(k, v)
	case requestKey:
		ok = r.request(k, v)
	case holdKey:
		ok = r.hold(k, v)
	case streamKey:
		r.landing = append(r.landing, entries(v.entries)...)
	case deadKey:
		r.dead = append(r.dead, entries(v.entries)...)
	case deadlinesKey:
		ok = r.deadlines(k, v)
	}
	if !ok {
		r.strange = append(r.strange, v.name)
	}
}

// quotaPrefix is in front of the id of a quota, where an item is named.
const quotaPrefix = "quota:"

func (k *key) itemName() string {
	if k.quota {
		return quotaPrefix + k.item
	}
	return k.item
}

func (r *Redis) segment(k key) *segment {
	name := k.itemName()
	it := r.items[name]
	if it == nil {
		it = &item{name: name, counters: map[string]int64{}, parts: map[string]*segment{}, activities: map[string]activity{}}
		r.items[name] = it
	}
	if it.parts[k.part] == nil {
		it.parts[k.part] = &segment{}
	}
	return it.parts[k.part]
}

func (r *Redis) quota(k key, v *raw) bool {
	s := r.segment(k)
	if v.kind != "hash" {
		return false
	}
	if k.shard == "" {
		s.fields, s.switchName = v.fields, v.name
	}
	if text, there := v.fields["remain"]; there {
		left, ok := number(text)
		s.counter, s.left = v.name, s.left+left
		return ok
	}
	return k.shard == ""
}

func (r *Redis) marker(k key, v *raw) bool {
	ok := v.kind == "hash"
	for order, text := range v.fields {
		if order == "" { // the highest number that an order has had
			_, fine := number(text)
			ok = ok && fine
			continue
		}
		units, _, _ := strings.Cut(text, ":")
		n, fine := number(units)
		ok = ok && fine
		r.marks = append(r.marks, mark{key: k, name: v.name, order: order, units: n})
	}
	return ok
}

func (r *Redis) request(k key, v *raw) bool {
	f := v.fields
	if f["state"] == "open" {
		r.opened = append(r.opened, v.name)
	}
	if f["state"] == "undone" || f["state"] == "open" || f["state"] == "refused" || strings.HasPrefix(f["what"], "=") {
		return v.kind == "hash" // a whole order, or one that was taken back
	}
	p := proof{order: f["order"], request: k.id, state: cmp.Or(f["state"], "held")}
	if v.kind != "hash" || p.order == "" || !p.read(f, k.quota) {
		return false
	}
	r.records[k.id] = append(r.records[k.id], p)
	if strings.HasSuffix(f["taken"], " 1") { // without a hold the record is the proof
		r.proofs[p.order] = &p
	}
	return true
}

func (r *Redis) hold(k key, v *raw) bool {
	p := proof{order: k.id, request: v.fields["request"], hold: true, part: k.part}
	if v.kind != "hash" || p.request == "" || !p.read(v.fields, k.quota) {
		return false
	}
	taken := strings.Fields(v.fields["taken"])
	if len(taken) != 3 {
		return false
	}
	r.proofs[p.order] = &p
	var ok bool
	p.deadline, ok = number(taken[2])
	return ok
}

func (r *Redis) deadlines(k key, v *raw) bool {
	for _, z := range v.scores {
		order, _ := z.Member.(string)
		r.due[due{k.part, k.quota, order}] = int64(z.Score)
	}
	return v.kind == "zset"
}

// read reads what units are for: item, variant, activity, user and units, escaped, with colons between.
func (p *proof) read(f map[string]string, quota bool) bool {
	k := key{quota: quota}
	parts := strings.Split(f["what"], ":")
	if len(parts) != 5 {
		return false
	}
	for i, to := range []*string{&k.item, &p.variant, &p.activity, &p.user} {
		text, ok := unescape(parts[i])
		if !ok {
			return false
		}
		*to = text
	}
	p.item = k.itemName()
	var ok bool
	if p.units, ok = number(parts[4]); !ok {
		return false
	}
	for name, to := range map[string]*int64{"confirmed": &p.confirmed, "released": &p.released} {
		if text, there := f[name]; there {
			if *to, ok = number(text); !ok {
				return false
			}
		}
	}
	return true
}

func entries(from []redis.XMessage) []entry {
	var all []entry
	for _, m := range from {
		text := func(name string) string { s, _ := m.Values[name].(string); return s }
		var p proof
		p.read(map[string]string{"what": text("what")}, false)
		all = append(all, entry{
			order: text("order"), request: text("request"), item: p.item, activity: p.activity, user: p.user, units: p.units,
		})
	}
	return all
}

// number reads plain digits, as the scripts do; a counter below zero is read too, to be reported.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}
