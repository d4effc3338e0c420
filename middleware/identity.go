package middleware

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/lockkey"
)

// defaultKey is the header of the IETF draft, never that of tracing: proxies overwrite X-Request-Id (istio/istio#10875).
const defaultKey = "{header.Idempotency-Key|sf}"

// identity is how Dedup and RequestID learn which request this is: one scope, one key.
type identity struct {
	scope, key *lockkey.Template
	optional   bool
	bodyLimit  int64
	readsBody  bool // scope or key is in the body
	bare       bool // the key is one placeholder and nothing else
}

// compile parses both templates and returns all that is wrong with them.
func (i *identity) compile(r *rule, scope string, c *dedupConfig) (faults []error) {
	i.optional = c.optional
	i.bodyLimit = c.maxRequest
	var err error
	if i.scope, err = r.parse(scope, lockkey.Scope()); err != nil {
		faults = append(faults, err)
	}
	if i.key, err = r.parse(c.key, lockkey.Single()); err != nil {
		faults = append(faults, err)
	}
	if faults != nil {
		return faults
	}
	for _, t := range i.templates() {
		i.readsBody = i.readsBody || strings.Contains(t.String(), "{body.")
	}
	key := i.key.String()
	i.bare = strings.HasPrefix(key, "{") && strings.Index(key, "}") == len(key)-1
	return nil
}

func (i *identity) templates() []*lockkey.Template { return []*lockkey.Template{i.scope, i.key} }

// errNoKey is for a request without a key that may pass.
var errNoKey = errors.New("no key")

// of returns scope and key of the request; errNoKey if it has none and may pass all the same.
func (i *identity) of(r *http.Request, at *place) (dedup.Request, error) {
	if i.readsBody {
		// Before the templates do, since they would read less.
		if _, err := lockkey.BufferBody(r, i.bodyLimit); err != nil {
			return dedup.Request{}, err
		}
	}
	key, err := i.key.Key(r)
	if err != nil {
		return dedup.Request{}, i.keyError(err)
	}
	scope, err := i.scope.Key(r)
	if err != nil {
		return dedup.Request{}, err
	}
	return dedup.Request{Scope: scope, Name: at.id, Key: i.plain(key)}, nil
}

// plain returns the client's own value of a rendered key, so that whoever has only that finds its hash in the logs. A
// key of several parts, and one so long that it is a hash already, "=" in front, stay as they are rendered; and so do
// values that begin as such a hash or as a rendered one, so that different keys stay different.
func (i *identity) plain(key string) string {
	if !i.bare || strings.HasPrefix(key, "=") || strings.HasPrefix(key, "%3D") || strings.HasPrefix(key, "%25") {
		return key
	}
	if value, err := url.PathUnescape(key); err == nil {
		return value
	}
	return key
}

// keyError tells a key that is missing from one that is wrong.
func (i *identity) keyError(err error) error {
	var key *lockkey.KeyError
	switch {
	case !errors.As(err, &key) || fault.TypeOf(err) != fault.Invalid || key.HTTPStatus() != 0:
		return err
	case !key.Absent():
		return &refusal{sentinel: ErrKeyMalformed, cause: err, detail: "Wrong in the request: " + key.Reason + "."}
	case i.optional:
		return errNoKey
	}
	return &refusal{sentinel: ErrKeyMissing, cause: err, detail: "This route needs an idempotency key: " + key.Reason + "."}
}

// checkTTL returns what is wrong with the life of a record, 0 being the default.
func checkTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < dedup.MinTTL || ttl > dedup.MaxTTL) {
		return errors.New("TTL(" + ttl.String() + ") is out of range; a record covers the longest time after which a client tries again: write " +
			dedup.MinTTL.String() + " to " + dedup.MaxTTL.String())
	}
	return nil
}
