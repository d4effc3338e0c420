package faultproxy

import (
	"io"
	"net"
	"time"
)

// pass writes bytes on their way, unless a fault of the whole proxy keeps them.
func (l *link) pass(d Direction, raw []byte) error {
	for {
		mode, changed := l.proxy.current()
		if mode == silent {
			l.mu.Lock()
			l.lossy = true
			l.mu.Unlock()
			return nil
		}
		if mode != stalled {
			break
		}
		select {
		case <-changed:
		case <-l.gone:
			return errGone
		}
	}
	to, n, cut := l.allowed(d, len(raw))
	if to != nil && n > 0 {
		if _, err := to.Write(raw[:n]); err != nil {
			return err
		}
	}
	if cut {
		return errGone
	}
	return nil
}

// allowed returns where to write, how many of n bytes may pass, and whether the
// connection is to be cut then.
func (l *link) allowed(d Direction, n int) (to net.Conn, pass int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to = l.server
	if d == ToClient {
		to = l.client
		if l.deaf {
			to = nil
		}
	}
	if l.limits[d] == none {
		return to, n, false
	}
	pass = min(n, l.limits[d])
	l.limits[d] -= pass
	return to, pass, l.limits[d] == 0
}

// deafen keeps everything that follows from the client. What it still sends is
// passed on, so that all it had sent before it noticed is executed.
func (l *link) deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// closeWrite tells the other side that nothing more will come.
func closeWrite(conn net.Conn) error {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return conn.Close()
}

// pause waits for d or until the connection is closed.
func (l *link) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.gone:
		return errGone
	}
}

// swallow reads what the client sends, to no effect, until it closes; it gets
// nothing more either.
func (l *link) swallow() {
	l.mu.Lock()
	l.deaf, l.lossy = true, true
	l.mu.Unlock()
	_, _ = io.Copy(io.Discard, l.client) // ends with the connection
}

// limit cuts the connection after n more bytes; none removes the limit.
func (l *link) limit(d Direction, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits[d] = n
}

// heal removes limits, and closes a connection that misses bytes.
func (l *link) heal() {
	l.mu.Lock()
	l.limits = [2]int{none, none}
	l.mu.Unlock()
	if l.isLossy() {
		l.close()
	}
}

func (l *link) isLossy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lossy
}

// reset closes the connection so that the client sees "connection reset by peer".
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	l.close()
}

// close closes both connections. It may be called twice.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isGone {
		return
	}
	l.isGone = true
	close(l.gone)
	_ = l.client.Close() // whatever it returns, the connection is closed
	if l.server != nil {
		_ = l.server.Close()
	}
}
