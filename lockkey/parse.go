package lockkey

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// shared is the word that a scope may be without a placeholder.
const shared = "all"

// parser reads one template from left to right.
type parser struct {
	src    string
	config *config
	parts  []part
	count  int  // placeholders so far
	every  bool // one of them has "#"
}

func (p *parser) fail(offset int, reason, instead string) error {
	return &ParseError{Template: p.src, Offset: offset, Reason: reason, Instead: instead}
}

func (p *parser) parse() (*Template, error) {
	if err := p.checkText(); err != nil {
		return nil, err
	}
	for pos := 0; pos < len(p.src); {
		n := strings.IndexAny(p.src[pos:], "{}")
		if n < 0 {
			n = len(p.src) - pos
		}
		if n > 0 {
			p.parts = append(p.parts, part{text: p.src[pos : pos+n]})
			pos += n
			continue
		}
		end, err := p.placeholder(pos)
		if err != nil {
			return nil, err
		}
		pos = end
	}
	return p.finish()
}

// checkText checks what is asked of the template as a whole.
func (p *parser) checkText() error {
	if p.src == "" {
		return p.fail(0, "it is empty", `write a name and what tells one resource from another, like "stock:{itemID}"`)
	}
	if len(p.src) > maxTemplate {
		return p.fail(maxTemplate, fmt.Sprintf("it has %d bytes", len(p.src)), fmt.Sprintf("write at most %d", maxTemplate))
	}
	for i, r := range p.src {
		if r == utf8.RuneError && !strings.HasPrefix(p.src[i:], string(utf8.RuneError)) {
			return p.fail(i, "it is not valid UTF-8", "write UTF-8")
		}
		if unicode.IsControl(r) {
			return p.fail(i, "it has a control character", "leave it out")
		}
	}
	return nil
}

// placeholder reads the placeholder that begins at pos and returns where it ends.
func (p *parser) placeholder(pos int) (int, error) {
	if p.src[pos] == '}' {
		return 0, p.fail(pos, "'}' without '{'", "leave it out: a key has no braces")
	}
	n := strings.IndexAny(p.src[pos+1:], "{}")
	if n < 0 {
		return 0, p.fail(pos, "the placeholder is not closed", "write '}' after it")
	}
	end := pos + 1 + n
	if p.src[end] == '{' {
		return 0, p.fail(end, "'{' inside a placeholder", "close the placeholder before it with '}'")
	}
	if p.count++; p.count > maxPlaceholders {
		return 0, p.fail(pos, "too many placeholders", fmt.Sprintf("write at most %d", maxPlaceholders))
	}
	ph, err := p.source(pos+1, p.src[pos+1:end])
	if err != nil {
		return 0, err
	}
	if err := p.separated(pos, ph); err != nil {
		return 0, err
	}
	p.parts = append(p.parts, ph)
	return end + 1, nil
}

// source reads the inside of a placeholder, which begins at pos.
func (p *parser) source(pos int, inside string) (part, error) {
	ref, suffix, hasSuffix := strings.Cut(inside, "|")
	ph := part{text: "{" + inside + "}"}
	if hasSuffix {
		var ok bool
		if ph.kind, ok = kinds[suffix]; !ok {
			return ph, p.fail(pos+len(ref)+1, fmt.Sprintf("unknown suffix %q", suffix), "write |int, |uuid or |sf")
		}
	}
	where, name, dotted := strings.Cut(ref, ".")
	after := pos + len(where) + 1
	switch {
	case !dotted:
		return p.plain(pos, ref, ph)
	case where == "header":
		return p.header(after, name, ph)
	case where == "query":
		if name == "" {
			return ph, p.fail(after, "the query parameter has no name", "write {query.name}")
		}
		ph.source, ph.name = query, name
		return ph, nil
	case where == "body":
		return p.body(after, name, ph)
	}
	return ph, p.fail(pos, fmt.Sprintf("unknown source %q", where),
		"write {header.…}, {query.…}, {body.…} or a {name} without a dot")
}

