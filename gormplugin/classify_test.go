package gormplugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type safeToRetry struct{ error }

func (safeToRetry) SafeToRetry() bool { return true }

// pqError has the shape of lib/pq's error, which names the constraint in another field than pgx.
type pqError struct {
	Code              string
	Constraint, Table string
}

func (e *pqError) Error() string    { return "pq: duplicate key value violates unique constraint" }
func (e *pqError) SQLState() string { return e.Code }

func my(number uint16, state, message string) error {
	e := &mysql.MySQLError{Number: number, Message: message}
	copy(e.SQLState[:], state)
	return e
}

func TestDatabaseErrorsAreToldApart(t *testing.T) {
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	tests := map[string]struct {
		dialect string
		err     error
		want    class
	}{
		"postgres unique":                     {dialectPostgres, pg("23505"), uniqueViolation},
		"postgres exclusion":                  {dialectPostgres, pg("23P01"), uniqueViolation},
		"postgres check":                      {dialectPostgres, pg("23514"), checkViolation},
		"postgres out of range":               {dialectPostgres, pg("22003"), outOfRange},
		"postgres serialization":              {dialectPostgres, pg("40001"), conflicting},
		"postgres deadlock":                   {dialectPostgres, pg("40P01"), conflicting},
		"postgres lock timeout":               {dialectPostgres, pg("55P03"), conflicting},
		"postgres dead transaction":           {dialectPostgres, pg("25P02"), deadTx},
		"postgres too many connections":       {dialectPostgres, pg("53300"), unavailable},
		"postgres disk full":                  {dialectPostgres, pg("53100"), unavailable},
		"postgres shutting down":              {dialectPostgres, pg("57P01"), unavailable},
		"postgres starting up":                {dialectPostgres, pg("57P03"), unavailable},
		"postgres read-only":                  {dialectPostgres, pg("25006"), unavailable},
		"postgres statement timeout":          {dialectPostgres, pg("57014"), unavailable},
		"postgres idle in transaction":        {dialectPostgres, pg("25P03"), unavailable},
		"postgres transaction timeout":        {dialectPostgres, pg("25P04"), unavailable},
		"mysql idle connection":               {dialectMySQL, my(4031, "HY000", "disconnected because of inactivity"), unavailable},
		"postgres pooler lost its server":     {dialectPostgres, pg("08P01"), lost},
		"postgres foreign key":                {dialectPostgres, pg("23503"), otherServer},
		"postgres commit of an aborted one":   {dialectPostgres, pgx.ErrTxCommitRollback, deadTx},
		"postgres through lib/pq":             {dialectPostgres, &pqError{Code: "23505"}, uniqueViolation},
		"postgres safe to retry":              {dialectPostgres, safeToRetry{errors.New("x")}, unavailable},
		"mysql duplicate":                     {dialectMySQL, my(1062, "23000", "x"), uniqueViolation},
		"mysql check":                         {dialectMySQL, my(3819, "HY000", "x"), checkViolation},
		"mariadb check":                       {dialectMySQL, my(4025, "23000", "x"), checkViolation},
		"mysql out of range":                  {dialectMySQL, my(1264, "22003", "x"), outOfRange},
		"mysql unsigned out of range":         {dialectMySQL, my(1690, "22003", "x"), outOfRange},
		"mysql deadlock":                      {dialectMySQL, my(1213, "40001", "x"), conflicting},
		"mariadb row changed":                 {dialectMySQL, my(1020, "HY000", "x"), conflicting},
		"mysql lock wait":                     {dialectMySQL, my(1205, "HY000", "x"), conflicting},
		"mysql nowait":                        {dialectMySQL, my(3572, "HY000", "x"), conflicting},
		"mysql too many connections":          {dialectMySQL, my(1040, "08004", "x"), unavailable},
		"mysql shutdown":                      {dialectMySQL, my(1053, "08S01", "x"), unavailable},
		"mysql read-only option":              {dialectMySQL, my(1290, "HY000", "x"), unavailable},
		"mysql read-only mode":                {dialectMySQL, my(1836, "HY000", "x"), unavailable},
		"mysql foreign key":                   {dialectMySQL, my(1452, "23000", "x"), otherServer},
		"mysql text only":                     {dialectMySQL, errors.New("Error 1213 (40001): Deadlock found"), conflicting},
		"mysql text without state":            {dialectMySQL, errors.New("Error 1213: Deadlock found"), conflicting},
		"mysql text of somebody else":         {dialectMySQL, errors.New("Error 1213 of my own"), notOurs},
		"mysql reply lost":                    {dialectMySQL, mysql.ErrInvalidConn, lost},
		"sqlite busy as text":                 {dialectSQLite, errors.New("database is locked"), conflicting},
		"sqlite table locked as text":         {dialectSQLite, errors.New("database table is locked"), conflicting},
		"sqlite commit of what was undone":    {dialectSQLite, errors.New("cannot commit - no transaction is active"), deadTx},
		"bad connection":                      {dialectPostgres, driver.ErrBadConn, unavailable},
		"transaction done":                    {dialectMySQL, sql.ErrTxDone, deadTx},
		"end of stream":                       {dialectPostgres, io.ErrUnexpectedEOF, lost},
		"cancelled":                           {dialectPostgres, context.Canceled, lost},
		"deadline":                            {dialectMySQL, context.DeadlineExceeded, lost},
		"dial refused":                        {dialectMySQL, &net.OpError{Op: "dial", Err: errors.New("refused")}, unavailable},
		"read reset":                          {dialectMySQL, &net.OpError{Op: "read", Err: errors.New("reset")}, lost},
		"a value that looks like a duplicate": {dialectPostgres, errors.New("UNIQUE constraint failed: orders.id"), notOurs},
		"no database error":                   {dialectPostgres, errors.New("no"), notOurs},
		"of this package":                     {dialectPostgres, &Error{sentinel: ErrConflict, cause: pg("40001")}, notOurs},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for depth, err := range map[string]error{
				"bare":    tt.err,
				"wrapped": fmt.Errorf("more: %w", fmt.Errorf("and more: %w", tt.err)),
				"joined":  errors.Join(errors.New("first"), tt.err),
			} {
				if got := classify(tt.dialect, err); got.class != tt.want {
					t.Errorf("%s: class %d, want %d", depth, got.class, tt.want)
				} else if tt.want != notOurs && got.err != tt.err { //nolint:errorlint // the driver's error itself
					t.Errorf("%s: found %v, want the driver's error itself", depth, got.err)
				}
			}
		})
	}
}

