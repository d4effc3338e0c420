package lockkey

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Check returns nil when every placeholder of the template can be read on the route: each {name} is either a param of
// the pattern or registered, and only once; {*} stands where the pattern ends in "/*"; {body.path} on a method that has
// a body. Otherwise it returns a [*CheckError], or several joined. It is for start-up and does not wait.
//
// The pattern is chi's full one, regular expressions included, or one of net/http without the method. An empty method
// leaves the body unchecked. Methods without a body are GET, HEAD, DELETE, OPTIONS, TRACE and CONNECT, whose content
// has no meaning or which may have none (RFC 9110, 9.3); what one of them sends would be free to choose the lock.
func (t *Template) Check(method, pattern string) error {
	names := patternNames(pattern)
	var faults []error
	for i := range t.parts {
		p := &t.parts[i]
		reason, instead := p.check(method, pattern, names)
		if reason == "" {
			continue
		}
		faults = append(faults, &CheckError{
			Template: t.text, Placeholder: p.text, Method: method, Pattern: pattern, Reason: reason, Instead: instead,
		})
	}
	if len(faults) == 1 {
		return faults[0]
	}
	return errors.Join(faults...)
}

func (p *part) check(method, pattern string, names []string) (reason, instead string) {
	count := 0
	for _, name := range names {
		if name == p.name || name == p.name+"..." {
			count++
		}
	}
	switch {
	case p.source == param && count == 0:
		return p.text + " is no param of the route", instruct(p.name, names, strings.HasSuffix(pattern, "/*"))
	case p.source == param && count > 1:
		return p.text + " is a param on two levels of the route, and only the inner one can be read", "rename one of them"
	case p.source == registered && count > 0:
		return p.text + " is ambiguous: both a param of the route and a registered value", "rename one of them"
	case p.source == wildcard && !strings.HasSuffix(pattern, "/*"):
		return "{*} needs a pattern that ends in \"/*\"", "write the name of a param"
	case p.source == body && lacksBody(method):
		return p.text + " on a method without a body", "take the key from the path, the query or a header"
	}
	return "", ""
}

// instruct says which params there are.
func instruct(name string, names []string, rest bool) string {
	known := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return !isName(strings.TrimSuffix(s, "...")) })
	for i, s := range known {
		known[i] = "{" + strings.TrimSuffix(s, "...") + "}"
	}
	if rest {
		known = append(known, "{*}")
	}
	if len(known) == 0 {
		return "register " + name + " with WithValue; the route has no params"
	}
	return "write " + strings.Join(known, " or ") + ", or register " + name + " with WithValue"
}

func lacksBody(method string) bool {
	switch strings.ToUpper(method) {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return true
	}
	return false
}

// Warnings returns what is legal on the route but hardly meant, a sentence each with what to write instead: a param
// whose regular expression takes only digits, written without |int. The handler reads 7 and 07 as one row and would
// find two locks. The pattern is as for [Template.Check].
func (t *Template) Warnings(pattern string) []string {
	var warnings []string
	for i := range t.parts {
		p := &t.parts[i]
		if p.source != param || p.kind == asInt {
			continue
		}
		for key := range patternKeys(pattern) {
			name, expr, ok := strings.Cut(key, ":")
			if ok && name == p.name && takesLeadingZeros(expr) {
				warnings = append(warnings, p.text+" is a number that the route also takes with leading zeros, "+
					"which makes it another key; write {"+p.name+"|int}")
			}
		}
	}
	return warnings
}
