package lockkey

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixed is a registered value that is always the same.
func fixed(v string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return v, nil }
}

func TestParseAccepts(t *testing.T) {
	user := WithValue("userID", fixed("42"))
	tests := map[string]struct {
		template string
		opts     []Option
		text     string // "" means as written
		space    string
	}{
		"a param":                          {template: "stock:{itemID}", space: "stock:"},
		"a param alone":                    {template: "{itemID}"},
		"a literal alone":                  {template: "nightly-report", space: "nightly-report"},
		"text after the placeholder":       {template: "stock:{itemID}:web", space: "stock:"},
		"int":                              {template: "user_balance:{userID|int}", space: "user_balance:"},
		"uuid":                             {template: "order:{id|uuid}", space: "order:"},
		"sf":                               {template: "{header.Idempotency-Key|sf}"},
		"a registered value":               {template: "user_balance:{userID}", opts: []Option{user}, space: "user_balance:"},
		"the wildcard":                     {template: "file:{*}", space: "file:"},
		"a header in any case":             {template: "quota:{header.x-merchant}", text: "quota:{header.X-Merchant}", space: "quota:"},
		"a header with a suffix":           {template: "{header.x-day|int}", text: "{header.X-Day|int}"},
		"a query parameter":                {template: "quota:{query.day}", space: "quota:"},
		"a query parameter in brackets":    {template: "quota:{query.filter[day]}", space: "quota:"},
		"a query parameter with a dot":     {template: "quota:{query.a.b}", space: "quota:"},
		"a body member":                    {template: "account:{body.from}", space: "account:"},
		"a nested body member":             {template: "account:{body.transfer.from.id|int}", space: "account:"},
		"an index":                         {template: "sku:{body.items.0.sku}", space: "sku:"},
		"every element":                    {template: "sku:{body.items.#.sku}", space: "sku:"},
		"every element of the root":        {template: "sku:{body.#}", space: "sku:"},
		"params named like a source":       {template: "{header}:{query}:{body}"},
		"letters beyond ASCII":             {template: "库存:{商品}", space: "库存:"},
		"a dash and an underscore":         {template: "x:{item-id}:{item_id}", space: "x:"},
		"a separator among safe bytes":     {template: "{a}-/-{b}"},
		"a separator beyond ASCII":         {template: "{a}·{b}"},
		"eight placeholders":               {template: "{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}"},
		"256 bytes":                        {template: strings.Repeat("a", 253) + "{b}", space: strings.Repeat("a", 253)},
		"32 names in a body path":          {template: "{body" + strings.Repeat(".a", 32) + "}"},
		"single: one placeholder":          {template: "{header.Idempotency-Key|sf}", opts: []Option{Single()}},
		"single: a body member":            {template: "{body.requestId}", opts: []Option{Single()}},
		"single: an index":                 {template: "{body.items.0}", opts: []Option{Single()}},
		"scope: a registered value":        {template: "{userID}", opts: []Option{Scope(), user}},
		"scope: two":                       {template: "{tenant}:{userID}", opts: []Option{Scope(), user}},
		"scope: all":                       {template: "all", opts: []Option{Scope()}, space: "all"},
		"scope overrides single for all":   {template: "all", opts: []Option{Single(), Scope()}, space: "all"},
		"a value that nobody names":        {template: "x:{id}", opts: []Option{user}, space: "x:"},
		"several values":                   {template: "{a}:{b}", opts: []Option{WithValue("a", fixed("1")), WithValue("b", fixed("2"))}},
		"percent, equals, space in a text": {template: "100% = {a}", space: "100% = "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(tt.template, tt.opts...)
			if err != nil {
				t.Fatalf("Parse(%q) = %v, want no error", tt.template, err)
			}
			want := tt.text
			if want == "" {
				want = tt.template
			}
			if got.String() != want {
				t.Errorf("String() = %q, want %q", got, want)
			}
			if got.Namespace() != tt.space {
				t.Errorf("Namespace() = %q, want %q", got.Namespace(), tt.space)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct {
		template string
		opts     []Option
		want     string
	}{
		"nothing": {
			template: "",
			want:     `lockkey: template "" at byte 0: it is empty; write a name and what tells one resource from another, like "stock:{itemID}"`,
		},
		"257 bytes": {
			template: strings.Repeat("a", 257),
			want:     `lockkey: template "` + strings.Repeat("a", 257) + `" at byte 256: it has 257 bytes; write at most 256`,
		},
		"a ninth placeholder": {
			template: "{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}:{i}",
			want:     `lockkey: template "{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}:{i}" at byte 32: too many placeholders; write at most 8`,
		},
		"no UTF-8": {
			template: "a\xff:{b}",
			want:     `lockkey: template "a\xff:{b}" at byte 1: it is not valid UTF-8; write UTF-8`,
		},
		"a control character": {
			template: "a\n{b}",
			want:     `lockkey: template "a\n{b}" at byte 1: it has a control character; leave it out`,
		},
		"an open brace": {
			template: "stock:{itemID",
			want:     `lockkey: template "stock:{itemID" at byte 6: the placeholder is not closed; write '}' after it`,
		},
		"an open brace at the end": {
			template: "stock:{",
			want:     `lockkey: template "stock:{" at byte 6: the placeholder is not closed; write '}' after it`,
		},
		"a closing brace in the text": {
			template: "stock}:{itemID}",
			want:     `lockkey: template "stock}:{itemID}" at byte 5: '}' without '{'; leave it out: a key has no braces`,
		},
		"a brace in a placeholder": {
			template: "stock:{{itemID}}",
			want:     `lockkey: template "stock:{{itemID}}" at byte 7: '{' inside a placeholder; close the placeholder before it with '}'`,
		},
		"an empty placeholder": {
			template: "stock:{}",
			want:     `lockkey: template "stock:{}" at byte 7: "" is not a name; write the name of a route param or of a registered value: letters, digits, '_' and '-'`,
		},
		"a space in a name": {
			template: "stock:{ itemID }",
			want:     `lockkey: template "stock:{ itemID }" at byte 7: " itemID " is not a name; write the name of a route param or of a registered value: letters, digits, '_' and '-'`,
		},
		"a regular expression": {
			template: "stock:{itemID:[0-9]+}",
			want:     `lockkey: template "stock:{itemID:[0-9]+}" at byte 7: "itemID:[0-9]+" is not a name; write the name of a route param or of a registered value: letters, digits, '_' and '-'`,
		},
		"an unknown suffix": {
			template: "stock:{itemID|integer}",
			want:     `lockkey: template "stock:{itemID|integer}" at byte 14: unknown suffix "integer"; write |int, |uuid or |sf`,
		},
		"an empty suffix": {
			template: "stock:{itemID|}",
			want:     `lockkey: template "stock:{itemID|}" at byte 14: unknown suffix ""; write |int, |uuid or |sf`,
		},
		"two suffixes": {
			template: "stock:{itemID|int|sf}",
			want:     `lockkey: template "stock:{itemID|int|sf}" at byte 14: unknown suffix "int|sf"; write |int, |uuid or |sf`,
		},
		"an unknown source": {
			template: "stock:{headers.X-Merchant}",
			want:     `lockkey: template "stock:{headers.X-Merchant}" at byte 7: unknown source "headers"; write {header.…}, {query.…}, {body.…} or a {name} without a dot`,
		},
		"a source in another case": {
			template: "stock:{Header.X-Merchant}",
			want:     `lockkey: template "stock:{Header.X-Merchant}" at byte 7: unknown source "Header"; write {header.…}, {query.…}, {body.…} or a {name} without a dot`,
		},
		"a header without a name": {
			template: "{header.}",
			want:     `lockkey: template "{header.}" at byte 8: "" is not a header name; write one like {header.X-Merchant}`,
		},
		"no header name": {
			template: "{header.X Merchant}",
			want:     `lockkey: template "{header.X Merchant}" at byte 8: "X Merchant" is not a header name; write one like {header.X-Merchant}`,
		},
		"Host": {
			template: "tenant:{header.Host}",
			want:     `lockkey: template "tenant:{header.Host}" at byte 15: Host is refused: the client chooses it, and net/http keeps it out of the header; register what you need with WithValue and write its {name}`,
		},
		"Authorization": {
			template: "user:{header.authorization}",
			want:     `lockkey: template "user:{header.authorization}" at byte 13: Authorization is refused: a credential is not a name: it rotates, and several stand for one principal; register what you need with WithValue and write its {name}`,
		},
		"Cookie": {
			template: "user:{header.COOKIE|sf}",
			want:     `lockkey: template "user:{header.COOKIE|sf}" at byte 13: Cookie is refused: a credential is not a name: it rotates, and several stand for one principal; register what you need with WithValue and write its {name}`,
		},
		"Proxy-Authorization": {
			template: "{header.proxy-authorization}",
			want:     `lockkey: template "{header.proxy-authorization}" at byte 8: Proxy-Authorization is refused: a credential is not a name: it rotates, and several stand for one principal; register what you need with WithValue and write its {name}`,
		},
		"Transfer-Encoding": {
			template: "{header.Transfer-Encoding}",
			want:     `lockkey: template "{header.Transfer-Encoding}" at byte 8: Transfer-Encoding is refused: net/http keeps it out of the header; register what you need with WithValue and write its {name}`,
		},
		"a query parameter without a name": {
			template: "{query.}",
			want:     `lockkey: template "{query.}" at byte 7: the query parameter has no name; write {query.name}`,
		},
		"a body path without a name": {
			template: "{body.}",
			want:     `lockkey: template "{body.}" at byte 6: a body path has an empty name; write member names joined by single dots, like {body.order.id}`,
		},
		"two dots in a body path": {
			template: "{body.a..b}",
			want:     `lockkey: template "{body.a..b}" at byte 8: a body path has an empty name; write member names joined by single dots, like {body.order.id}`,
		},
		"a dot at the end of a body path": {
			template: "{body.a.}",
			want:     `lockkey: template "{body.a.}" at byte 8: a body path has an empty name; write member names joined by single dots, like {body.order.id}`,
		},
		"33 names in a body path": {
			template: "{body" + strings.Repeat(".a", 33) + "}",
			want:     `lockkey: template "{body` + strings.Repeat(".a", 33) + `}" at byte 6: a body path of 33 names; write at most 32`,
		},
		"every element twice in a path": {
			template: "{body.orders.#.items.#.sku}",
			want:     `lockkey: template "{body.orders.#.items.#.sku}" at byte 6: '#' a second time; write '#' once; use a second template for the other list`,
		},
		"every element in two placeholders": {
			template: "{body.a.#}:{body.b.#}",
			want:     `lockkey: template "{body.a.#}:{body.b.#}" at byte 17: '#' a second time; write '#' once; use a second template for the other list`,
		},
		"adjacent placeholders": {
			template: "{a}{b}",
			want:     `lockkey: template "{a}{b}" at byte 3: nothing separates it from {a}: different values would give one key; write {a}:{b}`,
		},
		"a separator that a value may have": {
			template: "x:{a|int}-{b}",
			want:     `lockkey: template "x:{a|int}-{b}" at byte 10: nothing separates it from {a|int}: different values would give one key; write {a|int}:{b}`,
		},
		"a letter as separator": {
			template: "{a}:{b}and{c}",
			want:     `lockkey: template "{a}:{b}and{c}" at byte 10: nothing separates it from {b}: different values would give one key; write {b}:{c}`,
		},
		"a percent sign as separator": {
			template: "{a}%{b}",
			want:     `lockkey: template "{a}%{b}" at byte 4: nothing separates it from {a}: different values would give one key; write {a}:{b}`,
		},
		"an equals sign as separator": {
			template: "{a}={b}",
			want:     `lockkey: template "{a}={b}" at byte 4: nothing separates it from {a}: different values would give one key; write {a}:{b}`,
		},
		"single: every element": {
			template: "{body.items.#}", opts: []Option{Single()},
			want: `lockkey: template "{body.items.#}" at byte 6: '#' gives several keys, and one is needed; write an array index or another member`,
		},
		"single: no placeholder": {
			template: "all", opts: []Option{Single()},
			want: `lockkey: template "all" at byte 0: without a placeholder every request has the same key; write what tells one request from another, like {header.Idempotency-Key|sf}`,
		},
		"scope: every element": {
			template: "{body.items.#}", opts: []Option{Scope()},
			want: `lockkey: template "{body.items.#}" at byte 6: '#' gives several keys, and one is needed; write an array index or another member`,
		},
		"scope: no placeholder": {
			template: "userID", opts: []Option{Scope()},
			want: `lockkey: template "userID" at byte 0: a scope without a placeholder is one scope for everybody; write who is asking, like {userID}, or the word "all" to share on purpose`,
		},
		"scope: nearly all": {
			template: "all:", opts: []Option{Scope()},
			want: `lockkey: template "all:" at byte 0: a scope without a placeholder is one scope for everybody; write who is asking, like {userID}, or the word "all" to share on purpose`,
		},
		"a value with a dot": {
			template: "x:{id}", opts: []Option{WithValue("user.id", fixed("1"))},
			want: `lockkey: WithValue("user.id") has no name; write letters, digits, '_' and '-'`,
		},
		"a value without a function": {
			template: "x:{id}", opts: []Option{WithValue("id", nil)},
			want: `lockkey: WithValue("id") has no function; write a func(*http.Request) (string, error)`,
		},
		"a value registered twice": {
			template: "x:{id}", opts: []Option{WithValue("id", fixed("1")), WithValue("id", fixed("2"))},
			want: `lockkey: WithValue("id") a second time; register a name once`,
		},
		"a nil option": {
			template: "x:{id}", opts: []Option{nil},
			want: `lockkey: an option is nil; leave it out`,
		},
		"two options at fault": {
			template: "x:{id}", opts: []Option{WithValue("*", fixed("1")), WithValue("id", nil)},
			want: `lockkey: WithValue("*") has no name; write letters, digits, '_' and '-'` + "\n" +
				`lockkey: WithValue("id") has no function; write a func(*http.Request) (string, error)`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(tt.template, tt.opts...)
			if err == nil {
				t.Fatalf("Parse(%q) = %q, want an error", tt.template, got)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("Parse(%q) says (-want +got):\n%s", tt.template, diff)
			}
			var fault *ParseError
			if !errors.As(err, &fault) || fault.Template != tt.template {
				t.Errorf("Parse(%q) = %#v, want a *ParseError with the template", tt.template, err)
			}
		})
	}
}

// A template that parses prints itself, and what it prints parses to the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"stock:{itemID}", "{a}:{b|int}:c", "quota:{header.x-merchant|sf}:{query.day}", "sku:{body.items.#.sku}", "{*}", "{a}{b}",
		"{body.0.x|uuid}", "a%{b}=c", "{", "}", "{}", "{|}", "{.}", "{header.}", "{header.host}", "{query.a|}", "{body.#.#}", "a\xff{b}", "{商品}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, template string) {
		parsed, err := Parse(template)
		if err != nil {
			var fault *ParseError
			if !errors.As(err, &fault) {
				t.Fatalf("Parse(%q) = %#v, want a *ParseError", template, err)
			}
			if fault.Offset < 0 || fault.Offset > len(template) || fault.Reason == "" || fault.Instead == "" {
				t.Fatalf("Parse(%q) = %#v, want an offset inside and a remedy", template, fault)
			}
			return
		}
		if !strings.EqualFold(parsed.String(), template) {
			t.Fatalf("Parse(%q).String() = %q, want the same but for header names", template, parsed)
		}
		again, err := Parse(parsed.String())
		if err != nil {
			t.Fatalf("Parse(%q), printed by %q: %v", parsed, template, err)
		}
		if diff := cmp.Diff(parsed, again, cmp.AllowUnexported(Template{}, part{}, step{})); diff != "" {
			t.Fatalf("%q parsed, printed and parsed again (-first +second):\n%s", template, diff)
		}
		if len(parsed.parts) == 0 || strings.ContainsAny(parsed.Namespace(), "{}") {
			t.Fatalf("Parse(%q) has parts %v, namespace %q", template, parsed.parts, parsed.Namespace())
		}
	})
}