// A connection that cannot be made has sent nothing, whatever broke it.
func TestConnectionThatCannotBeMadeIsUnavailable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	_, err = pgconn.Connect(t.Context(), fmt.Sprintf("postgres://u:secret@%s/db", closed.Addr()))
	if got := classify(dialectPostgres, err); got.class != unavailable {
		t.Errorf("postgres: class %d for %v, want unavailable", got.class, err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("u:secret@tcp(%s)/db", closed.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := classify(dialectMySQL, db.Ping()); got.class != unavailable {
		t.Errorf("mysql: class %d, want unavailable", got.class)
	}
}

// MySQL rolls back the whole transaction on these, or may have: what comes next would commit by itself.
func TestWhichErrorsEndTheTransaction(t *testing.T) {
	for number, want := range map[uint16]bool{1213: true, 1020: true, 1205: true, 1062: false, 3572: false, 1264: false} {
		if got := classify(dialectMySQL, my(number, "HY000", "x")).endsTx; got != want {
			t.Errorf("%d: ends the transaction = %v, want %v", number, got, want)
		}
	}
}

// The texts of MySQL 8.0 and 8.4 as their servers give them, in the languages of lc_messages, and of MariaDB. The name of
// the key comes last in all of them, and a value may hold anything.
func TestNamesInTheTextsOfMySQL(t *testing.T) {
	tests := map[string]struct {
		number uint16
		text   string
		want   string
	}{
		"8.0 with the table": {1062, "Duplicate entry '7-1001' for key 'orders.uk_user_item'", "orders.uk_user_item"},
		"5.7 and MariaDB":    {1062, "Duplicate entry '7-1001' for key 'uk_user_item'", "uk_user_item"},
		"primary key":        {1062, "Duplicate entry '1' for key 'orders.PRIMARY'", "orders.PRIMARY"},
		"quotes in the value": {
			1062, "Duplicate entry 'O'Neil' for key 'uk_other'-1' for key 'orders.uk_user_item'",
			"orders.uk_user_item",
		},
		"German":                     {1062, "Doppelter Eintrag '7-1001' für Schlüssel 'orders.uk_user_item'", "orders.uk_user_item"},
		"French":                     {1062, "Duplicata du champ '7-1001' pour la clef 'orders.uk_user_item'", "orders.uk_user_item"},
		"Spanish":                    {1062, "Entrada duplicada '7-1001' para la clave 'orders.uk_user_item'", "orders.uk_user_item"},
		"Japanese":                   {1062, "'7-1001' は索引 'orders.uk_user_item' で重複しています。", "orders.uk_user_item"},
		"Hungarian":                  {1062, "Duplikalt bejegyzes '7-1001' a 'orders.uk_user_item' kulcs szerint.", "orders.uk_user_item"},
		"Russian":                    {1062, "Дублирующаяся запись '7-1001' по ключу 'orders.uk_user_item'", "orders.uk_user_item"},
		"8.0 check":                  {3819, "Check constraint 'chk_items_stock' is violated.", "chk_items_stock"},
		"MariaDB":                    {4025, "CONSTRAINT `chk_items_stock` failed for `shop`.`items`", "chk_items_stock"},
		"MariaDB, check of a column": {4025, "CONSTRAINT `items.stock` failed for `shop`.`items`", "items.stock"},
		"no quotes":                  {1062, "Duplicate", ""},
		"one quote":                  {1062, "Duplicate entry '", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := classify(dialectMySQL, my(tt.number, "23000", tt.text)).name; got != tt.want {
				t.Errorf("with the driver's fields: %q, want %q", got, tt.want)
			}
			text := fmt.Errorf("Error %d (23000): %s", tt.number, tt.text)
			if got := classify(dialectMySQL, text).name; got != tt.want {
				t.Errorf("from the text alone: %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNamesInTheFieldsOfPostgreSQL(t *testing.T) {
	got := classify(dialectPostgres, &pgconn.PgError{
		Code: "23505", ConstraintName: "uk_user_item", TableName: "orders",
		Message: "doppelter Schlüsselwert verletzt Unique-Constraint »uk_user_item«",
		Detail:  `Schlüssel »(user_id, "Item")=(7, 1001)« existiert bereits.`,
	})
	if got.name != "uk_user_item" || got.table != "orders" || !slices.Equal(got.columns, []string{"user_id", "Item"}) {
		t.Errorf("got %+v", got)
	}
	got = classify(dialectPostgres, &pqError{Code: "23505", Constraint: "uk_user_item", Table: "orders"})
	if got.name != "uk_user_item" || got.table != "orders" {
		t.Errorf("lib/pq: got %+v", got)
	}
}

// SQLite names columns, not the index; only an index over expressions is named. Its texts hold no value.
func TestNamesInTheTextsOfSQLite(t *testing.T) {
	db, err := gorm.Open(sqlite.Open(t.TempDir()+"/x.db"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	sqlDB, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	defer sqlDB.Close()
	for _, ddl := range []string{
		"CREATE TABLE orders (id INTEGER PRIMARY KEY, a INT, b INT, c TEXT, CONSTRAINT chk_a CHECK (a < 100), CHECK (b < 100))",
		"CREATE UNIQUE INDEX uk_ab ON orders (a, b)", "CREATE UNIQUE INDEX uk_lower ON orders (lower(c))",
		"INSERT INTO orders VALUES (1, 1, 1, 'x')",
	} {
		if err := db.Exec(ddl).Error; err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		insert  string
		class   class
		name    string
		columns []string
	}{
		"two columns":    {"(2, 1, 1, 'y')", uniqueViolation, "", []string{"a", "b"}},
		"primary key":    {"(1, 2, 2, 'y')", uniqueViolation, "", []string{"id"}},
		"expression":     {"(2, 2, 2, 'X')", uniqueViolation, "uk_lower", nil},
		"check, named":   {"(2, 100, 2, 'y')", checkViolation, "chk_a", nil},
		"check, unnamed": {"(2, 2, 100, 'y')", checkViolation, "b < 100", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := db.Exec("INSERT INTO orders VALUES " + tt.insert).Error
			for _, err := range []error{err, fmt.Errorf("more: %w", err), errors.New(withoutCode(err.Error()))} {
				got := classify(dialectSQLite, err)
				if got.class != tt.class || got.name != tt.name || !slices.Equal(got.columns, tt.columns) {
					t.Errorf("%v: got %+v", err, got)
				}
			}
		})
	}
}
