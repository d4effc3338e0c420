package gormplugin

import (
	"fmt"
	"strings"

	"gorm.io/gorm"
)

// readerFor returns the reader for a database.
func readerFor(db *gorm.DB) (schemaReader, error) {
	switch db.Name() {
	case dialectPostgres:
		return postgresReader{db}, nil
	case dialectMySQL:
		return mysqlReader{db}, nil
	case dialectSQLite:
		return sqliteReader{db}, nil
	}
	return nil, fail(ErrInvalid, "dialector", "the plugin knows PostgreSQL, MySQL, MariaDB and SQLite")
}

type postgresReader struct{ db *gorm.DB }

// regclass writes a name as PostgreSQL's input function wants it.
func regclass(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(strings.Trim(p, `"`), `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}

func (r postgresReader) table(name string) (*dbTable, error) {
	var columns []struct {
		Name, Type, Declared string
		NotNull, Blind       bool
		Modifier             int
	}
	err := r.db.Raw(`SELECT a.attname AS name, COALESCE(base.typname, t.typname) AS type, format_type(a.atttypid, a.atttypmod) AS declared,
		a.attnotnull OR t.typnotnull AS not_null, COALESCE(NOT c.collisdeterministic, false) OR t.typname = 'citext' AS blind,
		CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type base ON t.typtype = 'd' AND base.oid = t.typbasetype
		LEFT JOIN pg_collation c ON c.oid = a.attcollation
		WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped`, regclass(name)).Scan(&columns).Error
	if err != nil || len(columns) == 0 {
		return nil, err
	}
	t := &dbTable{}
	for _, c := range columns {
		col := dbColumn{name: c.Name, declared: c.Declared, nullable: !c.NotNull, caseBlind: c.Blind}
		switch c.Type {
		case "int2", "int4", "int8":
			col.kind = wholeKind
			_, _ = fmt.Sscanf(c.Type, "int%d", &col.bits)
			col.bits *= 8
		case "numeric":
			col.kind = decimalKind
		case "float4", "float8", "money":
			col.kind = floatKind
		case "varchar", "bpchar":
			col.kind, col.chars = textKind, max(c.Modifier-4, 0)
		case "text", "citext":
			col.kind = textKind
		}
		t.columns = append(t.columns, col)
	}
	var indexes []struct {
		Name, Columns, Predicate string
		Primary, Valid           bool
	}
	err = r.db.Raw(`SELECT i.relname AS name, x.indisprimary AS "primary", x.indisvalid AS valid,
		COALESCE(pg_get_expr(x.indpred, x.indrelid), '') AS predicate,
		(SELECT string_agg(COALESCE(a.attname, ''), chr(31) ORDER BY k.nth) FROM unnest(x.indkey::int2[]) WITH ORDINALITY k(num, nth)
			LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.num WHERE k.nth <= x.indnkeyatts) AS columns
		FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indisunique AND x.indrelid = to_regclass(?)`, regclass(name)).Scan(&indexes).Error
	if err != nil {
		return nil, err
	}
	for _, i := range indexes {
		t.indexes = append(t.indexes, dbIndex{name: i.Name, columns: strings.Split(i.Columns, "\x1f"), where: i.Predicate, primary: i.Primary, invalid: !i.Valid})
	}
	err = r.db.Raw(`SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = to_regclass(?)`, regclass(name)).Scan(&t.checks).Error
	return t, err
}

func (r postgresReader) tablesOfIndex(name string) (tables []string, err error) {
	err = r.db.Raw(`SELECT t.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
		WHERE x.indisunique AND i.relname = ? AND pg_table_is_visible(t.oid)`, name).Scan(&tables).Error
	return tables, err
}

func (r postgresReader) server(v *verification) error {
	var level string
	if err := r.db.Raw("SELECT current_setting('default_transaction_isolation')").Scan(&level).Error; err != nil {
		return err
	}
	adviseIsolation(v, level)
	return nil
}

func adviseIsolation(v *verification, level string) {
	switch strings.ToLower(strings.ReplaceAll(level, "-", " ")) {
	case "repeatable read", "serializable":
		v.advise("transactions run above READ COMMITTED, which is enough for the guard: the rest is more conflicts and repeats", "isolation", level)
	}
}
