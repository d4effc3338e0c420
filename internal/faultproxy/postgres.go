package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
)

// postgres is the codec of PostgreSQL's protocol. A command is what the server
// answers with one ReadyForQuery: a simple query, or the messages up to a Sync.
type postgres struct {
	started    bool
	encryption atomic.Int32 // requests for it that wait for their one byte

	statements map[string]string // SQL by name
	portals    map[string]string
	unit       []byte   // messages of the current command, all of them
	unsent     int      // where those begin in unit that were not passed on yet
	executed   []string // SQL in the current command
	parsed     []string
}

func newPostgres() codec {
	return &postgres{statements: map[string]string{}, portals: map[string]string{}}
}

// The codes that stand for a protocol version in the first message.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

func (c *postgres) request(from *bufio.Reader) ([]byte, *Command, error) {
	if !c.started {
		return c.startup(from)
	}
	for {
		raw, err := readTyped(from)
		if err != nil {
			return nil, nil, err
		}
		body := raw[5:]
		switch raw[0] {
		case 'p', 'd', 'c', 'f': // password; COPY's data, end, failure
			return raw, nil, nil
		case 'X':
			return raw, &Command{Name: "TERMINATE"}, nil
		case 'P':
			name, rest := cstring(body)
			sql, _ := cstring(rest)
			c.statements[name] = sql
			c.parsed = append(c.parsed, sql)
		case 'B':
			portal, rest := cstring(body)
			statement, _ := cstring(rest)
			c.portals[portal] = c.statements[statement]
		case 'E':
			portal, _ := cstring(body)
			c.executed = append(c.executed, c.portals[portal])
		case 'Q':
			sql, _ := cstring(body)
			c.executed = append(c.executed, sql)
		}
		c.unit = append(c.unit, raw...)
		switch raw[0] {
		case 'H': // Flush: the client waits for answers before it goes on
			piece := c.unit[c.unsent:]
			c.unsent = len(c.unit)
			return piece, nil, nil
		case 'Q', 'S', 'F':
			raw, cmd := c.complete()
			return raw, cmd, nil
		}
	}
}

// startup reads a message without type: the first one, or a request before it.
func (c *postgres) startup(from *bufio.Reader) ([]byte, *Command, error) {
	raw, err := readSized(from, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(raw) < 8 {
		return nil, nil, fmt.Errorf("not a startup message: %q", raw)
	}
	switch binary.BigEndian.Uint32(raw[4:]) {
	case sslRequest, gssRequest:
		c.encryption.Add(1)
		return raw, nil, nil
	case cancelRequest:
		return raw, &Command{Name: "CANCEL"}, nil
	}
	c.started = true
	return raw, &Command{Name: "STARTUP", answers: 1}, nil
}

// complete ends the current command and returns those of its bytes that were not passed on.
func (c *postgres) complete() ([]byte, *Command) {
	cmd := &Command{Name: "SYNC", answers: 1, raw: c.unit}
	switch {
	case len(c.executed) > 0:
		cmd.SQL = strings.Join(c.executed, "; ")
		cmd.Name = keyword(cmd.SQL)
	case len(c.parsed) > 0:
		cmd.SQL = strings.Join(c.parsed, "; ")
		cmd.Name = "PREPARE"
	}
	raw := c.unit[c.unsent:]
	c.unit, c.unsent, c.executed, c.parsed = nil, 0, nil, nil
	return raw, cmd
}

func (c *postgres) reply(from *bufio.Reader) ([]byte, part, error) {
	first, err := from.Peek(1)
	if err != nil {
		return nil, aside, err
	}
	if c.encryption.Load() > 0 {
		c.encryption.Add(-1)
		if first[0] == 'S' || first[0] == 'G' {
			return nil, aside, errors.New("the server accepts encryption, which the proxy cannot read: use sslmode=disable")
		}
		b, err := from.ReadByte()
		return []byte{b}, aside, err
	}
	raw, err := readTyped(from)
	if err != nil {
		return nil, aside, err
	}
	if raw[0] == 'Z' { // ReadyForQuery
		return raw, last, nil
	}
	return raw, more, nil
}

// readTyped reads a message: a type, a length that counts itself, a body.
func readTyped(from *bufio.Reader) ([]byte, error) {
	kind, err := from.ReadByte()
	if err != nil {
		return nil, err
	}
	return readSized(from, []byte{kind})
}

func readSized(from *bufio.Reader, raw []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	const most = 1 << 28
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > most {
		return nil, fmt.Errorf("not a message of PostgreSQL: length %d", n)
	}
	body := make([]byte, n-4)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, err
	}
	return append(append(raw, size[:]...), body...), nil
}

// cstring splits a text that ends with a zero byte off.
func cstring(b []byte) (text string, rest []byte) {
	text1, rest, _ := bytes.Cut(b, []byte{0})
	return string(text1), rest
}
