package lock

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// processStart tells processes on one address apart. It never changes.
var processStart = time.Now().UnixMicro()

// tokens makes owner tokens: instance:counter:random. The instance tells an operator who forgot to release, the counter
// helps whoever reads logs, and 128 random bits make it unique and impossible to guess.
type tokens struct {
	instance string
	counter  atomic.Uint64
}

func newTokens() *tokens { return &tokens{instance: instance(addresses(), processStart)} }

// next returns a token that nobody ever had.
func (t *tokens) next() string {
	var onStack [128]byte
	buf := append(onStack[:0], t.instance...)
	buf = append(buf, ':')
	buf = strconv.AppendUint(buf, t.counter.Add(1), 10)
	buf = append(buf, ':')
	return string(appendRandom(buf))
}

// random returns 32 hex digits.
func (t *tokens) random() string { return string(appendRandom(nil)) }

func appendRandom(buf []byte) []byte {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: the program ends instead
	return hex.AppendEncode(buf, random[:])
}

// instance names a process by its address and its start. Not by its host name: containers of one image share it.
func instance(addrs []net.Addr, started int64) string {
	return hostAddress(addrs) + "-" + strconv.FormatInt(started, 10)
}

func addresses() []net.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // a sandbox without interfaces: loopback then
	}
	return addrs
}

// hostAddress returns the first address that others can reach, IPv4 rather than IPv6, an IPv6 one as 32 hex digits
// since colons separate the parts of a token.
func hostAddress(addrs []net.Addr) string {
	v6 := ""
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok || !ipnet.IP.IsGlobalUnicast() {
			continue
		}
		if v4 := ipnet.IP.To4(); v4 != nil {
			return v4.String()
		}
		if v6 == "" {
			v6 = hex.EncodeToString(ipnet.IP.To16())
		}
	}
	if v6 != "" {
		return v6
	}
	return "127.0.0.1"
}

// instanceOf returns the part of a token that may be shown, "" if the value is no token of this package.
func instanceOf(token string) string {
	parts := strings.Split(token, ":")
	if len(parts) != 3 || len(parts[2]) != 32 {
		return ""
	}
	return parts[0]
}
