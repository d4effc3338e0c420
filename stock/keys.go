package stock

import (
	"net/url"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// keyspace makes the keys. Every value in a key is escaped; parts are joined by colons.
type keyspace struct {
	prefix string
}

func esc(value string) string { return string(keyesc.Append(nil, value)) }

// key joins the family, its partition and the rest; values is a sequence of name, value, name, value.
func (k keyspace) key(family, first string, more ...string) string {
	b := make([]byte, 0, 96)
	b = append(b, k.prefix...)
	b = append(b, family...)
	b = append(b, ':')
	b = keyesc.Append(b, first)
	for i, part := range more {
		b = append(b, ':')
		if i%2 == 0 {
			b = append(b, part...)
		} else {
			b = keyesc.Append(b, part)
		}
	}
	return string(b)
}

func (k keyspace) counter(item string) string { return k.key("stock:item", item) }
func (k keyspace) control(item string) string { return k.key("stock:item", item, "ctl") }
func (k keyspace) request(id string) string   { return k.key("req", id) }
func (k keyspace) hold(order string) string   { return k.key("stock:hold", order) }
func (k keyspace) deadlines() string          { return k.prefix + "stock:deadlines" }
func (k keyspace) stream() string             { return k.prefix + "stock:orders" }

// marker names exactly the parts that the limit counts over.
func (k keyspace) marker(over Scope, l *line) string {
	switch over {
	case Activity:
		return k.key("limit:user", l.user, "act", l.activity)
	case Variant:
		return k.key("limit:user", l.user, "item", l.item, "var", l.variant, "act", l.activity)
	}
	return k.key("limit:user", l.user, "item", l.item, "act", l.activity)
}

// unescape undoes esc; ids are short enough never to have been hashed.
func unescape(text string) (string, error) { return url.PathUnescape(text) }

func parseUnits(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
