package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
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
		_ = server.Close() // closed in the meantime, and so this one too
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
