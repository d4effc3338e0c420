package stock

import (
	"crypto/rand"
	"strings"
)

// madeLen is the length of the random part of an order id that the library makes: 26 characters, A to Z and 2 to 7.
const madeLen = 26

// newOrderID returns the random part of an order id: 130 bits.
func newOrderID() string { return rand.Text() }

// withParts appends the partitions of an order's lines, two digits each: "...-07". So the order's keys are known from
// its id alone.
func withParts(id string, lines []line) string {
	b := make([]byte, 0, madeLen+1+2*len(lines))
	b = append(append(b, id...), '-')
	for i := range lines {
		b = appendPart(b, lines[i].part)
	}
	return string(b)
}

// partsOf returns the partitions in an order id that the library made for a partitioned keyspace, nil for any other id.
// A line's number at the end picks its partition.
func partsOf(id string) (parts []int) {
	id, number, isLine := strings.Cut(id, "/")
	random, digits, ok := strings.Cut(id, "-")
	if !ok || len(random) != madeLen || len(digits) == 0 || len(digits)%2 != 0 || strings.Trim(digits, "0123456789") != "" ||
		strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return nil
	}
	for ; digits != ""; digits = digits[2:] {
		parts = append(parts, int(digits[0]-'0')*10+int(digits[1]-'0'))
	}
	if !isLine {
		return parts
	}
	n, ok := lineNumber(number)
	if !ok || n > len(parts) {
		return nil
	}
	return parts[n-1 : n]
}

// lineNumber reads "1" to "32".
func lineNumber(text string) (int, bool) {
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' || i > 1 || text[0] == '0' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, n >= 1 && n <= maxLines
}
