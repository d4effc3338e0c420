package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A codec splits the two byte streams of one connection into commands and replies.
// Each of its methods is used by one goroutine; the two run at the same time.
type codec interface {
	// request reads the next piece sent by the client. cmd is nil if the piece does
	// not complete a command.
	request(from *bufio.Reader) (raw []byte, cmd *Command, err error)
	// reply reads the next piece sent by the server.
	reply(from *bufio.Reader) (raw []byte, part part, err error)
}

// part says how a piece belongs to the oldest command that is not answered yet.
type part int

const (
	aside        part = iota // not at all
	more                     // to its answer, of which more will come
	last                     // it completes an answer
	confirmation             // it completes one answer to (un)subscribe, and is aside for others
)

// A link is one client's connection and the one to the server that belongs to it.
type link struct {
	proxy  *Proxy
	id     int
	client net.Conn
	codec  codec
	gone   chan struct{} // closed with the connections

	mu      sync.Mutex
	server  net.Conn // nil until connected
	isGone  bool
	waiting []*exchange // commands without a complete reply, oldest first
	limits  [2]int      // bytes that may still pass, by Direction; or none
	deaf    bool        // the client gets nothing any more
	lossy   bool        // bytes were swallowed by a fault of the whole proxy
}

// exchange is a command and what is to happen to its reply.
type exchange struct {
	answers int
	pubsub  bool
	rule    *Rule         // nil: the reply passes
	held    []byte        // the reply so far, if there is a rule
	done    chan struct{} // closed when the reply of a command to be repeated is complete
}

var errGone = errors.New("connection closed by the proxy")

func newLink(p *Proxy, id int, client net.Conn) *link {
	return &link{proxy: p, id: id, client: client, codec: p.codec(), gone: make(chan struct{}), limits: [2]int{none, none}}
}

// serve connects to the server and passes bytes on until one side closes.
func (l *link) serve(target string) {
	defer l.close()
	if m, _ := l.proxy.current(); m == silent {
		l.swallow() // there may be no server to talk to
		return
	}
	server, err := (&net.Dialer{Timeout: waitTimeout}).Dial("tcp", target)
	if err != nil {
		l.reset()
		return
	}
	l.mu.Lock()
	l.server = server
	isGone := l.isGone
	l.mu.Unlock()
	if isGone {
		server.Close()
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		// How a connection ended is of no interest. What the server has got is to be
		// executed and answered, so it is told of the end and not just cut off.
		_ = l.up(bufio.NewReader(l.client))
		_ = closeWrite(server)
		_, _ = io.Copy(io.Discard, l.client)
	})
	wg.Go(func() {
		_ = l.down(bufio.NewReader(server))
		l.close()
	})
	wg.Wait()
}

// up passes commands on to the server.
func (l *link) up(from *bufio.Reader) error {
	for {
		raw, cmd, err := l.codec.request(from)
		if err != nil {
			return err
		}
		if cmd != nil {
			err = l.command(raw, cmd)
		} else {
			err = l.pass(ToServer, raw)
		}
		if err != nil {
			return err
		}
	}
}

// command passes one command on, or does to it what its rule says.
func (l *link) command(raw []byte, cmd *Command) error {
	cmd.Conn = l.id
	if cmd.raw == nil {
		cmd.raw = raw
	}
	rule, delay := l.proxy.see(*cmd)
	if err := l.pause(delay); err != nil {
		return err
	}
	answer := &exchange{answers: cmd.answers, pubsub: cmd.pubsub}
	if rule != nil {
		a := rule.action
		switch a.kind {
		case loseRequest:
			rule.fire()
			return errGone
		case hangRequest:
			rule.fire()
			l.swallow()
			return errGone
		case cutRequest:
			err := l.pass(ToServer, raw[:min(a.bytes, len(raw))])
			rule.fire()
			return errors.Join(err, errGone)
		case delayRequest:
			rule.fire()
			if err := l.pause(a.delay); err != nil {
				return err
			}
		case holdRequest:
			rule.fire()
			select {
			case <-rule.released:
			case <-l.gone:
				return errGone
			}
		case repeat:
			first := &exchange{answers: cmd.answers, pubsub: cmd.pubsub, rule: rule, done: make(chan struct{})}
			l.expect(first)
			if err := l.pass(ToServer, raw); err != nil {
				return err
			}
			select {
			case <-first.done:
			case <-l.gone:
				return errGone
			}
		default:
			answer.rule = rule
		}
	}
	l.expect(answer)
	return l.pass(ToServer, raw)
}

// expect notes that the server will answer.
func (l *link) expect(e *exchange) {
	if e.answers == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, e)
}

// down passes replies on to the client.
func (l *link) down(from *bufio.Reader) error {
	for {
		raw, part, err := l.codec.reply(from)
		if err != nil {
			return err
		}
		e, complete := l.assign(part)
		if e == nil || e.rule == nil {
			err = l.pass(ToClient, raw)
		} else {
			e.held = append(e.held, raw...)
			if complete {
				err = l.replied(e)
			}
		}
		if err != nil {
			return err
		}
	}
}

// assign finds the command to which a piece belongs, and whether it completes the reply.
func (l *link) assign(part part) (e *exchange, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 || part == aside {
		return nil, false
	}
	e = l.waiting[0]
	switch {
	case part == more:
		return e, false
	case part == confirmation && !e.pubsub:
		return nil, false
	case part == confirmation && e.answers > 1:
		e.answers--
		return e, false
	}
	l.waiting = l.waiting[1:]
	return e, true
}

// replied does to a complete reply what its rule says.
func (l *link) replied(e *exchange) error {
	a := e.rule.action
	switch a.kind {
	case repeat:
		e.rule.fire()
		close(e.done)
		return nil
	case loseReply:
		l.deafen()
		e.rule.fire() // before the client notices, so that its test finds it fired
		return closeWrite(l.client)
	case hangReply:
		l.deafen()
		e.rule.fire()
		return nil
	case cutReply:
		err := l.pass(ToClient, e.held[:min(a.bytes, len(e.held))])
		l.deafen()
		e.rule.fire()
		return errors.Join(err, closeWrite(l.client))
	case delayReply:
		e.rule.fire()
		if err := l.pause(a.delay); err != nil {
			return err
		}
	case holdReply:
		e.rule.fire()
		select {
		case <-e.rule.released:
		case <-l.gone:
			return errGone
		}
	}
	return l.pass(ToClient, e.held)
}

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
