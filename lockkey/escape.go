package lockkey

import (
	"crypto/sha256"
	"encoding/base64"
	"unicode/utf8"
)

// maxPlain is how many bytes of a value are written out; a longer one is hashed.
const maxPlain = 128

const upperHex = "0123456789ABCDEF"

// isSafe reports whether c stays as it is: the unreserved characters of RFC 3986, 2.3.
func isSafe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// canRender reports whether r may occur in an escaped value.
func canRender(r rune) bool {
	return r < utf8.RuneSelf && (isSafe(byte(r)) || r == '%' || r == '=')
}

// appendEscaped appends v in the form that a key has it in. Different values give different text.
func appendEscaped(b []byte, v string) []byte {
	if len(v) > maxPlain {
		sum := sha256.Sum256([]byte(v))
		return base64.RawURLEncoding.AppendEncode(append(b, '='), sum[:])
	}
	for i := 0; i < len(v); {
		start := i
		for i < len(v) && isSafe(v[i]) {
			i++
		}
		b = append(b, v[start:i]...)
		for ; i < len(v) && !isSafe(v[i]); i++ {
			b = append(b, '%', upperHex[v[i]>>4], upperHex[v[i]&15])
		}
	}
	return b
}
