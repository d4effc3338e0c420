package lockkey

import (
	"net/url"
	"slices"
	"strings"
)

// pathValue returns a param of the route: chi's, else what net/http or another router has set on the request.
//
// Where both know the name, chi's counts. An empty value is the client's fault, an unknown name the service's.
func (p *part) pathValue(q *request) (string, *KeyError) {
	if v, ok := p.chiParam(q); ok {
		return v, nil
	}
	if p.source == wildcard {
		return "", p.unknown()
	}
	v := q.PathValue(p.name)
	if v == "" && !slices.Contains(patternNames(q.Pattern), p.name+"...") {
		return "", p.unknown()
	}
	return v, nil
}

// chiParam returns the innermost chi param of the name.
//
// chi routes on URL.RawPath where it is set and hands out what it finds there undecoded, so exactly then the value is
// decoded, once: what r.PathValue gives under net/http for the same request line (go-chi/chi#641, #642, #832). Behind a
// middleware that routes on the decoded path although RawPath is set, decoding again can merge two keys but not split
// one.
func (p *part) chiParam(q *request) (string, bool) {
	if q.chi == nil {
		return "", false
	}
	params := &q.chi.URLParams
	for i, name := range slices.Backward(params.Keys) {
		if name != p.name || i >= len(params.Values) {
			continue
		}
		v := params.Values[i]
		if p.source == wildcard && !q.endsInWildcard() {
			return "", false // chi empties the wildcard of a mount and leaves it there
		}
		if q.URL.RawPath != "" {
			if decoded, err := url.PathUnescape(v); err == nil {
				return decoded, true
			}
		}
		return v, true
	}
	return "", false
}

// endsInWildcard reports whether the pattern that matched last ends in a wildcard of its own.
func (q *request) endsInWildcard() bool {
	n := len(q.chi.RoutePatterns)
	return n > 0 && strings.HasSuffix(q.chi.RoutePatterns[n-1], "/*")
}

func (p *part) unknown() *KeyError {
	return &KeyError{
		Reason:   "the route has no " + strings.TrimPrefix(p.label(), "the path's ") + ", or is not known yet",
		sentinel: ErrMisuse,
	}
}
