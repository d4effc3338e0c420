package stock

import (
	"net/url"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// keyspace makes the keys. Every value in a key is escaped; parts are joined by colons, so no two keys are the same
// unless they mean the same.
//
// In the partitioned keyspace each family carries its partition as a hash tag, stock:{07}:item:1001: the keys that one
// script touches share a slot. Quotas and tokens have families of their own.
type keyspace struct {
	prefix string
	parts  int // 0: flat
	quota  bool
	tokens bool
}

// start begins a key with its family and partition: "stock:" or "stock:{07}:".
func (k *keyspace) start(family string, part int) []byte {
	b := make([]byte, 0, 96)
	b = append(b, k.prefix...)
	b = append(b, family...)
	b = append(b, ':')
	if k.parts > 0 {
		b = append(b, '{')
		b = appendPart(b, part)
		b = append(b, '}', ':')
	}
	return b
}

// appendPart appends a partition's two digits.
func appendPart(b []byte, part int) []byte {
	return append(b, byte('0'+part/10), byte('0'+part%10))
}

// item is what all keys of one item begin with: its counter, but for a quota in shards.
func (k *keyspace) item(part int, item string) string {
	if k.quota {
		return string(keyesc.Append(k.start("quota", part), item))
	}
	return string(keyesc.Append(append(k.start("stock", part), "item:"...), item))
}

// controlEnd is what the key of a switch has behind that of its counter; a quota's item may end so too, but escaped.
const controlEnd = ":ctl"

// control is the item's switch. A quota keeps it in its own hash.
func (k *keyspace) control(part int, item string) string {
	if k.quota {
		return k.item(part, item)
	}
	return string(append(keyesc.Append(append(k.start("stock", part), "item:"...), item), controlEnd...))
}

// appendCounter appends the keys of the item's counter: one, or all shards of a quota.
func (k *keyspace) appendCounter(keys []string, part int, item string, shards int) []string {
	first := k.item(part, item)
	if shards == 1 {
		return append(keys, first)
	}
	for n := range shards {
		keys = append(keys, first+":"+strconv.Itoa(n))
	}
	return keys
}

func (k *keyspace) request(part int, id string) string {
	if k.quota {
		return string(keyesc.Append(k.start("req:quota", part), id))
	}
	if k.tokens {
		return string(keyesc.Append(k.start("req:tokens", part), id))
	}
	return string(keyesc.Append(k.start("req", part), id))
}

// family is the family of what belongs to no single item.
func (k *keyspace) family() string {
	switch {
	case k.quota:
		return "quotas"
	case k.tokens:
		return "tokens"
	}
	return "stock"
}

func (k *keyspace) hold(part int, order string) string {
	return string(keyesc.Append(append(k.start(k.family(), part), "hold:"...), order))
}

func (k *keyspace) deadlines(part int) string {
	return string(append(k.start(k.family(), part), "deadlines"...))
}

func (k *keyspace) stream(part int) string {
	return string(append(k.start(k.family(), part), "orders"...))
}

func (k *keyspace) transfer(part int, id string) string {
	return string(keyesc.Append(append(k.start("stock", part), "move:"...), id))
}

func (k *keyspace) transfers(part int) string {
	return string(append(k.start("stock", part), "moves"...))
}

// activity remembers where the items of an activity lie whose limit counts over all of them.
func (k *keyspace) activity(part int, activity string) string {
	return string(keyesc.Append(append(k.start("stock", part), "act:"...), activity))
}

// partitions remembers how many partitions there are. It is one key, whatever their number.
func (k *keyspace) partitions() string { return k.prefix + k.family() + ":partitions" }

// channel is where counters that were empty and are so no longer are told.
func (k *keyspace) channel() string { return k.prefix + k.family() + ":again" }

// marker names exactly the parts that the limit counts over.
func (k *keyspace) marker(part int, over Scope, l *line) string {
	b := append(k.start("limit", part), "user:"...)
	b = keyesc.Append(b, l.user)
	if over != Activity {
		b = append(b, ":item:"...)
		b = keyesc.Append(b, l.item)
	}
	if over == Variant {
		b = append(b, ":var:"...)
		b = keyesc.Append(b, l.variant)
	}
	b = append(b, ":act:"...)
	return string(keyesc.Append(b, l.activity))
}

// tokenKeys are the keys of one sale of tokens.
type tokenKeys struct {
	control, list, taken, users string
}

func (k *keyspace) sale(part int, item, activity string) tokenKeys {
	b := append(k.start("tokens", part), "item:"...)
	b = append(keyesc.Append(b, item), ":act:"...)
	list := string(keyesc.Append(b, activity))
	return tokenKeys{control: list + ":ctl", list: list, taken: list + ":taken", users: list + ":users"}
}

// unescape undoes the escaping; ids are short enough never to have been hashed.
func unescape(text string) (string, error) { return url.PathUnescape(text) }
