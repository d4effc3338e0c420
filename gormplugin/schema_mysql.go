package gormplugin

import (
	"strings"

	"gorm.io/gorm"
)

type mysqlReader struct{ db *gorm.DB }

// splitTable returns the database and the table of a name; without a database it is the connection's.
func splitTable(name string) (schema any, table string) {
	if s, t := splitName(strings.ReplaceAll(name, "`", "")); s != "" {
		return s, t
	}
	return gorm.Expr("DATABASE()"), strings.Trim(name, "`")
}

func (r mysqlReader) table(name string) (*dbTable, error) {
	schema, table := splitTable(name)
	var engines []string
	if err := r.db.Raw("SELECT COALESCE(engine, '') FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", schema, table).Scan(&engines).Error; err != nil || len(engines) == 0 {
		return nil, err
	}
	t := &dbTable{engine: engines[0]}
	var columns []struct {
		Name, Type, Declared, Nullable, Collation string
		Chars                                     int64
	}
	err := r.db.Raw(`SELECT column_name AS name, LOWER(data_type) AS type, column_type AS declared, is_nullable AS nullable,
		COALESCE(collation_name, '') AS collation, COALESCE(character_maximum_length, 0) AS chars
		FROM information_schema.columns WHERE table_schema = ? AND table_name = ?`, schema, table).Scan(&columns).Error
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		col := dbColumn{name: c.Name, declared: c.Declared, nullable: c.Nullable == "YES", caseBlind: strings.HasSuffix(c.Collation, "_ci")}
		switch c.Type {
		case "tinyint", "smallint", "mediumint", "int", "bigint":
			col.kind = wholeKind
			col.bits = map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[c.Type]
		case "decimal", "numeric":
			col.kind = decimalKind
		case "float", "double", "real":
			col.kind = floatKind
		case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "binary", "varbinary":
			col.kind, col.chars = textKind, int(min(c.Chars, 1<<30))
		}
		t.columns = append(t.columns, col)
	}
	if err := r.indexes(t, schema, table); err != nil {
		return nil, err
	}
	checks := `SELECT c.check_clause FROM information_schema.check_constraints c JOIN information_schema.table_constraints t
		ON t.constraint_schema = c.constraint_schema AND t.constraint_name = c.constraint_name
		WHERE t.table_schema = ? AND t.table_name = ?`
	if mariaDB, err := r.isMariaDB(); err != nil {
		return nil, err
	} else if mariaDB { // names of checks are a table's own there, and a column's check is no table constraint
		checks = "SELECT check_clause FROM information_schema.check_constraints WHERE constraint_schema = ? AND table_name = ?"
	}
	err = r.db.Raw(checks, schema, table).Scan(&t.checks).Error
	return t, err
}

func (r mysqlReader) indexes(t *dbTable, schema any, table string) error {
	var parts []struct {
		Name, Column string
		Prefix       int
	}
	err := r.db.Raw("SELECT index_name AS name, COALESCE(column_name, '') AS `column`, COALESCE(sub_part, 0) AS prefix FROM information_schema.statistics"+
		" WHERE table_schema = ? AND table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index", schema, table).Scan(&parts).Error
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.Prefix > 0 {
			p.Column = "" // a prefix is another key than the column
		}
		if n := len(t.indexes); n > 0 && t.indexes[n-1].name == p.Name {
			t.indexes[n-1].columns = append(t.indexes[n-1].columns, p.Column)
			continue
		}
		t.indexes = append(t.indexes, dbIndex{name: p.Name, columns: []string{p.Column}, primary: p.Name == "PRIMARY"})
	}
	return nil
}

func (r mysqlReader) isMariaDB() (bool, error) {
	var version string
	err := r.db.Raw("SELECT VERSION()").Scan(&version).Error
	return strings.Contains(version, "MariaDB"), err
}

func (r mysqlReader) tablesOfIndex(name string) (tables []string, err error) {
	err = r.db.Raw(`SELECT DISTINCT table_name FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND non_unique = 0 AND index_name = ?`, name).Scan(&tables).Error
	return tables, err
}

func (r mysqlReader) server(v *verification) error {
	var mode string
	if err := r.db.Raw("SELECT @@SESSION.sql_mode").Scan(&mode).Error; err != nil {
		return err
	}
	if !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "TRADITIONAL") {
		v.fault("", "", "sql_mode is not strict, so a number out of range is cut off without an error: add STRICT_TRANS_TABLES")
	}
	if strings.Contains(mode, "NO_UNSIGNED_SUBTRACTION") {
		v.fault("", "", "sql_mode has NO_UNSIGNED_SUBTRACTION, with which an unsigned column may fall below zero: remove it")
	}
	var levels []struct{ VariableName, Value string }
	if err := r.db.Raw("SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')").Scan(&levels).Error; err != nil {
		return err
	}
	if len(levels) > 0 {
		adviseIsolation(v, levels[0].Value)
	}
	return r.countedRows(v)
}

// countedRows finds out whether an UPDATE that changes nothing counts its row. The driver's configuration does not say:
// it is ignored when a DSN is given too.
func (r mysqlReader) countedRows(v *verification) error {
	return r.db.Connection(func(tx *gorm.DB) error {
		tx = tx.Session(&gorm.Session{NewDB: true, SkipDefaultTransaction: true})
		if err := tx.Exec("CREATE TEMPORARY TABLE holdfast_probe (n INT) ENGINE=MEMORY").Error; err != nil {
			v.advise("cannot find out whether UPDATE counts found or changed rows", "error_type", "probe")
			return nil
		}
		defer tx.Exec("DROP TEMPORARY TABLE IF EXISTS holdfast_probe")
		if err := tx.Exec("INSERT INTO holdfast_probe VALUES (1)").Error; err != nil {
			return err
		}
		update := tx.Exec("UPDATE holdfast_probe SET n = 1")
		if update.Error == nil && update.RowsAffected == 0 {
			v.advise("UPDATE counts changed rows, so one that changes nothing costs a SELECT more: add clientFoundRows=true to the DSN")
		}
		return update.Error
	})
}
