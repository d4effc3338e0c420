package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
)

// resp is the codec of Redis, for RESP2 and RESP3, pipelines, and pub/sub.
type resp struct {
	subscribed atomic.Bool // messages may come between replies
}

func newRESP() codec { return &resp{} }

// request reads an array of bulk strings, or a line of words.
func (c *resp) request(from *bufio.Reader) ([]byte, *Command, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return nil, nil, err
	}
	raw := []byte(line)
	var words []string
	if line[0] != '*' {
		words = strings.Fields(line)
	} else {
		n, err := length(raw)
		if err != nil {
			return nil, nil, err
		}
		for range n {
			header, err := from.ReadBytes('\n')
			if err != nil {
				return nil, nil, err
			}
			size, err := length(header)
			if err != nil || header[0] != '$' || size < 0 {
				return nil, nil, fmt.Errorf("not a bulk string: %q", header)
			}
			start := len(raw) + len(header)
			if raw, err = readBytes(from, append(raw, header...), size+2); err != nil {
				return nil, nil, err
			}
			words = append(words, string(raw[start:start+size]))
		}
	}
	if len(words) == 0 {
		return raw, nil, nil
	}
	cmd := &Command{Name: strings.ToUpper(words[0]), Args: words[1:], answers: 1}
	switch cmd.Name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		c.subscribed.Store(true)
		cmd.pubsub = true
		cmd.answers = max(1, len(cmd.Args)) // one for each channel
	}
	return raw, cmd, nil
}

// reply reads one value.
func (c *resp) reply(from *bufio.Reader) ([]byte, part, error) {
	raw, err := readValue(from, nil)
	if err != nil {
		return nil, aside, err
	}
	if raw[0] != '>' && (raw[0] != '*' || !c.subscribed.Load()) {
		return raw, last, nil
	}
	switch word := firstElement(raw); word {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return raw, confirmation, nil
	case "message", "pmessage", "smessage":
		return raw, aside, nil
	}
	if raw[0] == '>' {
		return raw, aside, nil
	}
	return raw, last, nil
}

// readValue appends the next value, with all values in it, to raw.
func readValue(from *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	raw = append(raw, line...)
	values := 0 // that follow inside this one
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return raw, nil
	case '$', '!', '=':
		n, err := length(line)
		if err != nil || n < 0 {
			return raw, err // -1: the null of RESP2
		}
		return readBytes(from, raw, n+2)
	case '*', '~', '>':
		if values, err = length(line); err != nil {
			return nil, err
		}
	case '%':
		if values, err = length(line); err != nil {
			return nil, err
		}
		values *= 2
	case '|': // attributes, followed by the value they belong to
		if values, err = length(line); err != nil {
			return nil, err
		}
		values = values*2 + 1
	default:
		return nil, fmt.Errorf("not a RESP value: %q", line)
	}
	for range values {
		if raw, err = readValue(from, raw); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// readBytes appends the next n bytes to raw. A false length costs no more memory
// than what was really sent.
func readBytes(from *bufio.Reader, raw []byte, n int) ([]byte, error) {
	b := bytes.NewBuffer(raw)
	if _, err := io.CopyN(b, from, int64(n)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// length parses the number of a header such as "*3\r\n"; -1 is a null.
func length(line []byte) (int, error) {
	const most = 512 << 20 // what Redis allows
	n, err := strconv.Atoi(strings.TrimRight(string(line[1:]), "\r\n"))
	if err == nil && (n < -1 || n > most) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("not a length in RESP: %q: %w", line, err)
	}
	return n, nil
}

// firstElement returns the first element of an array if it is a string.
func firstElement(raw []byte) string {
	lines := strings.SplitN(string(raw), "\r\n", 4)
	if len(lines) < 3 || lines[1] == "" {
		return ""
	}
	if lines[1][0] == '+' {
		return lines[1][1:]
	}
	return lines[2]
}
