package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// LockOption changes one rule made by [Guard.Lock].
type LockOption interface{ applyLock(*lockConfig) error }

// DedupOption changes one rule made by [Guard.Dedup] or [Guard.RequestID].
type DedupOption interface{ applyDedup(*dedupConfig) error }

// RuleOption is an option of every rule, but for those that [Guard.RequestID] refuses.
type RuleOption struct{ apply func(*ruleConfig) error }

func (o RuleOption) applyLock(c *lockConfig) error   { return o.apply(&c.ruleConfig) }
func (o RuleOption) applyDedup(c *dedupConfig) error { return o.apply(&c.ruleConfig) }

type (
	lockOption  func(*lockConfig) error
	dedupOption func(*dedupConfig) error
)

func (o lockOption) applyLock(c *lockConfig) error    { return o(c) }
func (o dedupOption) applyDedup(c *dedupConfig) error { return o(c) }

// ruleConfig is what all rules have.
type ruleConfig struct {
	methods  []string
	name     string
	ttl      time.Duration // 0: not said
	pass     int           // 0: refuse
	recorded []string      // options that need a record, as written, for RequestID
}

type lockConfig struct {
	ruleConfig
	templates []string
	wait      *time.Duration
	maxHold   *time.Duration
	onBusy    int
}

type dedupConfig struct {
	ruleConfig
	key         string
	optional    bool
	storeIf     func(status int, h http.Header, body []byte) bool
	noTakeover  bool
	stillTrue   func(ctx context.Context, requestID string) (bool, error)
	maxRequest  int64
	maxResponse int64
	fingerprint func(r *http.Request, body []byte) ([]byte, error)
}

// Methods says for which methods the rule acts; requests with others pass. Default: POST, PUT, PATCH and DELETE for
// Lock, POST and PATCH for Dedup and RequestID. HEAD is refused for Dedup and RequestID.
func Methods(methods ...string) RuleOption {
	return RuleOption{func(c *ruleConfig) error {
		if len(methods) == 0 {
			return errors.New("Methods() names none; leave it out for the default")
		}
		for _, m := range methods {
			if m == "" || m != strings.ToUpper(m) || strings.ContainsAny(m, " \t/*") {
				return fmt.Errorf("Methods(%q) is no method; write it in upper case, such as %q", m, http.MethodPost)
			}
		}
		c.methods = slices.Clone(methods)
		return nil
	}}
}

// RouteName names the rule in traces, metrics, logs and errors. Default: method and pattern of the route. It is required
// where no pattern can be known: outside of chi and net/http's own router, and for a rule hidden in another middleware
// that runs before routing; there it also stands for the route in the id of a request. 1 to 128 bytes.
func RouteName(name string) RuleOption {
	return RuleOption{func(c *ruleConfig) error {
		if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("RouteName(%q) is no name; write 1 to 128 bytes without control characters", name)
		}
		c.name = name
		return nil
	}}
}

// TTL is, of a lock, how long it outlives a crash of its holder: by default 30 s, renewed at a third; from 10 ms to
// 5 min. Of a Dedup it is how long an answer is kept: by default 24 h; at least 10 min.
func TTL(d time.Duration) RuleOption {
	return RuleOption{func(c *ruleConfig) error {
		if d <= 0 {
			return fmt.Errorf("TTL(%v) is no time; leave it out for the default", d)
		}
		c.ttl = d
		c.recorded = append(c.recorded, "TTL")
		return nil
	}}
}

// PassAtMost lets up to n requests of the rule at once, in this process, go on without Redis while Redis is away; the
// rest get 503. Their answers say so: Idempotency-Status or Lock-Status: bypassed. Default: all get 503. n is 1 to
// 10 000. Use it only where SQL alone still refuses what must not happen.
func PassAtMost(n int) RuleOption {
	return RuleOption{func(c *ruleConfig) error {
		if n < 1 || n > maxPass {
			return fmt.Errorf("PassAtMost(%d) is out of range; write 1 to %d, or leave it out to refuse all", n, maxPass)
		}
		c.pass = n
		c.recorded = append(c.recorded, "PassAtMost")
		return nil
	}}
}

const maxPass = 10_000

// Also locks what another template gives too, in one acquisition in sorted order: a transfer locks both accounts in one
// rule, never in two nested ones.
func Also(template string) LockOption {
	return lockOption(func(c *lockConfig) error {
		c.templates = append(c.templates, template)
		return nil
	})
}

