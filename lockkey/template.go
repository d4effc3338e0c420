package lockkey

import (
	"net/http"
	"slices"
	"strings"
)

// Limits. Values that are longer are refused, not cut.
const (
	maxTemplate     = 256      // bytes of a template
	maxPlaceholders = 8        // of a template
	maxKeys         = 32       // different keys of one request
	maxRaw          = 8 << 10  // bytes of one value, before it is escaped
	maxBody         = 64 << 10 // bytes of a body that nobody has buffered before
	maxDepth        = 32       // nested objects and arrays of a JSON body
)

// Template is a parsed key template. Get one from [Parse]; the zero value has no use. It is immutable and safe for
// concurrent use.
type Template struct {
	parts  []part
	text   string
	each   int  // index of the part with "#", or none
	params bool // some part reads a param of the route
}

// part is a literal or a placeholder.
type part struct {
	source source
	text   string // the literal, or the placeholder as it is printed, with braces
	name   string // of the param, header, query parameter or registered value; the dotted path of a body member
	kind   kind
	path   []step                              // of a body member
	value  func(*http.Request) (string, error) // of a registered value
}

type source uint8

const (
	literal source = iota
	param
	wildcard
	header
	query
	body
	registered
)

// Parse reads a template. An error is a [*ParseError], or several joined when options are at fault: it names the byte
// and what to write instead. A template has at most 256 bytes and 8 placeholders, valid UTF-8 and no control
// characters. Parse is for start-up: whether the template fits its route, [Template.Check] says.
func Parse(template string, opts ...Option) (*Template, error) {
	var c config
	if err := c.apply(template, opts); err != nil {
		return nil, err
	}
	p := parser{src: template, config: &c}
	t, err := p.parse()
	if err != nil {
		return nil, err
	}
	return t, nil
}

// String returns the template, header names in their canonical spelling. It holds no value of any request, so it may
// be an attribute of spans and metrics. Parsed again, it gives the same template.
func (t *Template) String() string { return t.text }

// Namespace returns the literal text before the first placeholder: "stock:" for "stock:{itemID}", the whole template
// when it has no placeholder, "" when it begins with one.
func (t *Template) Namespace() string {
	if t.parts[0].source == literal {
		return t.parts[0].text
	}
	return ""
}

// newTemplate makes a template of parts, at least one.
func newTemplate(parts []part) *Template {
	t := &Template{parts: parts, each: none}
	var text strings.Builder
	for i, p := range parts {
		text.WriteString(p.text)
		t.params = t.params || p.source == param || p.source == wildcard
		if p.every() {
			t.each = i
		}
	}
	t.text = text.String()
	return t
}

// every reports whether the part stands for every element of an array.
func (p *part) every() bool {
	return slices.ContainsFunc(p.path, func(s step) bool { return s.every })
}

// label names the part of the request that p reads, as errors do.
func (p *part) label() string {
	switch p.source {
	case param:
		return "path parameter " + p.name
	case wildcard:
		return "the path's wildcard"
	case header:
		return "header " + p.name
	case query:
		return "query parameter " + p.name
	case body:
		return "body member " + p.name
	case registered:
		return "registered value " + p.name
	}
	return p.text
}
