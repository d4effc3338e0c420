// Package keyesc brings values from outside into the form in which they may be part of a Redis key.
//
// No value can forge a separator, a brace (a cluster hash tag) or another value: different values give different
// parts, and a part holds nothing but letters, digits and "-._~%", or is "=" and a hash.
package keyesc

import (
	"crypto/sha256"
	"encoding/base64"
	"unicode/utf8"
)

// maxLen is the longest value, in bytes, that is escaped; a longer one is hashed.
const maxLen = 128

const upperHex = "0123456789ABCDEF"

// Append appends the escaped value to dst. Letters, digits, "-", ".", "_" and "~" stay, each other byte becomes %XX
// in upper case. A value of more than 128 bytes becomes "=" and 43 characters: the base64url form of its SHA-256.
// "=" is never left unescaped, so nobody can type a hash.
func Append(dst []byte, value string) []byte {
	if len(value) > maxLen {
		sum := sha256.Sum256([]byte(value))
		return base64.RawURLEncoding.AppendEncode(append(dst, '='), sum[:])
	}
	for i := 0; i < len(value); {
		start := i
		for i < len(value) && Safe(value[i]) {
			i++
		}
		dst = append(dst, value[start:i]...)
		for ; i < len(value) && !Safe(value[i]); i++ {
			dst = append(dst, '%', upperHex[value[i]>>4], upperHex[value[i]&15])
		}
	}
	return dst
}

// Safe reports whether the byte stays as it is: it is one of the unreserved characters of RFC 3986, 2.3.
func Safe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// May reports whether the rune may stand in an escaped value.
func May(r rune) bool {
	return r < utf8.RuneSelf && (Safe(byte(r)) || r == '%' || r == '=')
}
