package faultproxy

import (
	"context"
	"net"
)

func (p *Proxy) listen() error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", p.port.Addr())
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed by Refuse or close
			}
			p.accept(conn)
		}
	})
	return nil
}

// accept starts to serve a connection unless the proxy refuses or is closed.
func (p *Proxy) accept(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	l := newLink(p, p.accepted, conn)
	if p.mode == refusing || p.mode == closed {
		l.reset()
		return
	}
	l.limit(ToServer, p.cutAfter[ToServer])
	l.limit(ToClient, p.cutAfter[ToClient])
	p.links[l] = struct{}{}
	target := p.target
	p.wg.Go(func() {
		l.serve(target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// stopListening closes the listener. The caller holds p.mu.
func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close() // it cannot fail in a way that leaves it open
		p.listener = nil
	}
}

// close ends all connections and waits for all goroutines.
func (p *Proxy) close() error {
	p.mu.Lock()
	p.change(closed)
	p.stopListening()
	for _, r := range p.rules {
		r.Release()
	}
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return p.port.Release()
}
