package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
)

// shop is a service with a guarded router, as its authors would build it, over real HTTP.
type shop struct {
	*chi.Mux
	t      *testing.T
	rdb    *redis.Client
	prefix string
	guard  *Guard
	logs   *logBook

	start  sync.Once
	srv    *httptest.Server
	client *http.Client
}

// onBoth runs a test on miniredis and on a real Redis.
func onBoth(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, miniShop(t))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		srv := testserver.Redis(t)
		test(t, newShop(t, srv.Client(t), srv.Prefix(t)))
	})
}

// miniShop is a shop on a miniredis of its own.
func miniShop(t *testing.T, opts ...Option) *shop {
	t.Helper()
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return newShop(t, rdb, "shop:", opts...)
}

// privateShop is a shop on a real Redis of its own, which may be paused and killed.
func privateShop(t *testing.T, opts ...Option) (*shop, *testserver.RedisServer) {
	t.Helper()
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
	return newShop(t, rdb, "", opts...), srv
}

func newShop(t *testing.T, rdb *redis.Client, prefix string, opts ...Option) *shop {
	t.Helper()
	s := &shop{Mux: chi.NewRouter(), t: t, rdb: rdb, prefix: prefix, logs: &logBook{}}
	s.guard = s.newGuard(opts...)
	return s
}

// newGuard makes another guard on the shop's Redis, as another process of the service would have it.
func (s *shop) newGuard(opts ...Option) *Guard {
	s.t.Helper()
	all := []Option{WithValue("userID", currentUser), WithLogger(slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))}
	if s.prefix != "" {
		all = append(all, Prefix(s.prefix))
	}
	g, err := New(s.rdb, append(all, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			s.t.Errorf("close the guard: %v", err)
		}
	})
	return g
}

// currentUser stands for authentication.
func currentUser(r *http.Request) (string, error) {
	user := r.Header.Get("X-User")
	if user == "nobody" {
		return "", unauthorized{}
	}
	return user, nil
}

type unauthorized struct{}

func (unauthorized) Error() string   { return "token 7f3a expired" }
func (unauthorized) HTTPStatus() int { return http.StatusUnauthorized }

// call is a request of a client.
type call struct {
	method, path string
	key          string // Idempotency-Key
	user         string // "42" unless said
	body         string
	header       http.Header
	ctx          context.Context
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r reply) code() string {
	var p Problem
	_ = json.Unmarshal([]byte(r.body), &p)
	return p.Code
}

func (s *shop) do(c call) reply { return s.doOn(s.server(), c) }

func (s *shop) server() *httptest.Server {
	s.start.Do(func() {
		s.srv = httptest.NewServer(s.Mux)
		s.srv.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(s.logs, nil), slog.LevelError)
		transport := &http.Transport{MaxIdleConnsPerHost: 200}
		s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		s.t.Cleanup(func() {
			transport.CloseIdleConnections()
			s.srv.Close()
		})
	})
	return s.srv
}

func (s *shop) doOn(srv *httptest.Server, c call) reply {
	s.t.Helper()
	r := s.request(c)
	r.URL.Scheme, r.URL.Host = "http", srv.Listener.Addr().String()
	r.RequestURI = ""
	res, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

func (s *shop) request(c call) *http.Request {
	if c.ctx == nil {
		c.ctx = s.t.Context()
	}
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.user == "" {
		c.user = "42"
	}
	r, err := http.NewRequestWithContext(c.ctx, c.method, "http://shop"+c.path, strings.NewReader(c.body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, lines := range c.header {
		r.Header[name] = lines
	}
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	r.Header.Set("X-User", c.user)
	return r
}

// keys returns the keys in Redis below a prefix such as "lock:", without the shop's own prefix.
func (s *shop) keys(below string) []string {
	s.t.Helper()
	var found []string
	it := s.rdb.Scan(context.Background(), 0, s.prefix+below+"*", 1000).Iterator()
	for it.Next(context.Background()) {
		found = append(found, strings.TrimPrefix(it.Val(), s.prefix))
	}
	if err := it.Err(); err != nil {
		s.t.Fatal(err)
	}
	return found
}

// record returns the fields of the only request record.
func (s *shop) record() (key string, fields map[string]string) {
	s.t.Helper()
	keys := s.keys("idem:")
	if len(keys) != 1 {
		s.t.Fatalf("%d request records, want 1: %v", len(keys), keys)
	}
	fields, err := s.rdb.HGetAll(context.Background(), s.prefix+keys[0]).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.prefix + keys[0], fields
}

// logBook keeps what was logged.
type logBook struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// has reports whether one line has all the texts.
func (l *logBook) has(texts ...string) bool {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return true
		}
	}
	return false
}

// gate lets a test hold handlers.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 1000), open: make(chan struct{})} }

// pass is called by the handler: it tells the test and waits until the gate is opened or the request ends.
func (g *gate) pass(ctx context.Context) error {
	g.entered <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits for a handler at the gate.
func (g *gate) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.entered:
	case <-time.After(10 * time.Second):
		t.Fatal("no handler came to the gate")
	}
}

// later runs a call and hands over its reply.
func (s *shop) later(c call) <-chan reply {
	s.server()
	ch := make(chan reply, 1)
	go func() { ch <- s.do(c) }()
	return ch
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

var errTest = errors.New("redis://:secret@10.0.0.1:6379: down")

func newMux() *chi.Mux { return chi.NewRouter() }

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testLocker is a locker without a Redis: everybody gets the lock at once.
func testLocker(t testing.TB) *lock.Locker {
	t.Helper()
	l, err := lock.NewWith(generous{}, lock.WithLogger(quietLogger()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// generous is a lock backend that grants everything.
type generous struct{}

func (generous) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	return lock.Grant{Held: true, Fence: 1}, nil
}
func (generous) Renew(context.Context, lock.Held) (lock.State, error) { return lock.Ours, nil }
func (generous) Release(context.Context, lock.Held) (lock.Released, error) {
	return lock.Released{State: lock.Ours}, nil
}

// redisVia sends a client through a proxy.
func redisVia(addr string) func(*redis.Options) {
	return func(o *redis.Options) { o.Addr = addr }
}

// recoverer is chi's Recoverer without the report.
func recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(v)
				}
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
