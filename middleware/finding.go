package middleware

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// finding is something that Validate or Apply has found: where, what, and what to do about it. The remedy is empty if the
// fault says it.
type finding struct {
	where, fault, remedy string
}

func (f finding) Error() string {
	if f.remedy == "" {
		return f.where + ": " + f.fault
	}
	return f.where + ": " + f.fault + "; " + f.remedy
}

// findings gathers what is wrong, each once.
type findings struct {
	all      []finding
	warnings []finding
}

func (fs *findings) add(where, remedy, fault string, args ...any) {
	f := finding{where, fmt.Sprintf(fault, args...), remedy}
	if !slices.Contains(fs.all, f) {
		fs.all = append(fs.all, f)
	}
}

func (fs *findings) warn(where, remedy, fault string, args ...any) {
	f := finding{where, fmt.Sprintf(fault, args...), remedy}
	if !slices.Contains(fs.warnings, f) {
		fs.warnings = append(fs.warnings, f)
	}
}

// err joins the findings behind one line of headline.
func (fs *findings) err(headline string) error {
	if len(fs.all) == 0 {
		return nil
	}
	errs := []error{errors.New("middleware: " + headline)}
	for _, f := range fs.all {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// check looks at the rules of one route, outermost first, as far as they act on its method.
func (fs *findings) check(e *endpoint, rules []attached) {
	var acting []attached
	for _, r := range rules {
		if r.common().acts(e.method) {
			acting = append(acting, r)
		}
	}
	if len(acting) == 0 {
		return
	}
	where := e.String()
	if isTimeoutHandler(e.inner) {
		fs.add(where, "put http.TimeoutHandler around the router or the server",
			"the endpoint is an http.TimeoutHandler, which answers while the work goes on")
	}
	for i, r := range acting {
		fs.templates(e, r)
		for _, inner := range acting[i+1:] {
			fs.pair(where, r, inner)
		}
	}
}

// templates checks that the templates of a rule fit the route.
func (fs *findings) templates(e *endpoint, r attached) {
	for _, t := range r.templates() {
		for _, err := range unjoin(t.Check(e.method, e.pattern)) {
			fs.fromCheck(e, r, err)
		}
		if r.common().kind == kindLock && t.Namespace() == "" {
			fs.warn(e.String(), `write what it is the lock of in front, like "account:`+t.String()+`"`,
				"%s begins with a value: whatever has the same one elsewhere shares this lock", r.common().text)
		}
		for _, text := range t.Warnings(e.pattern) {
			fault, remedy, _ := strings.Cut(text, "; ")
			fs.warn(e.String(), remedy, "%s: %s", r.common().text, fault)
		}
	}
}

// pair checks two rules of one route, one inside the other.
func (fs *findings) pair(where string, outer, inner attached) {
	o, i := outer.common(), inner.common()
	switch {
	case o.kind == kindLock && i.kind == kindDedup:
		fs.add(where, "put Dedup outside", "%s is inside of %s: a replay would wait for the lock", i.text, o.text)
	case o.kind == kindLock && i.kind == kindLock:
		for _, ns := range namespaces(outer) {
			if slices.Contains(namespaces(inner), ns) {
				fs.add(where, "write one rule with Also", "%s and, inside of it, %s lock %q: the second may wait for the first", o.text, i.text, ns)
			}
		}
	case o.kind != kindLock && i.kind != kindLock:
		fs.add(where, "remove one of them", "%s and, inside of it, %s: one of the two is idle", o.text, i.text)
	}
}

// namespaces are the literal beginnings of the keys that a lock rule takes.
func namespaces(r attached) []string {
	var all []string
	for _, t := range r.templates() {
		all = append(all, t.Namespace())
	}
	return all
}

// spellings warns of a namespace whose values are read in two ways: with |int 7 and 07 are one key, without they are two,
// and two requests then hold "the" lock of one row. A registered value is the service's own and is taken as it is.
func (fs *findings) spellings(endpoints []endpoint) {
	first := map[string]map[string]string{} // namespace -> suffix of its first placeholder -> a route and its template
	for i := range endpoints {
		e := &endpoints[i]
		for _, r := range e.rules {
			if c := r.common(); c.kind != kindLock || !c.acts(e.method) {
				continue
			}
			for _, t := range r.templates() {
				placeholder, _, _ := strings.Cut(strings.TrimPrefix(t.String(), t.Namespace()), "}")
				name, suffix, _ := strings.Cut(strings.TrimPrefix(placeholder, "{"), "|")
				if t.Namespace() == "" || name == "" || !strings.Contains(name, ".") && !strings.Contains(e.pattern, "{"+name) {
					continue
				}
				if first[t.Namespace()] == nil {
					first[t.Namespace()] = map[string]string{}
				}
				if first[t.Namespace()][suffix] == "" {
					first[t.Namespace()][suffix] = fmt.Sprintf("%s: %q", e, t)
				}
			}
		}
	}
	for _, ns := range sortedKeys(first) {
		if len(first[ns]) < 2 {
			continue
		}
		var templates []string
		for _, suffix := range sortedKeys(first[ns]) {
			templates = append(templates, first[ns][suffix])
		}
		fs.warn(strings.Join(templates, ", "), "write the same suffix, |int or |uuid, in all of them",
			"the locks of %q read their values in different ways: two spellings of one value may be two locks", ns)
	}
}

// order finds locks that are taken in one order on some routes and in another on others: any cycle of nested locks.
func (fs *findings) order(endpoints []endpoint) {
	edges := map[string]map[string]string{} // outer namespace -> inner -> a route
	for i := range endpoints {
		e := &endpoints[i]
		var locks []attached
		for _, r := range e.rules {
			if c := r.common(); c.kind == kindLock && c.acts(e.method) {
				locks = append(locks, r)
			}
		}
		for n, outer := range locks {
			for _, inner := range locks[n+1:] {
				for _, a := range namespaces(outer) {
					for _, b := range namespaces(inner) {
						if a == b {
							continue // told by pair
						}
						if edges[a] == nil {
							edges[a] = map[string]string{}
						}
						if edges[a][b] == "" {
							edges[a][b] = e.String()
						}
					}
				}
			}
		}
	}
	for _, cycle := range cycles(edges) {
		var routes, steps []string
		for i, ns := range cycle {
			next := cycle[(i+1)%len(cycle)]
			routes = append(routes, edges[ns][next])
			steps = append(steps, fmt.Sprintf("%q then %q", ns, next))
		}
		slices.Sort(routes)
		fs.add(strings.Join(slices.Compact(routes), ", "), "nest them in one order everywhere, or take them together with Also",
			"locks are taken in a circle (%s): two requests can wait for each other", strings.Join(steps, ", "))
	}
}

// cycles returns one cycle for each strongly tied group of nodes, beginning with its least node.
func cycles(edges map[string]map[string]string) [][]string {
	var found [][]string
	done := map[string]bool{}
	for _, start := range sortedKeys(edges) {
		if done[start] {
			continue
		}
		if path := pathBack(edges, start); path != nil {
			found = append(found, path)
			for _, node := range path {
				done[node] = true
			}
		}
	}
	return found
}

// pathBack returns the shortest path from start to itself, without the end; nil if there is none.
func pathBack(edges map[string]map[string]string, start string) []string {
	from := map[string]string{}
	queue := []string{start}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, next := range sortedKeys(edges[node]) {
			if next == start {
				var path []string
				for ; node != start; node = from[node] {
					path = append(path, node)
				}
				path = append(path, start)
				slices.Reverse(path)
				return path
			}
			if _, seen := from[next]; !seen {
				from[next] = node
				queue = append(queue, next)
			}
		}
	}
	return nil
}
