package middleware

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// A stored answer is one byte with the version, the body, the headers and, in the last four bytes, the length of the
// body: so a body that was captured behind recordPrefix bytes becomes a record without being copied.
//
// The headers are what the handler changed: fields it set, with all their lines, and fields it removed.
const (
	recordVersion = 1
	recordSuffix  = 4
)

var errRecord = errors.New("middleware: stored answer not readable")

// field is a header that the handler changed. No lines: it has removed it.
type field struct {
	name  string
	lines []string
}

// neverStored are fields that belong to one exchange, one connection or one client. The prefix Proxy- and the fields
// named in Connection are not stored either.
var neverStored = map[string]bool{
	"Set-Cookie": true, "Authorization": true, "Www-Authenticate": true, "Connection": true, "Keep-Alive": true, "Te": true,
	"Transfer-Encoding": true, "Upgrade": true, "Date": true, "Age": true, "Content-Length": true, "Retry-After": true,
	"X-Request-Id": true, "Traceparent": true, "Tracestate": true, "Server-Timing": true, "Trailer": true,
}

// changed returns what the handler made of the headers that it found, without what is never stored, sorted by name.
func changed(base, head http.Header) []field {
	var fields []field
	hop := connectionFields(head)
	add := func(name string, lines []string) {
		known := http.CanonicalHeaderKey(name) // whoever writes into the map spells as he likes
		if neverStored[known] || strings.HasPrefix(known, "Proxy-") || hop[known] || isTrailer(known, head) {
			return
		}
		fields = append(fields, field{name, lines})
	}
	for name, lines := range head {
		if !slices.Equal(lines, base[name]) {
			add(name, lines)
		}
	}
	for name := range base {
		if _, ok := head[name]; !ok {
			add(name, nil)
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return fields
}

// connectionFields returns the fields that Connection names, canonical.
func connectionFields(h http.Header) map[string]bool {
	var names map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if names == nil {
				names = map[string]bool{}
			}
			names[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	return names
}

// encodeRecord makes a stored answer out of buf, which is recordPrefix bytes and the body, or nil. It uses buf up; the
// body in it stays readable.
func encodeRecord(buf []byte, fields []field) []byte {
	if buf == nil {
		buf = make([]byte, recordPrefix)
	}
	body := uint32(len(buf) - recordPrefix)
	buf[0] = recordVersion
	buf = binary.AppendUvarint(buf, uint64(len(fields)))
	for _, f := range fields {
		buf = appendString(buf, f.name)
		buf = binary.AppendUvarint(buf, uint64(len(f.lines)))
		for _, line := range f.lines {
			buf = appendString(buf, line)
		}
	}
	return binary.BigEndian.AppendUint32(buf, body)
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// decodeRecord returns what encodeRecord was given. The body is part of data. It accepts nothing that encodeRecord does
// not write.
func decodeRecord(data []byte) (fields []field, body []byte, err error) {
	if len(data) < recordPrefix+recordSuffix || data[0] != recordVersion {
		return nil, nil, errRecord
	}
	end := len(data) - recordSuffix
	size := int64(binary.BigEndian.Uint32(data[end:]))
	if size > int64(end-recordPrefix) {
		return nil, nil, errRecord
	}
	body = data[recordPrefix : recordPrefix+size]
	d := decoder{rest: data[recordPrefix+size : end]}
	n := d.count()
	for range n {
		f := field{name: d.string()}
		for range d.count() {
			f.lines = append(f.lines, d.string())
		}
		fields = append(fields, f)
	}
	if d.failed || len(d.rest) != 0 {
		return nil, nil, errRecord
	}
	return fields, body, nil
}

// decoder reads the headers of a stored answer. After a failure it returns zero values.
type decoder struct {
	rest   []byte
	failed bool
}

// count returns a number of things of at least one byte each, so no more than there are bytes.
func (d *decoder) count() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.failed || size <= 0 || n > uint64(len(d.rest)-size) {
		d.failed = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) string() string {
	n := d.count()
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// apply makes the changes to the headers of a replay.
func apply(h http.Header, fields []field) {
	for _, f := range fields {
		if len(f.lines) == 0 {
			delete(h, f.name)
		} else {
			h[f.name] = slices.Clone(f.lines)
		}
	}
}
