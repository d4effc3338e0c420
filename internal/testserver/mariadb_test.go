package testserver_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMariaDB_Answers(t *testing.T) {
	d := testserver.MariaDB(t)
	db, err := sql.Open("mysql", d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE a (id int)"); err != nil {
		t.Fatal(err)
	}
}
func TestMariaDB_Kill(t *testing.T) {
	srv := testserver.NewMariaDB(t)
	srv.Pause(t)
	srv.Resume(t)
	srv.Kill(t)
	srv.Restart(t)
	srv.RestartEmpty(t)
}
