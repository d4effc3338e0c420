package lock

import (
	"net"
	"regexp"
	"strings"
	"testing"
)

// A01: every acquisition has a token that nobody ever had, of three parts: instance:counter:random, where random is 128
// bits as 32 hex digits.
func TestTokensAreUniqueAndNameTheirOwner(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f.]+-\d+:\d+:[0-9a-f]{32}$`)
	a, b := newTokens(), newTokens() // two processes that started in the same microsecond
	seen := map[string]bool{}
	for range 50_000 {
		for _, tokens := range []*tokens{a, b} {
			token := tokens.next()
			if seen[token] {
				t.Fatalf("the token %s was given twice", token)
			}
			seen[token] = true
			if !form.MatchString(token) {
				t.Fatalf("token %q, want instance:counter:random", token)
			}
		}
	}
	if got := instanceOf(a.next()); got != a.instance {
		t.Errorf("the token names %q, want %q", got, a.instance)
	}
}

func ipNet(ip string) net.Addr { return &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(8, 32)} }

// D30: the instance is the address and the start of the process, not the host name, which containers share.
func TestInstanceIsAddressAndStart(t *testing.T) {
	for name, tt := range map[string]struct {
		addrs []net.Addr
		want  string
	}{
		"IPv4":                    {[]net.Addr{ipNet("127.0.0.1"), ipNet("10.1.2.3")}, "10.1.2.3-7"},
		"IPv4 before IPv6":        {[]net.Addr{ipNet("2001:db8::1"), ipNet("10.1.2.3")}, "10.1.2.3-7"},
		"IPv6 has no colons":      {[]net.Addr{ipNet("::1"), ipNet("2001:db8::1")}, "20010db8000000000000000000000001-7"},
		"link-local is not used":  {[]net.Addr{ipNet("169.254.1.1")}, "127.0.0.1-7"},
		"no interfaces":           {nil, "127.0.0.1-7"},
		"something else as an IP": {[]net.Addr{&net.UnixAddr{Name: "x"}}, "127.0.0.1-7"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := instance(tt.addrs, 7); got != tt.want {
				t.Errorf("instance %q, want %q", got, tt.want)
			}
		})
	}
	if instance(nil, 7) == instance(nil, 8) {
		t.Error("two processes on one host have the same instance")
	}
}

func TestInstanceOfAValueOfSomebodyElse(t *testing.T) {
	for _, value := range []string{"", "token", "a:b", "a:b:c", "a:b:c:d", strings.Repeat("0", 32)} {
		if got := instanceOf(value); got != "" {
			t.Errorf("instance of %q is %q, want none", value, got)
		}
	}
}
