// Command existing-router shows how a finished chi application is guarded without touching its routes: the rules are in
// one JSON file, and one call puts them into effect.
//
//	go run ./examples/existing-router          prints the routes with their rules, tries them, and checks the answers
//	go run ./examples/existing-router -redis localhost:6379
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	holdfast "github.com/holdfast-go/holdfast/middleware"
)

//go:embed routes.json
var routes []byte

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "existing-router:", err)
		os.Exit(1)
	}
}

// tries are what is sent, and what must come back.
var tries = []struct {
	key      string
	status   int
	replayed bool
}{
	{"k-1", http.StatusCreated, false},
	{"k-1", http.StatusCreated, true}, // the first answer again
	{"k-2", http.StatusCreated, false},
	{"", http.StatusBadRequest, false}, // no key
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("existing-router", flag.ContinueOnError)
	server := fs.String("redis", "", "address of a Redis server, `host:port`; empty: embedded")
	if err := fs.Parse(args); err != nil {
		return err
	}
	rdb, stop, err := stores.OpenRedis(ctx, *server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	app := application() // what is there already
	guard, err := guardRoutes(app, rdb, "existing-router:"+rand.Text()[:8]+":")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close(ctx)) }()

	for _, r := range guard.Routes(app) {
		fmt.Fprintf(out, "%-6s %-36s %s\n", r.Method, r.Pattern, strings.Join(r.Rules, " "))
	}
	fmt.Fprintln(out)
	var must stores.Check
	for _, try := range tries {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/accounts/1/transfers", strings.NewReader(`{"to": "2", "cents": 500}`))
		req.Header.Set("Authorization", "user-42")
		if try.key != "" {
			req.Header.Set("Idempotency-Key", try.key)
		}
		rec := httptest.NewRecorder()
		app.ServeHTTP(rec, req)
		replayed := rec.Header().Get("Idempotent-Replayed") != ""
		fmt.Fprintf(out, "key %-5q %d replayed=%-5v %s\n", try.key, rec.Code, replayed, strings.TrimSpace(rec.Body.String()))
		must.Must(rec.Code == try.status && replayed == try.replayed, "key %q was answered %d, replayed %v; want %d and %v", try.key, rec.Code, replayed, try.status, try.replayed)
	}
	return must.Err()
}

// guardRoutes is all that is added.
func guardRoutes(app chi.Router, rdb redis.UniversalClient, prefix string) (*holdfast.Guard, error) {
	guard, err := holdfast.New(rdb, holdfast.Prefix(prefix), holdfast.WithValue("userID", principal))
	if err != nil {
		return nil, err
	}
	annotations, err := holdfast.LoadAnnotations(bytes.NewReader(routes))
	if err != nil {
		return nil, err
	}
	if err := guard.Apply(app, annotations); err != nil {
		return nil, errors.Join(err, guard.Close(context.Background()))
	}
	return guard, nil
}

// principal is what the application's authentication knows.
func principal(r *http.Request) (string, error) {
	user, ok := r.Context().Value(userKey{}).(string)
	if !ok {
		return "", errors.New("no user in the context: is the guard mounted inside authentication?")
	}
	return user, nil
}

// From here on, the application as it was.

type userKey struct{}

func application() chi.Router {
	r := chi.NewRouter()
	r.Use(authenticate)
	r.Get("/accounts/{accountID}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "account %s", chi.URLParam(r, "accountID"))
	})
	r.Route("/accounts/{accountID}", func(r chi.Router) {
		transfers := 0
		r.Post("/transfers", func(w http.ResponseWriter, _ *http.Request) {
			transfers++
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "transfer %d", transfers)
		})
	})
	return r
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("Authorization")
		if user == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}
