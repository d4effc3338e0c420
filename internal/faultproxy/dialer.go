package faultproxy

import (
	"context"
	"net"
)

// Dialer returns a dial function for clients that learn the servers' addresses from
// the servers, as those of a cluster or of Sentinel do: a connection to a server
// that one of the proxies stands for goes through that proxy, all others directly.
//
//	opts.Dialer = faultproxy.Dialer(p1, p2, p3)
func Dialer(proxies ...*Proxy) func(ctx context.Context, network, addr string) (net.Conn, error) {
	via := make(map[string]string, len(proxies))
	for _, p := range proxies {
		p.mu.Lock()
		via[p.target] = p.Addr()
		p.mu.Unlock()
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy, ok := via[addr]; ok {
			addr = proxy
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}
