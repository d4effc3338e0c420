package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/middleware/interop/shopapi"
)

const orders = "/v1/shops/7/items/1001/orders"

// The routes that a library has registered are listed with the rules that an annotation has given them, and no others.
func TestRoutesAreListed(t *testing.T) {
	onEach(t, func(t *testing.T, m *mounted) {
		if err := m.apply(routesJSON); err != nil {
			t.Fatal(err)
		}
		if err := m.guard.Validate(m.router); err != nil {
			t.Errorf("Validate: %v", err)
		}
		var guarded []middleware.RouteInfo
		all := m.guard.Routes(m.router)
		for _, r := range all {
			if len(r.Rules) > 0 {
				guarded = append(guarded, r)
			}
		}
		want := []string{`Dedup("{userID}")`, `Lock("stock:{shopID|int}:{itemID|int}")`}
		if len(guarded) != 1 || guarded[0].Method != "POST" || guarded[0].Pattern != "/v1/shops/{shopID}/items/{itemID}/orders" || !slices.Equal(guarded[0].Rules, want) {
			t.Errorf("guarded are %+v, want the orders with %q", guarded, want)
		}
		if len(all) < 2 {
			t.Errorf("only %+v is listed", all)
		}
	})
}

// The key is made of the path's parameters, and one resource has one key however the request spells it.
func TestLockKeyComesFromThePath(t *testing.T) {
	onEach(t, func(t *testing.T, m *mounted) {
		held := make(chan []string, 2)
		m.shop.during = func(ctx context.Context) {
			keys, err := m.rdb.Keys(ctx, m.prefix+"lock:*").Result()
			if err != nil {
				t.Error(err)
			}
			held <- keys
		}
		m.listen()
		for i, path := range []string{orders, "/v1/shops/07/items/%31001/orders"} {
			if got := m.post(path, "key-"+strconv.Itoa(i)); got.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, got.StatusCode, got.body)
			}
			if keys, want := receive(t, held), m.prefix+"lock:stock:7:1001"; !slices.Equal(keys, []string{want}) {
				t.Errorf("%s: locks %q, want %q", path, keys, want)
			}
		}
	})
}

// A repeat gets the first answer again, byte for byte, and the handler does not run.
func TestRepeatIsReplayed(t *testing.T) {
	onEach(t, func(t *testing.T, m *mounted) {
		m.listen()
		first, again, other := m.post(orders, "key-1"), m.post(orders, "key-1"), m.post(orders, "key-2")
		if first.StatusCode != http.StatusCreated || first.Header.Get("Idempotent-Replayed") != "" {
			t.Fatalf("first: %d %v %s", first.StatusCode, first.Header, first.body)
		}
		if again.StatusCode != http.StatusCreated || again.Header.Get("Idempotent-Replayed") != "true" || again.body != first.body ||
			again.Header.Get("Content-Type") != first.Header.Get("Content-Type") {
			t.Errorf("repeat: %d %v %q, want the answer %q", again.StatusCode, again.Header, again.body, first.body)
		}
		if other.body == first.body || m.shop.orders.Load() != 2 {
			t.Errorf("two keys: %q and %q, %d orders", first.body, other.body, m.shop.orders.Load())
		}
	})
}

// Who finds the lock taken is answered 429 with the time to wait; another item is free.
func TestBusy(t *testing.T) {
	onEach(t, func(t *testing.T, m *mounted) {
		inside, leave := make(chan struct{}, 2), make(chan struct{})
		m.shop.during = func(context.Context) {
			inside <- struct{}{}
			<-leave
		}
		m.listen()
		replies := make(chan reply, 2)
		for key, path := range map[string]string{"one": orders, "two": "/v1/shops/7/items/1002/orders"} {
			go func() {
				r, err := m.send(path, key)
				if err != nil {
					t.Error(err)
				}
				replies <- r
			}()
			receive(t, inside) // both are inside at the same time: two items are two locks
		}
		busy := m.post(orders, "three")
		close(leave)
		for range 2 {
			if r := receive(t, replies); r.Response == nil || r.StatusCode != http.StatusCreated {
				t.Errorf("a holder got %+v", r)
			}
		}
		var problem struct{ Type, Code string }
		if err := json.Unmarshal([]byte(busy.body), &problem); err != nil {
			t.Errorf("%v in %q", err, busy.body)
		}
		if busy.StatusCode != http.StatusTooManyRequests || busy.Header.Get("Retry-After") == "" || problem.Code != "busy" ||
			busy.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("busy: %d %v %s", busy.StatusCode, busy.Header, busy.body)
		}
		if later := m.post(orders, "three"); later.StatusCode != http.StatusCreated {
			t.Errorf("later: %d %s", later.StatusCode, later.body)
		}
	})
}

// A mistake is found before anything is served, with what to write instead, and the router stays as it was.
func TestMistakesAreFound(t *testing.T) {
	onEach(t, func(t *testing.T, m *mounted) {
		err := m.apply(`{
			"POST /v1/shops/{shopID}/items/{itemID}/order":  {"lock": {"keys": ["stock:{itemID}"]}},
			"POST /v1/shops/{shopID}/items/{itemID}/orders": {"lock": {"keys": ["stock:{itemId}"]}}
		}`)
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{
			`items/{itemID}/order: there is no such route; write "POST /v1/shops/{shopID}/items/{itemID}/orders"`,
			"{itemId} is no param of the route; write {shopID} or {itemID}",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		for _, r := range m.guard.Routes(m.router) {
			if len(r.Rules) > 0 {
				t.Errorf("%+v is guarded after an error", r)
			}
		}
		m.listen() // the right annotations still apply
	})
}

// A rule written inline, on the router that the library is given, is checked against every route it will act on.
func TestValidateChecksRulesInUse(t *testing.T) {
	for name, mount := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMounted(t)
			m.router.Use(authenticate, m.guard.Lock("stock:{itemId}"))
			mount(m.router, &m.shop)
			err := m.guard.Validate(m.router)
			if err == nil || !strings.Contains(err.Error(), "POST /v1/shops/{shopID}/items/{itemID}/orders") || !strings.Contains(err.Error(), "{itemId}") {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

// What a library runs inside its own handler, huma's middlewares or those of the generated server, comes after the
// rules: a principal that is set there is not known yet, and the request is refused, not let through.
func TestAuthenticationOfTheLibraryIsTooLate(t *testing.T) {
	for name, mount := range map[string]func(m *mounted){
		"huma": func(m *mounted) {
			api := humachi.New(m.router, huma.DefaultConfig("shop", "1"))
			api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
				next(huma.WithValue(ctx, userKey{}, ctx.Header("Authorization")))
			})
			registerOrder(huma.NewGroup(api, "/v1"), &m.shop)
		},
		"oapi-codegen": func(m *mounted) {
			shopapi.HandlerWithOptions(generated{&m.shop}, shopapi.ChiServerOptions{
				BaseRouter: m.router, BaseURL: "/v1", Middlewares: []shopapi.MiddlewareFunc{authenticate},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMounted(t)
			mount(m)
			m.listen()
			if got := m.post(orders, "key-1"); got.StatusCode != http.StatusInternalServerError || m.shop.orders.Load() != 0 {
				t.Errorf("%d %s, %d orders", got.StatusCode, got.body, m.shop.orders.Load())
			}
		})
	}
}
