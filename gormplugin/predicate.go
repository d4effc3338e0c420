package gormplugin

import (
	"slices"
	"strings"
)

// samePredicate compares the predicates of partial indexes by what they are made of: names, literals and comparisons, in
// any order. Databases rewrite predicates (PostgreSQL makes `status IN (0, 1)` into `status = ANY (ARRAY[0, 1])`), so their
// texts cannot be compared; predicates of other parts are certainly others.
func samePredicate(a, b string) bool {
	return slices.Equal(predicateParts(a), predicateParts(b))
}

func predicateParts(text string) []string {
	text = strings.ToLower(text)
	var parts []string
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\'':
			end := i + 1
			for end < len(text) && (text[end] != '\'' || end+1 < len(text) && text[end+1] == '\'') {
				if text[end] == '\'' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			parts = append(parts, text[i:end])
			i = end
		case strings.HasPrefix(text[i:], "::"): // a cast that PostgreSQL has added
			i += 2
			for i < len(text) && (isWordByte(text[i]) || text[i] == ' ' && strings.HasPrefix(text[i:], " varying")) {
				i++
			}
		case strings.IndexByte("<>=!", c) >= 0:
			end := i
			for end < len(text) && strings.IndexByte("<>=!", text[end]) >= 0 {
				end++
			}
			op := text[i:end]
			if op == "!=" {
				op = "<>"
			}
			parts = append(parts, op)
			i = end
		case isNameByte(c):
			end := i
			for end < len(text) && (isNameByte(text[end]) || text[end] == '.') {
				end++
			}
			parts = append(parts, predicateWord(bareName(text[i:end]))...)
			i = end
		default:
			i++
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

func isNameByte(c byte) bool { return isWordByte(c) || c == '"' || c == '`' }

// predicateWord drops the words that databases write in other ways.
func predicateWord(word string) []string {
	switch word {
	case "any", "array", "and", "or", "all":
		return nil
	case "in":
		return []string{"="}
	}
	return []string{word}
}
