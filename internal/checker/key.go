package checker

import (
	"net/url"
	"strings"
)

// role is what a key is for.
type role int

const (
	other role = iota
	counterKey
	switchKey
	quotaKey // a quota's hash, and each of its shards
	markerKey
	requestKey
	holdKey
	streamKey
	deadKey
	deadlinesKey
	moveKey
)

// key is a key taken apart. Ids are unescaped.
type key struct {
	role  role
	part  string // two digits, empty in the flat keyspace
	quota bool
	item  string
	shard string
	id    string // of an order, a request or a transfer
	user  string
	act   string
	vary  string
	over  string // what a marker counts over: item, activity, variant
}

// parseKey takes a key apart, its prefix cut off.
func parseKey(name string) key {
	family, rest, ok := strings.Cut(name, ":")
	if !ok {
		return key{}
	}
	k := key{}
	if family == "req" && strings.HasPrefix(rest, "quota:") {
		k.quota, rest = true, rest[len("quota:"):]
	}
	if after, ok := strings.CutPrefix(rest, "{"); ok {
		if k.part, rest, ok = strings.Cut(after, "}:"); !ok {
			return key{}
		}
	}
	parts := strings.Split(rest, ":")
	for i := range parts {
		text, err := url.PathUnescape(parts[i])
		if err != nil {
			return key{}
		}
		parts[i] = text
	}
	switch family {
	case "stock", "quotas":
		k.quota = family == "quotas"
		k.stock(rest, parts)
	case "quota":
		k.quota, k.role, k.item = true, quotaKey, parts[0]
		if len(parts) == 2 {
			k.shard = parts[1]
		}
	case "req":
		if len(parts) == 1 {
			k.role, k.id = requestKey, parts[0]
		}
	case "limit":
		k.marker(parts)
	}
	return k
}

func (k *key) stock(rest string, parts []string) {
	switch {
	case rest == "orders":
		k.role = streamKey
	case rest == "orders:dead":
		k.role = deadKey
	case rest == "deadlines":
		k.role = deadlinesKey
	case len(parts) < 2:
	case parts[0] == "item" && len(parts) == 2:
		k.role, k.item = counterKey, parts[1]
	case parts[0] == "item" && len(parts) == 3 && parts[2] == "ctl":
		k.role, k.item = switchKey, parts[1]
	case parts[0] == "hold" && len(parts) == 2:
		k.role, k.id = holdKey, parts[1]
	case parts[0] == "move" && len(parts) == 2:
		k.role, k.id = moveKey, parts[1]
	}
}

func (k *key) marker(parts []string) {
	if len(parts)%2 != 0 {
		return
	}
	k.role, k.over = markerKey, "activity"
	for i := 0; i < len(parts); i += 2 {
		switch parts[i] {
		case "user":
			k.user = parts[i+1]
		case "item":
			k.item, k.over = parts[i+1], "item"
		case "var":
			k.vary, k.over = parts[i+1], "variant"
		case "act":
			k.act = parts[i+1]
		}
	}
}
