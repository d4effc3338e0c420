package faultproxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// mysql is the codec of the protocol of MariaDB and MySQL. A client sends a command
// only when the last one is answered, so the first bytes after a command are its
// reply; what follows of it is passed on like any bytes.
type mysql struct {
	mu         sync.Mutex
	preparing  string // the statement to which the reply gives a number
	statements map[uint32]string
}

func newMySQL() codec { return &mysql{statements: map[uint32]string{}} }

// The first bytes of commands.
const (
	comQuit         = 0x01
	comInitDB       = 0x02
	comQuery        = 0x03
	comPing         = 0x0e
	comPrepare      = 0x16
	comExecute      = 0x17
	comSendLongData = 0x18
	comClose        = 0x19
	comReset        = 0x1f
)

func (c *mysql) request(from *bufio.Reader) ([]byte, *Command, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, nil, err
	}
	size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	raw := make([]byte, 4+size)
	copy(raw, header)
	if _, err := io.ReadFull(from, raw[4:]); err != nil {
		return nil, nil, err
	}
	// Commands begin a sequence; logging in goes on in the server's.
	if header[3] != 0 || size == 0 {
		return raw, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return raw, c.command(raw[4:]), nil
}

// command names a command. The caller holds c.mu.
func (c *mysql) command(body []byte) *Command {
	cmd := &Command{answers: 1}
	c.preparing = ""
	switch body[0] {
	case comQuery:
		cmd.SQL = string(body[1:])
		cmd.Name = keyword(cmd.SQL)
	case comPrepare:
		cmd.SQL = string(body[1:])
		cmd.Name = "PREPARE"
		c.preparing = cmd.SQL
	case comExecute:
		if len(body) >= 5 {
			cmd.SQL = c.statements[binary.LittleEndian.Uint32(body[1:])]
		}
		cmd.Name = keyword(cmd.SQL)
	case comPing:
		cmd.Name = "PING"
	case comInitDB:
		cmd.Name = "USE"
	case comReset:
		cmd.Name = "RESET"
	case comQuit:
		cmd.Name, cmd.answers = "TERMINATE", 0
	case comClose:
		cmd.Name, cmd.answers = "CLOSE", 0
	case comSendLongData:
		cmd.Name, cmd.answers = "DATA", 0
	default:
		cmd.Name = fmt.Sprintf("COM_%02X", body[0])
	}
	return cmd
}

// reply reads what has arrived. It says of all that it completes a reply: it does if
// a command waits for one, and else it belongs to no command.
func (c *mysql) reply(from *bufio.Reader) ([]byte, part, error) {
	if _, err := from.Peek(1); err != nil {
		return nil, aside, err
	}
	c.mu.Lock()
	preparing := c.preparing
	c.preparing = ""
	c.mu.Unlock()
	if preparing != "" {
		// Header, a zero for success, the statement's number.
		if head, err := from.Peek(9); err == nil && head[4] == 0 {
			c.mu.Lock()
			c.statements[binary.LittleEndian.Uint32(head[5:])] = preparing
			c.mu.Unlock()
		}
	}
	raw := make([]byte, from.Buffered())
	if _, err := io.ReadFull(from, raw); err != nil {
		return nil, aside, err
	}
	return raw, last, nil
}
