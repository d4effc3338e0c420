package gormplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"strings"

	"gorm.io/gorm"
)

// beforeRead holds raw SQL against the policy. Of what gorm writes itself, only reads come here.
func (p *Plugin) beforeRead(db *gorm.DB) {
	if db.Error != nil || db.Statement.SQL.Len() == 0 || p.raw == Ignore {
		return
	}
	table := p.catalog.writtenBy(db.Statement.SQL.String(), db.Name() == dialectMySQL)
	if table == "" {
		return
	}
	if p.raw == Refuse && !p.shadow {
		db.Error = &Error{sentinel: ErrUnguardedWrite, reason: "raw", table: table, hint: "raw SQL writes without the guard: use the model"}
		if many, isRow := db.Get("rows"); isRow && many == false {
			db.Statement.Dest = rowOf(db.Statement.Context, db.Error)
		}
		return
	}
	p.complain(db.Statement.Context, "raw", "gormplugin: raw SQL writes a guarded table", slog.String("table", table))
}

// rowOf returns a row whose Scan gives the error: gorm's Row has no other way to give one, and would return nil.
func rowOf(ctx context.Context, err error) *sql.Row {
	pool := sql.OpenDB(refusingConnector{err})
	defer func() { _ = pool.Close() }()
	return pool.QueryRowContext(ctx, "")
}

// refusingConnector connects to nothing, with an error.
type refusingConnector struct{ err error }

// Connect implements driver.Connector.
func (c refusingConnector) Connect(context.Context) (driver.Conn, error) { return nil, c.err }

// Driver implements driver.Connector.
func (c refusingConnector) Driver() driver.Driver { return nil }

// afterRead maps the errors of statements that gorm does not know as writes, and follows savepoints.
func (p *Plugin) afterRead(db *gorm.DB) {
	if db.Error != nil {
		p.judge.answer(db, isWriteSQL(db.Statement.SQL.String()))
		return
	}
	p.judge.txs.known(db.Statement.ConnPool).heard(db.Statement.SQL.String())
}

// writtenBy returns the guarded table that raw SQL writes, "" for none.
func (c *catalog) writtenBy(sql string, mysql bool) string {
	for _, t := range c.known.Load().tables {
		if containsFold(sql, t.name) && writes(sql, t.name, mysql) {
			return t.name
		}
	}
	return ""
}

// containsFold reports whether text has part in any case, without copying it.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// writes reports whether one of the statements in sql names the table and is neither a SELECT nor DDL nor a plain INSERT.
// Words in texts and comments do not count, quoted names do.
func writes(sql, table string, mysql bool) bool {
	var words []string
	flush := func() bool {
		found := writesTable(words, strings.ToLower(table))
		words = words[:0]
		return found
	}
	for s := (scanner{text: sql, mysql: mysql}); s.next(); {
		if s.word == ";" {
			if flush() {
				return true
			}
			continue
		}
		words = append(words, s.word)
	}
	return flush()
}

func writesTable(words []string, table string) bool {
	has := map[string]bool{}
	changes := false
	for i, w := range words {
		has[w] = true
		switch w {
		case "update":
			changes = changes || i == 0 || words[i-1] != "for" && words[i-1] != "key" // SELECT ... FOR NO KEY UPDATE
		case "delete", "merge", "replace":
			changes = true
		}
	}
	if !has[table] || len(words) == 0 {
		return false
	}
	upserts := has["insert"] && (has["conflict"] && has["update"] || has["duplicate"]) // DO NOTHING leaves what is there
	switch words[0] {
	case "select", "show", "values", "table", "pragma", "lock", "vacuum",
		"create", "alter", "drop", "truncate", "comment", "grant", "revoke", "rename", "reindex", "optimize":
		return false
	case "insert":
		return upserts || len(words) > 2 && words[1] == "or" && words[2] == "replace"
	case "with", "explain", "analyze", "describe", "desc": // of an UPDATE, they may run it
		return changes || upserts
	}
	return true
}

// scanner splits SQL into lower-case words and semicolons.
type scanner struct {
	text  string
	mysql bool // a backslash in a text hides what follows
	at    int
	word  string
}

func (s *scanner) next() bool {
	for s.at < len(s.text) {
		c := s.text[s.at]
		rest := s.text[s.at:]
		switch {
		case c == '\'':
			s.skipText()
		case c == '"' || c == '`' || c == '[':
			end := c
			if c == '[' {
				end = ']'
			}
			i := strings.IndexByte(rest[1:], end)
			if i < 0 { // no name: a quote that is hidden in some way not known here
				s.at++
				continue
			}
			s.word = strings.ToLower(rest[1 : 1+i])
			s.at += i + 2
			return true
		case s.atLineComment(rest):
			s.skipTo("\n")
		case strings.HasPrefix(rest, "/*!"), strings.HasPrefix(rest, "/*M!"): // MySQL and MariaDB run what is in it
			s.at += strings.IndexByte(rest, '!') + 1
		case strings.HasPrefix(rest, "/*"):
			s.skipTo("*/")
		case c == '$' && dollarQuote(rest) != "":
			tag := dollarQuote(rest)
			s.at += len(tag)
			s.skipTo(tag)
		case c == ';':
			s.at++
			s.word = ";"
			return true
		case isWordByte(c):
			end := s.at
			for end < len(s.text) && isWordByte(s.text[end]) {
				end++
			}
			s.word = strings.ToLower(s.text[s.at:end])
			s.at = end
			return true
		default:
			s.at++
		}
	}
	return false
}

// atLineComment reports whether a comment begins that ends with the line. To MySQL 5--1 is a number, and to all others # is
// an operator.
func (s *scanner) atLineComment(rest string) bool {
	if !s.mysql {
		return strings.HasPrefix(rest, "--")
	}
	return rest[0] == '#' || strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' ')
}

// skipText skips a quoted text. A doubled quote is two texts in a row, which is as good. PostgreSQL knows backslashes in
// texts that begin with E.
func (s *scanner) skipText() {
	escapes := s.mysql || s.at > 0 && s.text[s.at-1]|0x20 == 'e' && (s.at == 1 || !isWordByte(s.text[s.at-2]))
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			if escapes {
				s.at++
			}
		case '\'':
			s.at++
			return
		}
	}
}

func (s *scanner) skipTo(end string) {
	if i := strings.Index(s.text[s.at:], end); i >= 0 {
		s.at += i + len(end)
	} else {
		s.at = len(s.text)
	}
}

// dollarQuote returns the opening of a PostgreSQL text in dollars: $$ or $body$; "" for a parameter such as $1.
func dollarQuote(text string) string {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '$':
			return text[:i+1]
		case !isWordByte(c), i == 1 && c >= '0' && c <= '9':
			return ""
		}
	}
	return ""
}
