package gormplugin

import (
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The server is killed before, in and after COMMIT. What the first answer says is true of what the restarted server has, and
// the request sent once more, with the same id, ends in exactly one effect.
func TestServerKilledAroundCommit(t *testing.T) {
	type server interface {
		Kill(t testing.TB)
		Restart(t testing.TB)
	}
	start := map[string]func(t *testing.T) (server, proxied){
		dialectPostgres: func(t *testing.T) (server, proxied) {
			srv := testserver.NewPostgres(t)
			d := srv.Database(t)
			p := faultproxy.Postgres(t, d.Addr)
			return srv, proxied{database{dialectPostgres, d.Via(p.Addr())}, p, database{dialectPostgres, d.DSN}}
		},
		dialectMySQL: func(t *testing.T) (server, proxied) {
			srv := testserver.NewMariaDB(t)
			d := srv.Database(t)
			p := faultproxy.MariaDB(t, d.Addr)
			return srv, proxied{database{dialectMySQL, d.Via(p.Addr())}, p, database{dialectMySQL, d.DSN}}
		},
	}
	for name, start := range start {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, d := start(t)
			d.direct.shop(t, gorm.Config{})
			db := d.bare(t, gorm.Config{})
			if err := db.Use(New(shopOptions()...)); err != nil {
				t.Fatal(err)
			}
			sold := int64(0)
			for i, phase := range []string{"before COMMIT", "COMMIT on its way", "reply on its way", "after COMMIT"} {
				row := shopOrder{RequestID: phase, OrderNo: phase, UserID: int64(i), ItemID: 1001}
				request := func(last func()) error {
					return Retry(t.Context(), db, func(tx *gorm.DB) error {
						err := buy(tx, &row)
						last()
						return err
					})
				}
				var err error
				switch phase {
				case "before COMMIT":
					err = request(func() { srv.Kill(t) })
				case "COMMIT on its way", "reply on its way":
					fault := faultproxy.HoldRequest()
					if phase == "reply on its way" {
						fault = faultproxy.HoldReply()
					}
					rule := d.proxy.On(faultproxy.Named("COMMIT"), fault)
					result := make(chan error, 1)
					go func() { result <- request(func() {}) }()
					rule.Wait(t)
					srv.Kill(t)
					d.proxy.CutAll()
					rule.Release()
					err = <-result
				case "after COMMIT":
					err = request(func() {})
					srv.Kill(t)
				}
				srv.Restart(t)
				d.proxy.Heal(t)

				landed := 100-d.direct.stock(t) > sold
				switch {
				case err == nil && !landed:
					t.Errorf("%s: success, and nothing has landed", phase)
				case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) && landed:
					t.Errorf("%s: %v, and it has landed", phase, err)
				case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome):
					t.Errorf("%s: %v", phase, err)
				}
				err = request(func() {})
				for range 5 { // a connection of the pool that the server has not survived
					if !errors.Is(err, ErrUnavailable) {
						break
					}
					err = request(func() {})
				}
				if err != nil {
					t.Errorf("%s: once more: %v", phase, err)
				}
				if sold++; d.direct.stock(t) != 100-sold {
					t.Errorf("%s: stock %d, want %d: one effect a request", phase, d.direct.stock(t), 100-sold)
				}
			}
		})
	}
}
