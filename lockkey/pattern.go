package lockkey

import (
	"iter"
	"regexp"
	"regexp/syntax"
	"strings"
)

// patternKeys yields what stands between the braces of a route pattern, from left to right: "id" or, with chi's regular
// expressions, "id:[0-9]{3}". Braces inside an expression are counted, as chi counts them, escaped or not. A brace that
// is not closed ends it; chi refuses such a pattern itself.
func patternKeys(pattern string) iter.Seq[string] {
	return func(yield func(string) bool) {
		open, depth := 0, 0
		for i := 0; i < len(pattern); i++ {
			switch pattern[i] {
			case '{':
				if depth++; depth == 1 {
					open = i + 1
				}
			case '}':
				if depth--; depth == 0 && !yield(pattern[open:i]) {
					return
				}
				depth = max(depth, 0)
			}
		}
	}
}

// patternNames returns the names of the params of a route pattern, and "*" when it ends in a wildcard: the keys that
// chi reports. A net/http wildcard for the rest of the path keeps its dots: "path...".
func patternNames(pattern string) []string {
	var names []string
	for key := range patternKeys(pattern) {
		name, _, _ := strings.Cut(key, ":")
		names = append(names, name)
	}
	if strings.HasSuffix(pattern, "*") {
		names = append(names, "*")
	}
	return names
}

// takesLeadingZeros reports whether a param's expression takes digits only and some number in two spellings. So it is
// false for [1-9][0-9]*, for [0-9]{4} and for [0-9a-f]+.
func takesLeadingZeros(expr string) bool {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || !digitsOnly(tree) {
		return false
	}
	whole, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		return false
	}
	for _, number := range []string{"0", "7", "10", "123", "1234567"} {
		for _, zeros := range []string{"0", "00", "000"} {
			if whole.MatchString(number) && whole.MatchString(zeros+number) {
				return true
			}
		}
	}
	return false
}

// digitsOnly reports whether every rune that the expression can match is a digit.
func digitsOnly(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpLiteral:
		return strings.Trim(string(tree.Rune), "0123456789") == ""
	case syntax.OpCharClass:
		for i := 0; i < len(tree.Rune); i += 2 {
			if tree.Rune[i] < '0' || tree.Rune[i+1] > '9' {
				return false
			}
		}
		return true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return false
	}
	for _, sub := range tree.Sub {
		if !digitsOnly(sub) {
			return false
		}
	}
	return true
}
