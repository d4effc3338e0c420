package faultproxy

import (
	"slices"
	"strings"
)

// Match chooses commands. It is a value: each method returns a changed copy.
type Match struct {
	name  string
	texts []string
	first int // of those that match, the first one chosen, from 1
	times int // how many are chosen; 0 means all from the first on
}

// Any chooses the next command of whatever kind.
func Any() Match { return Match{first: 1, times: 1} }

// Named chooses the next command of that name; see Command.Name.
func Named(name string) Match {
	m := Any()
	m.name = strings.ToUpper(name)
	return m
}

// Containing narrows the choice to commands in whose bytes, or statement, the text
// occurs: an argument, a key, a table's name.
func (m Match) Containing(text string) Match {
	m.texts = append(slices.Clone(m.texts), text)
	return m
}

// Nth chooses the n-th command that matches instead of the first; 1 is the next one.
func (m Match) Nth(n int) Match {
	m.first = n
	return m
}

// Times chooses n commands in a row instead of one.
func (m Match) Times(n int) Match {
	m.times = n
	return m
}

// Always chooses every command that matches, from the first (or Nth) on.
func (m Match) Always() Match {
	m.times = 0
	return m
}

// matches looks at name and texts only.
func (m Match) matches(c Command) bool {
	if m.name != "" && m.name != c.Name {
		return false
	}
	for _, text := range m.texts {
		if !c.contains(text) {
			return false
		}
	}
	return true
}

// chooses says whether the n-th command that matches is among the chosen ones.
func (m Match) chooses(n int) bool {
	return n >= m.first && (m.times == 0 || n < m.first+m.times)
}
