package faultproxy

import (
	"bytes"
	"strconv"
	"strings"
)

// Command is one command that a client has sent.
type Command struct {
	// Conn numbers the connections from 1.
	Conn int
	// Name is upper case. For Redis it is the command, "EVALSHA". For a database it is
	// the first word of the first statement, "COMMIT", or what the client did without
	// one: "STARTUP" (connect), "PREPARE", "SYNC", "PING", "TERMINATE".
	Name string
	// Args are the arguments of a Redis command.
	Args []string
	// SQL is the statement sent to a database, without the values of its parameters.
	SQL string

	raw     []byte // as sent
	answers int    // how many the server will give; 0 means none
	pubsub  bool   // answered by confirmations
}

// String returns the command on one line, for messages.
func (c Command) String() string {
	if c.SQL != "" {
		return c.SQL
	}
	line := c.Name
	for _, arg := range c.Args {
		line += " " + strconv.Quote(arg)
	}
	return line
}

// contains says whether the text occurs in the statement or in the bytes sent, and
// so in a parameter too.
func (c Command) contains(text string) bool {
	return strings.Contains(c.SQL, text) || bytes.Contains(c.raw, []byte(text))
}

// keyword returns the first word of a statement in upper case; comments before it are skipped.
func keyword(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n(")
		switch {
		case strings.HasPrefix(sql, "/*"):
			_, rest, ok := strings.Cut(sql, "*/")
			if !ok {
				return ""
			}
			sql = rest
		case strings.HasPrefix(sql, "--"):
			_, rest, ok := strings.Cut(sql, "\n")
			if !ok {
				return ""
			}
			sql = rest
		default:
			end := strings.IndexFunc(sql, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_'
			})
			if end < 0 {
				end = len(sql)
			}
			return strings.ToUpper(sql[:end])
		}
	}
}