// Wait is how long a request waits for the lock, never beyond its own deadline. Default 2 s; 0 is one attempt; else 1 ms
// to 1 min.
func Wait(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) error {
		if d != 0 && d < time.Millisecond || d > time.Minute {
			return fmt.Errorf("Wait(%v) is out of range; write 0, or 1ms to 1m0s; a number without a unit is nanoseconds", d)
		}
		c.wait = &d
		return nil
	})
}

// MaxHold is how long a handler may hold the lock in all; then its context ends with cause lock.ErrLost. Default 5 min;
// 0 is no limit, else at least 1 ms.
func MaxHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) error {
		if d != 0 && d < time.Millisecond {
			return fmt.Errorf("MaxHold(%v) is out of range; write 0 for no limit, or at least 1ms; a number without a unit is nanoseconds", d)
		}
		c.maxHold = &d
		return nil
	})
}

// OnBusy is the status for a request that does not get the lock: 409, 423 or 429, the default.
func OnBusy(status int) LockOption {
	return lockOption(func(c *lockConfig) error {
		switch status {
		case http.StatusConflict, http.StatusLocked, http.StatusTooManyRequests:
			c.onBusy = status
			return nil
		}
		return fmt.Errorf("OnBusy(%d) is not allowed; write 409, 423 or 429", status)
	})
}

// Key is the template of the idempotency key. Default "{header.Idempotency-Key|sf}". It takes the client's own value:
// Key("{header.X-Request-Id}") reads the header as the client or a proxy has sent it, never the id that chi's RequestID
// makes, and proxies are known to overwrite that header.
func Key(template string) DedupOption {
	return dedupOption(func(c *dedupConfig) error {
		c.key = template
		return nil
	})
}

// Optional lets a request without a key pass unprotected. A key that is there and malformed is refused all the same.
// Default: a request without a key is refused with 400.
func Optional() DedupOption {
	return dedupOption(func(c *dedupConfig) error {
		c.optional = true
		return nil
	})
}

// StoreIf decides which answers count as done and are replayed. Default: 2xx and 3xx. It is for services that answer 200
// with a code in the body. body is nil if it was not kept, because it was streamed or too large. The function is called
// once a request, after the handler, and must not keep or change what it is given. A 4xx that is not stored is
// forgotten; for others that are not stored the next request with the key runs at once.
func StoreIf(f func(status int, h http.Header, body []byte) bool) DedupOption {
	return recordOption("StoreIf", f == nil, func(c *dedupConfig) { c.storeIf = f })
}

// TakeoverReject answers 409 "interrupted" where an earlier attempt has ended without a word, instead of running again.
// It is for handlers whose effect is not guarded in SQL; an operator then settles the record, or its TTL ends.
func TakeoverReject() DedupOption {
	return recordOption("TakeoverReject", false, func(c *dedupConfig) { c.noTakeover = true })
}

// StillTrue is asked before a 2xx is replayed: false is answered 409 "withdrawn", because the success was taken back
// since (an unpaid hold that was released); an error is answered 503. requestID is the record id.
func StillTrue(f func(ctx context.Context, requestID string) (bool, error)) DedupOption {
	return recordOption("StillTrue", f == nil, func(c *dedupConfig) { c.stillTrue = f })
}

// MaxBody is how many bytes of a request body are read for the fingerprint, more is 413; and of a response body kept for
// replay, more is sent on but replayed without body. Default 1 MiB each; 1 byte to 64 MiB.
func MaxBody(request, response int64) DedupOption {
	const most = 64 << 20
	return dedupOption(func(c *dedupConfig) error {
		if request < 1 || request > most || response < 1 || response > most {
			return fmt.Errorf("MaxBody(%d, %d) is out of range; write 1 to %d bytes each", request, response, most)
		}
		c.maxRequest, c.maxResponse = request, response
		c.recorded = append(c.recorded, "MaxBody")
		return nil
	})
}

// Fingerprint replaces the hash that tells two requests with one key apart. Default: SHA-256 over method, path, query
// and body. The result has at most 64 bytes; nil is not compared. An error refuses the request.
func Fingerprint(f func(r *http.Request, body []byte) ([]byte, error)) DedupOption {
	return recordOption("Fingerprint", f == nil, func(c *dedupConfig) { c.fingerprint = f })
}

func recordOption(name string, isNil bool, set func(*dedupConfig)) DedupOption {
	return dedupOption(func(c *dedupConfig) error {
		if isNil {
			return fmt.Errorf("%s(nil) decides nothing; give a function or leave it out", name)
		}
		set(c)
		c.recorded = append(c.recorded, name)
		return nil
	})
}
