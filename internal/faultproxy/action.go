package faultproxy

import "time"

// Action is what happens to a command that a rule has chosen.
type Action struct {
	kind  kind
	bytes int
	delay time.Duration
}

type kind int

const (
	loseRequest kind = iota
	hangRequest
	cutRequest
	delayRequest
	holdRequest
	repeat
	// From here on the command reaches the server as if there were no proxy.
	loseReply
	hangReply
	cutReply
	delayReply
	holdReply
)

// onReply says whether the action waits for the server's reply.
func (a Action) onReply() bool { return a.kind >= repeat }

// LoseRequest closes the connection instead of passing the command on: the server
// never sees it, nor what was sent after it. What was sent before is executed and
// answered.
func LoseRequest() Action { return Action{kind: loseRequest} }

// HangRequest swallows the command and whatever the client sends after it on this
// connection, which stays open and silent: the server never sees it.
func HangRequest() Action { return Action{kind: hangRequest} }

// CutRequest passes the first n bytes of the command on and closes the connection
// as LoseRequest does.
func CutRequest(n int) Action { return Action{kind: cutRequest, bytes: n} }

// DelayRequest passes the command on after d.
func DelayRequest(d time.Duration) Action { return Action{kind: delayRequest, delay: d} }

// HoldRequest keeps the command until Rule.Release. It then reaches the server even
// if the client has given up meanwhile, like a packet that was late.
func HoldRequest() Action { return Action{kind: holdRequest} }

// Repeat passes the command on twice and returns the second reply only, like a
// client that sent it again because the first reply was lost.
func Repeat() Action { return Action{kind: repeat} }

// LoseReply passes the command on, waits for the whole reply, swallows it and
// closes the connection: the server has executed what the client does not know of,
// and executes what the client had sent after it.
func LoseReply() Action { return Action{kind: loseReply} }

// HangReply passes the command on, waits for the whole reply and swallows it with
// all that follows on this connection, which stays open and silent.
func HangReply() Action { return Action{kind: hangReply} }

// CutReply returns the first n bytes of the reply, or all if it has fewer, and closes
// the connection as LoseReply does.
func CutReply(n int) Action { return Action{kind: cutReply, bytes: n} }

// DelayReply returns the reply d after it is complete.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// HoldReply keeps the reply, once it is complete, until Rule.Release: the server has
// executed what the client does not know of yet.
func HoldReply() Action { return Action{kind: holdReply} }