// plain reads {name}: a registered value or a param of the route.
func (p *parser) plain(pos int, name string, ph part) (part, error) {
	ph.name = name
	switch {
	case name == "*":
		ph.source = wildcard
	case !isName(name):
		return ph, p.fail(pos, fmt.Sprintf("%q is not a name", name),
			"write the name of a route param or of a registered value: letters, digits, '_' and '-'")
	case p.config.values[name] != nil:
		ph.source, ph.value = registered, p.config.values[name]
	default:
		ph.source = param
	}
	return ph, nil
}

// refusedHeaders maps the headers that a template must not name to the reason. net/http takes Host, Transfer-Encoding
// and Trailer out of the header before a handler sees it, so the first could only ever be absent.
var refusedHeaders = map[string]string{
	"Authorization":       "a credential is not a name: it rotates, and several stand for one principal",
	"Cookie":              "a credential is not a name: it rotates, and several stand for one principal",
	"Proxy-Authorization": "a credential is not a name: it rotates, and several stand for one principal",
	"Host":                "the client chooses it, and net/http keeps it out of the header",
	"Trailer":             "net/http keeps it out of the header",
	"Transfer-Encoding":   "net/http keeps it out of the header",
}

func (p *parser) header(pos int, name string, ph part) (part, error) {
	if !isToken(name) {
		return ph, p.fail(pos, fmt.Sprintf("%q is not a header name", name), "write one like {header.X-Merchant}")
	}
	name = http.CanonicalHeaderKey(name)
	if why, refused := refusedHeaders[name]; refused {
		return ph, p.fail(pos, name+" is refused: "+why, "register what you need with WithValue and write its {name}")
	}
	ph.source, ph.name = header, name
	ph.text = "{header." + name + ph.kind.suffix() + "}"
	return ph, nil
}

func (p *parser) body(pos int, name string, ph part) (part, error) {
	path, bad := parsePath(name)
	if bad >= 0 {
		return ph, p.fail(pos+bad, "a body path has an empty name", "write member names joined by single dots, like {body.order.id}")
	}
	if len(path) > maxDepth {
		return ph, p.fail(pos, fmt.Sprintf("a body path of %d names", len(path)), fmt.Sprintf("write at most %d", maxDepth))
	}
	ph.source, ph.name, ph.path = body, name, path
	for _, s := range path {
		if !s.every {
			continue
		}
		if p.config.single || p.config.scope {
			return ph, p.fail(pos, "'#' gives several keys, and one is needed", "write an array index or another member")
		}
		if p.every {
			return ph, p.fail(pos, "'#' a second time", "write '#' once; use a second template for the other list")
		}
		p.every = true
	}
	return ph, nil
}

// separated checks that the placeholder at pos can be told from the one before it: {a}{b} and {a}-{b} would give one
// key to different values.
func (p *parser) separated(pos int, ph part) error {
	n := len(p.parts)
	if n == 0 || n == 1 && p.parts[0].source == literal {
		return nil
	}
	before, between := p.parts[n-1], ""
	if before.source == literal {
		before, between = p.parts[n-2], before.text
	}
	if strings.ContainsFunc(between, func(r rune) bool { return !keyesc.May(r) }) {
		return nil
	}
	return p.fail(pos, "nothing separates it from "+before.text+": different values would give one key",
		"write "+before.text+":"+ph.text)
}

// finish checks what the options ask of the whole.
func (p *parser) finish() (*Template, error) {
	if p.count == 0 && p.config.scope && p.src != shared {
		return nil, p.fail(0, "a scope without a placeholder is one scope for everybody",
			fmt.Sprintf("write who is asking, like {userID}, or the word %q to share on purpose", shared))
	}
	if p.count == 0 && p.config.single && !p.config.scope {
		return nil, p.fail(0, "without a placeholder every request has the same key", "write what tells one request from another, like {header.Idempotency-Key|sf}")
	}
	return newTemplate(p.parts), nil
}

// isName reports whether s can be the name of a param or a registered value in a template.
func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// isToken reports whether s is a token of RFC 9110, 5.6.2, the form of a header name. '|' would be one of its
// characters, but begins a suffix here.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r >= utf8.RuneSelf || !keyesc.Safe(byte(r)) && !strings.ContainsRune("!#$%&'*+^`", r)
	})
}
