// Package keyesc brings values from outside into the form in which they may be part of a Redis key.
//
// No value can forge a separator, a brace (a cluster hash tag) or another value: different values give different
// parts, and a part holds nothing but letters, digits and "-._~%", or is "=" and a hash.
package keyesc

import (
	"crypto/sha256"
	"encoding/base64"
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
	for i := range len(value) {
		c := value[i]
		if Safe(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// Safe reports whether the byte stays as it is.
func Safe(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}
