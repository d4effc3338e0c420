package lockkey

import (
	"errors"
	"net/textproto"
	"net/url"
	"strings"
)

// read returns the value that the part stands for, as the request has it.
func (p *part) read(q *request) (string, *KeyError) {
	switch p.source {
	case param, wildcard:
		return p.pathValue(q)
	case header:
		return p.headerValue(q)
	case query:
		return p.queryValue(q)
	case body:
		return p.member(q)
	}
	return p.registeredValue(q)
}

// append appends a value that was read, in the form that the part asks for.
func (p *part) append(b []byte, v string) ([]byte, *KeyError) {
	if v == "" {
		return b, p.invalid("is empty")
	}
	if len(v) > maxRaw {
		return b, p.invalid("is longer than 8 KiB")
	}
	b, fault := p.kind.append(b, v)
	if fault != "" {
		return b, p.invalid(fault)
	}
	return b, nil
}

// invalid says what is wrong with the value. A registered value is never the client's fault.
func (p *part) invalid(fault string) *KeyError {
	e := &KeyError{Reason: p.label() + " " + fault, sentinel: ErrInvalid}
	if p.source == registered {
		e.sentinel = ErrMisuse
	}
	return e
}

func (p *part) missing() *KeyError {
	e := p.invalid("is absent")
	e.absent = true
	return e
}

// headerValue returns the only line of a header, without the white space around it, which is not part of the value
// (RFC 9110, 5.5).
func (p *part) headerValue(q *request) (string, *KeyError) {
	lines := q.Header[p.name]
	switch len(lines) {
	case 0:
		return "", p.missing()
	case 1:
		return textproto.TrimString(lines[0]), nil
	}
	return "", p.invalid("is there more than once")
}

// queryValue returns the only value of a query parameter. It reads the raw query as net/url does, without making a map
// of it; but what net/url drops as malformed it refuses, if it has the parameter's name.
func (p *part) queryValue(q *request) (string, *KeyError) {
	value, count := "", 0
	for rest := q.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		k, v, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(k); err != nil || name != p.name || pair == "" {
			continue
		}
		v, err := url.QueryUnescape(v)
		if err != nil || strings.Contains(pair, ";") {
			return "", p.invalid("is malformed")
		}
		value = v
		count++
	}
	switch count {
	case 0:
		return "", p.missing()
	case 1:
		return value, nil
	}
	return "", p.invalid("is there more than once")
}

// registeredValue asks the service for the value.
func (p *part) registeredValue(q *request) (string, *KeyError) {
	v, err := p.value(q.Request)
	if err == nil {
		return v, nil
	}
	e := p.invalid("failed")
	e.cause = err
	var answer interface{ HTTPStatus() int }
	if errors.As(err, &answer) {
		if s := answer.HTTPStatus(); 400 <= s && s <= 599 {
			e.status = s
			if s < 500 {
				e.sentinel = ErrInvalid
			}
		}
	}
	return "", e
}
