package dedup_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
)

// The id is stored for a day in Redis and for ever in SQL: it must not change with a release.
func TestIDIsStable(t *testing.T) {
	for want, req := range map[string]dedup.Request{
		"OcXHYM0_yX6ylizUiJRj3vsCkNdhW8BHb7yDsxhAiZk": {Scope: "user-7", Name: "POST /orders", Key: "k"},
	} {
		if got := req.ID(); got != want {
			t.Errorf("ID of %+v is %q, want %q", req, got, want)
		}
	}
}

func TestHashIsOfTheKeyAlone(t *testing.T) {
	a := dedup.Request{Scope: "a", Name: "POST /orders", Key: "abc"}
	b := dedup.Request{Scope: "b", Key: "abc"}
	if a.Hash() != b.Hash() || a.Hash() != "ba7816bf8f01cfea" { // SHA-256("abc")
		t.Errorf("hashes %q, %q; want the start of SHA-256 of the key", a.Hash(), b.Hash())
	}
}

// Joined by a separator, "a:"+"b" and "a"+":b" would be one request.
func TestPartsOfTheIDDoNotRunTogether(t *testing.T) {
	seen := map[string]dedup.Request{}
	for _, req := range []dedup.Request{
		{Scope: "a:", Key: "b"},
		{Scope: "a", Key: ":b"},
		{Scope: "a", Name: ":", Key: "b"},
		{Scope: "a:b", Key: "c"},
		{Scope: "a", Key: "b:c"},
		{Scope: "a", Name: "b", Key: "c"},
		{Scope: "ab", Key: "c"},
		{Scope: "a", Key: "bc"},
		{Scope: "a", Name: "bc"},
		{Key: "abc"},
		{Scope: "abc"},
		{Scope: "a\x00", Key: "b"},
		{Scope: "a", Key: "\x00b"},
	} {
		if other, ok := seen[req.ID()]; ok {
			t.Errorf("%+v and %+v have one id", req, other)
		}
		seen[req.ID()] = req
	}
}

func FuzzIDTellsRequestsApart(f *testing.F) {
	f.Add("a:", "n", "b", "a", "n", ":b")
	f.Add("a", "", "b", "a", "", "b")
	f.Add("", "a", "", "", "", "a")
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	f.Fuzz(func(t *testing.T, s1, n1, k1, s2, n2, k2 string) {
		a, b := dedup.Request{Scope: s1, Name: n1, Key: k1}, dedup.Request{Scope: s2, Name: n2, Key: k2}
		same := s1 == s2 && n1 == n2 && k1 == k2
		if (a.ID() == b.ID()) != same || !form.MatchString(a.ID()) {
			t.Errorf("ids %q and %q of %+v and %+v", a.ID(), b.ID(), a, b)
		}
	})
}

func TestBeginRefusesWhatIsNoRequest(t *testing.T) {
	_, rdb := mini(t)
	s, calls := counted(store(t, rdb, ""))
	d := engineOn(t, s)
	for name, change := range map[string]func(*dedup.Request){
		"no key":            func(r *dedup.Request) { r.Key = "" },
		"no scope":          func(r *dedup.Request) { r.Scope = "" },
		"TTL under 10 min":  func(r *dedup.Request) { r.TTL = dedup.MinTTL - 1 },
		"TTL below zero":    func(r *dedup.Request) { r.TTL = -time.Hour },
		"TTL over a year":   func(r *dedup.Request) { r.TTL = dedup.MaxTTL + 1 },
		"large fingerprint": func(r *dedup.Request) { r.Fingerprint = []byte(strings.Repeat("x", 65)) },
	} {
		req := buy("k")
		change(&req)
		if claim, rec, err := d.Begin(t.Context(), req); !errors.Is(err, dedup.ErrInvalid) || claim != nil || rec != nil {
			t.Errorf("%s: got %v, %v, %v; want ErrInvalid", name, claim, rec, err)
		}
	}
	if calls("") != 0 {
		t.Errorf("%d commands were sent", calls(""))
	}
	for _, ttl := range []time.Duration{0, dedup.MinTTL, dedup.MaxTTL} {
		req := buy(ttl.String())
		req.TTL = ttl
		_ = begun(t, d, req).Forget(t.Context(), nil, nil)
	}
}
