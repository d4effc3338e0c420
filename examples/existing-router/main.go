// Command existing-router shows how a finished chi application is guarded without touching its routes: the rules are in
// one JSON file, and one call puts them into effect.
//
//	go run ./examples/existing-router          prints the routes with their rules, and tries them
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	holdfast "github.com/holdfast-go/holdfast/middleware"
)

//go:embed routes.json
var routes []byte

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) (err error) {
	embedded, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer embedded.Close()
	rdb := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	defer func() { err = errors.Join(err, rdb.Close()) }()

	app := application() // what is there already
	guard, err := guardRoutes(app, rdb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close(context.Background())) }()

	for _, r := range guard.Routes(app) {
		fmt.Fprintf(out, "%-6s %-36s %s\n", r.Method, r.Pattern, strings.Join(r.Rules, " "))
	}
	fmt.Fprintln(out)
	for _, key := range []string{"k-1", "k-1", "k-2", ""} {
		req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/accounts/1/transfers", strings.NewReader(`{"to": "2", "cents": 500}`))
		req.Header.Set("Authorization", "user-42")
		req.Header.Set("Idempotency-Key", key)
		if key == "" {
			req.Header.Del("Idempotency-Key")
		}
		rec := httptest.NewRecorder()
		app.ServeHTTP(rec, req)
		fmt.Fprintf(out, "key %-4q %d replayed=%-5v %s\n", key, rec.Code, rec.Header().Get("Idempotent-Replayed") != "", strings.TrimSpace(rec.Body.String()))
	}
	return nil
}

// guardRoutes is all that is added.
func guardRoutes(app chi.Router, rdb redis.UniversalClient) (*holdfast.Guard, error) {
	guard, err := holdfast.New(rdb, holdfast.WithValue("userID", principal))
	if err != nil {
		return nil, err
	}
	annotations, err := holdfast.LoadAnnotations(bytes.NewReader(routes))
	if err != nil {
		return nil, err
	}
	return guard, guard.Apply(app, annotations)
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
