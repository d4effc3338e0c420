package faultproxy

import "bufio"

// raw is the codec of a stream of bytes nobody understands.
type raw struct{}

func newRaw() codec { return raw{} }

func (raw) request(from *bufio.Reader) ([]byte, *Command, error) {
	b, err := available(from)
	return b, nil, err
}

func (raw) reply(from *bufio.Reader) ([]byte, part, error) {
	b, err := available(from)
	return b, aside, err
}

// available reads what has arrived, at least one byte.
func available(from *bufio.Reader) ([]byte, error) {
	if _, err := from.Peek(1); err != nil {
		return nil, err
	}
	b := make([]byte, from.Buffered())
	_, err := from.Read(b)
	return b, err
}
