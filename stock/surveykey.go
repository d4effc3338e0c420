package stock

import "strings"

// keyRole is what a key is for.
type keyRole uint8

const (
	roleOther keyRole = iota // not a Counter's, or nothing that is compared
	roleCounter
	roleSwitch
	roleMarker
	roleRequest
	roleHold
	roleStream
	roleDead
	rolePlain // deadlines, transfers and the like: only their TTL matters
)

// keyParts is a key taken apart; ids are unescaped.
type keyParts struct {
	role                          keyRole
	part                          int
	item, user, variant, activity string
	id                            string // of the request or the order
}

// parse takes a key apart. Keys of other families, and of other Counters, are roleOther.
func (k *keyspace) parse(key string) keyParts {
	rest, ours := strings.CutPrefix(key, k.prefix)
	if !ours {
		return keyParts{}
	}
	family, rest, ok := strings.Cut(rest, ":")
	if !ok {
		return keyParts{}
	}
	var p keyParts
	if k.parts > 0 && rest != "partitions" {
		if len(rest) < 5 || rest[0] != '{' || rest[3:5] != "}:" || rest[1] < '0' || rest[1] > '9' || rest[2] < '0' || rest[2] > '9' {
			return keyParts{}
		}
		p.part, rest = int(rest[1]-'0')*10+int(rest[2]-'0'), rest[5:]
	}
	words := strings.Split(rest, ":")
	for i := range words {
		text, err := unescape(words[i])
		if err != nil {
			return keyParts{}
		}
		words[i] = text
	}
	switch family {
	case "stock":
		p.ofStock(words)
	case "limit":
		p.ofLimit(words)
	case "req":
		if len(words) == 1 {
			p.role, p.id = roleRequest, words[0]
		}
	}
	return p
}

func (p *keyParts) ofStock(words []string) {
	n := len(words)
	switch words[0] {
	case "item":
		if n == 2 {
			p.role, p.item = roleCounter, words[1]
		}
		if n == 3 && words[2] == "ctl" {
			p.role, p.item = roleSwitch, words[1]
		}
	case "hold":
		if n == 2 {
			p.role, p.id = roleHold, words[1]
		}
	case "orders":
		if n == 1 {
			p.role = roleStream
		}
		if n == 2 && words[1] == "dead" {
			p.role = roleDead
		}
	case "deadlines", "moves", "partitions", "move", "act":
		p.role = rolePlain
	}
}

func (p *keyParts) ofLimit(words []string) {
	if len(words)%2 != 0 {
		return
	}
	for i := 0; i < len(words); i += 2 {
		to := map[string]*string{"user": &p.user, "item": &p.item, "var": &p.variant, "act": &p.activity}[words[i]]
		if to == nil {
			return
		}
		*to = words[i+1]
	}
	p.role = roleMarker
}
