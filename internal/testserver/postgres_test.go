package testserver_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestPostgres_Answers(t *testing.T) {
	db := testserver.Postgres(t)
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE a (id int)"); err != nil {
		t.Fatal(err)
	}
}
func TestPostgres_Kill(t *testing.T) {
	srv := testserver.NewPostgres(t)
	srv.Pause(t)
	srv.Resume(t)
	srv.Kill(t)
	srv.Restart(t)
	srv.RestartEmpty(t)
}
