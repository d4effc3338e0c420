package lockkey

import (
	"errors"
	"net/http"
	"strconv"
)

// Option changes how [Parse] reads a template.
type Option func(*config) error

type config struct {
	values map[string]func(*http.Request) (string, error)
	single bool
	scope  bool
}

// WithValue registers a value, so that {name} stands for what value returns instead of a param of the route. It is the
// way to what the client must not choose: the authenticated user, the tenant, the merchant behind an API key. There is
// none by default, and a template need not name each that is registered.
//
// value is called once for each template that names it, in the goroutine that serves the request, and must give the
// same answer for the same principal. Its error makes the answer: the status of the error's method HTTPStatus() int, if
// that is 400 to 599, else 500. An empty value, one over 8 KiB or one not of its form (|int) is 500 too: it is the
// service's fault, never a 400.
//
// A name has letters, digits, '_' and '-'. It is an error to register a name twice, or without a function; a name that
// is also a param of the route is found by [Template.Check], and where that is not called the registered value counts.
func WithValue(name string, value func(*http.Request) (string, error)) Option {
	return func(c *config) error {
		call := "WithValue(" + strconv.Quote(name) + ")"
		switch {
		case !isName(name):
			return optionError(call+" has no name", "write letters, digits, '_' and '-'")
		case value == nil:
			return optionError(call+" has no function", "write a func(*http.Request) (string, error)")
		case c.values[name] != nil:
			return optionError(call+" a second time", "register a name once")
		}
		if c.values == nil {
			c.values = make(map[string]func(*http.Request) (string, error))
		}
		c.values[name] = value
		return nil
	}
}

// Single accepts only a template that gives exactly one key and not the same one to every request: it has a
// placeholder, and no "#". For the key of a request dedup.
func Single() Option {
	return func(c *config) error {
		c.single = true
		return nil
	}
}

// Scope accepts what [Single] accepts and the word "all", which puts everybody into one scope on purpose. For the scope
// of a request dedup. It overrides Single.
func Scope() Option {
	return func(c *config) error {
		c.scope = true
		return nil
	}
}

func optionError(reason, instead string) *ParseError {
	return &ParseError{Offset: -1, Reason: reason, Instead: instead}
}

// apply runs the options and returns all their faults, joined.
func (c *config) apply(template string, opts []Option) error {
	var faults []error
	for _, opt := range opts {
		err := error(optionError("an option is nil", "leave it out"))
		if opt != nil {
			err = opt(c)
		}
		var fault *ParseError
		if errors.As(err, &fault) {
			fault.Template = template
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 1 {
		return faults[0]
	}
	return errors.Join(faults...)
}
