package gormplugin

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gorm.io/gorm"
)

type sqliteReader struct{ db *gorm.DB }

var charLength = regexp.MustCompile(`\(\s*(\d+)\s*\)`)

func (r sqliteReader) table(name string) (*dbTable, error) {
	name = bareName(name)
	var ddl []string
	if err := r.db.Raw("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", name).Scan(&ddl).Error; err != nil || len(ddl) == 0 {
		return nil, err
	}
	t := &dbTable{}
	if strings.Contains(strings.ToUpper(ddl[0]), "CHECK") {
		t.checks = []string{ddl[0][strings.Index(strings.ToUpper(ddl[0]), "CHECK"):]}
	}
	var columns []struct {
		Name, Type string
		Needed, Pk bool
	}
	if err := r.db.Raw(`SELECT name, type, "notnull" AS needed, pk > 0 AS pk FROM pragma_table_xinfo(?)`, name).Scan(&columns).Error; err != nil {
		return nil, err
	}
	for _, c := range columns {
		t.columns = append(t.columns, sqliteColumn(c.Name, c.Type, !c.Needed && !c.Pk))
	}
	var indexes []struct {
		Name, Origin, SQL string
	}
	err := r.db.Raw(`SELECT l.name, l.origin, COALESCE(m.sql, '') AS sql FROM pragma_index_list(?) l
		LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = l.name WHERE l."unique"`, name).Scan(&indexes).Error
	if err != nil {
		return nil, err
	}
	for _, i := range indexes {
		index := dbIndex{name: i.Name, primary: i.Origin == "pk"}
		if at := strings.LastIndex(strings.ToUpper(i.SQL), " WHERE "); at >= 0 {
			index.where = i.SQL[at+len(" WHERE "):]
		}
		var parts []struct{ Name, Coll string }
		if err := r.db.Raw(`SELECT COALESCE(name, '') AS name, coll FROM pragma_index_xinfo(?) WHERE "key" ORDER BY seqno`, i.Name).Scan(&parts).Error; err != nil {
			return nil, err
		}
		for _, p := range parts {
			index.columns = append(index.columns, p.Name)
			index.caseBlind = index.caseBlind || strings.EqualFold(p.Coll, "NOCASE")
		}
		t.indexes = append(t.indexes, index)
	}
	return t, nil
}

// sqliteColumn judges a declared type by SQLite's own rules of affinity.
func sqliteColumn(name, declared string, nullable bool) dbColumn {
	col := dbColumn{name: name, declared: declared, nullable: nullable}
	switch upper := strings.ToUpper(declared); {
	case strings.Contains(upper, "INT"):
		col.kind, col.bits = wholeKind, 64
	case strings.Contains(upper, "CHAR"), strings.Contains(upper, "CLOB"), strings.Contains(upper, "TEXT"):
		col.kind = textKind
		if m := charLength.FindStringSubmatch(declared); m != nil {
			col.chars, _ = strconv.Atoi(m[1])
		}
	case strings.Contains(upper, "REAL"), strings.Contains(upper, "FLOA"), strings.Contains(upper, "DOUB"):
		col.kind = floatKind
	case strings.Contains(upper, "DEC"), strings.Contains(upper, "NUM"):
		col.kind = decimalKind
	}
	return col
}

func (r sqliteReader) tablesOfIndex(name string) (tables []string, err error) {
	err = r.db.Raw("SELECT tbl_name FROM sqlite_master WHERE type = 'index' AND name = ? COLLATE NOCASE", name).Scan(&tables).Error
	return tables, err
}

func (r sqliteReader) server(v *verification) error {
	var journal string
	var timeout int
	if err := r.db.Raw("PRAGMA journal_mode").Scan(&journal).Error; err != nil {
		return err
	}
	if err := r.db.Raw("PRAGMA busy_timeout").Scan(&timeout).Error; err != nil {
		return err
	}
	if !strings.EqualFold(journal, "wal") && !strings.EqualFold(journal, "memory") {
		v.advise("readers and the writer wait for each other: set journal_mode=WAL", "journal_mode", journal)
	}
	if timeout == 0 {
		v.advise("a writer that finds another fails at once: set busy_timeout")
	}
	if dsn := reflect.Indirect(reflect.ValueOf(r.db.Dialector)).FieldByName("DSN"); dsn.IsValid() && dsn.Kind() == reflect.String && !strings.Contains(dsn.String(), "_txlock=immediate") {
		v.advise("a transaction that reads before it writes fails when another writes in between: add _txlock=immediate to the DSN")
	}
	return nil
}
