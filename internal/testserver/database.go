package testserver

import "strings"

// Database is an empty schema or database for one test. The end of the test
// drops it with all that is in it, and ends the connections to it that are left.
type Database struct {
	// DSN is for gorm's driver and for database/sql: a URL for PostgreSQL, the
	// format of go-sql-driver/mysql for MariaDB.
	DSN string
	// Addr is "127.0.0.1:port" of the server.
	Addr string
	// Name is the name of the schema (PostgreSQL) or database (MariaDB).
	Name string
}

// Via returns the DSN with another address in it, such as that of a proxy.
func (d Database) Via(addr string) string {
	return strings.Replace(d.DSN, d.Addr, addr, 1)
}
