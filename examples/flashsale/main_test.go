package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func table(t *testing.T, args ...string) []row {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{"-json", "-buyers", "60", "-stock", "25", "-duration", "300ms"}, args...)
	if err := runTable(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var rows []row
	for dec := json.NewDecoder(&out); dec.More(); {
		var r row
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// D01, D67, D68: the row without control is found guilty, all others sell exactly what there is; also when one user or a
// few of them do all the buying.
func TestTable(t *testing.T) {
	for _, users := range []string{"distinct", "one", "zipf"} {
		t.Run(users, func(t *testing.T) {
			for _, r := range table(t, "-users", users) {
				if r.Clean == (r.Mode == "none") {
					t.Errorf("row %+v has the wrong verdict", r)
				}
				if r.Mode != "none" && (r.Duplicates != 0 || r.FinalStock != 25-int64(r.Successes) || r.P99 < r.P50 || r.Requests < r.Successes) {
					t.Errorf("row %+v does not add up", r)
				}
				if users == "one" && r.Mode != "none" && r.Successes != 1 {
					t.Errorf("one user bought %d times in row %s", r.Successes, r.Mode)
				}
			}
		})
	}
}

func TestTableOnRealServers(t *testing.T) {
	srv, db := testserver.NewRedis(t), testserver.Postgres(t)
	for range 2 { // the second run finds what the first has left
		for _, r := range table(t, "-redis", srv.Addr(), "-postgres", db.DSN) {
			if r.Clean == (r.Mode == "none") {
				t.Errorf("row %+v has the wrong verdict", r)
			}
		}
	}
}

func TestTableForPeople(t *testing.T) {
	var out bytes.Buffer
	if err := runTable(t.Context(), []string{"-buyers", "40", "-stock", "10", "-duration", "100ms"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"duplicate orders", "GUILTY", "clean", "none: oversold", "users: all different"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// C16: a checker that passes the bug proves nothing.
func TestVerdict(t *testing.T) {
	guilty, clean := row{Mode: "none"}, row{Mode: "lock", Clean: true}
	for name, rows := range map[string][]row{
		"none is clean": {{Mode: "none", Clean: true}, clean},
		"lock is not":   {guilty, {Mode: "lock"}},
	} {
		if err := verdict(rows); !errors.Is(err, errNotClean) {
			t.Errorf("%s: verdict %v, want errNotClean", name, err)
		}
	}
	if err := verdict([]row{guilty, clean}); err != nil {
		t.Error(err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"table", "-users", "many"}, {"table", "-stock", "0"}, {"table", "x"}, {"sell"}, {"-trace", "loud"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// buffer is written by the shop and read by the test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The shop that "go run" serves does what its three curl lines promise, and the trace shows the steps of a purchase.
func TestShopAndItsTrace(t *testing.T) {
	provider := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(provider) })
	var out buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runShop(ctx, []string{"-addr", "127.0.0.1:0", "-trace", "tree"}, &out) }()
	port := regexp.MustCompile(`localhost:(\d+)/items`)
	testserver.Eventually(t, 20*time.Second, func() bool { return port.MatchString(out.String()) }, "the shop to say where it is")
	base := "http://" + net.JoinHostPort("127.0.0.1", port.FindStringSubmatch(out.String())[1])

	var first string
	for i, want := range []struct {
		key      string
		status   int
		replayed bool
	}{{"a-1", 201, false}, {"a-1", 201, true}, {"a-2", 409, false}} {
		res, body := post(t, base+"/items/1001/orders", want.key)
		if res.StatusCode != want.status || (res.Header.Get("Idempotent-Replayed") == "true") != want.replayed {
			t.Errorf("purchase %d: %d %s, replayed %q", i+1, res.StatusCode, body, res.Header.Get("Idempotent-Replayed"))
		}
		if i == 0 {
			first = body
		}
		if i == 1 && body != first {
			t.Errorf("the replay is %q, the first answer was %q", body, first)
		}
	}
	res, err := http.Get(base + "/items/1001") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), `"redis":4`) || !strings.Contains(string(body), `"sql":4`) {
		t.Errorf("what is left: %s, want 4 in both", body)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"POST /items/{itemID}/orders", "holdfast.dedup.begin", "executed", "holdfast.stock.deduct", "deducted",
		"INSERT seckill_order", "UPDATE item_stock", "applied", "replayed", "limit_reached",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the traces do not show %q:\n%s", want, out.String())
		}
	}
}

func post(t *testing.T, url, key string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", "42")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, fmt.Sprintf("%s", body)
}
