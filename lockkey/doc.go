// Package lockkey makes keys out of requests: names of locks, scopes and keys of request dedup.
//
// A key is written once as a template and rendered for each request:
//
//	stock:{itemID}      user_balance:{userID|int}      sku:{body.items.#.sku}      quota:{header.X-Merchant}:{query.day}
//
// The package promises that one resource has one key, however the request spells it, and that two resources never share
// one. It reads the request only; it needs neither Redis nor SQL.
//
//	t, err := lockkey.Parse("stock:{itemID|int}")
//	keys, err := t.Keys(r) // ["stock:7"] for /items/7, /items/07 and /items/%37
//
// # Placeholders
//
//	{name}          the chi URL param, without chi r.PathValue; or a value registered with [WithValue]
//	{*}             the wildcard of a chi pattern that ends in "/*"
//	{header.Name}   the one line of that header
//	{query.name}    the one value of that query parameter
//	{body.path}     a value of the JSON body: member names joined by dots, an array index, or "#" for every element
//
// A suffix brings spellings of the same thing to one form:
//
//	{x|int}         what strconv.ParseInt(x, 10, 64) accepts: 7, 07 and +7 are one key
//	{x|uuid}        a UUID, also upper case, without dashes, in braces or after "urn:uuid:"
//	{x|sf}          "abc", a string of RFC 8941, and its bare spelling abc; at most 255 bytes of printable ASCII
//
// A part of the request that is absent, empty or given twice is an error, never a key that many requests share. The
// error is a [*KeyError], whose text has no value of the request in it.
//
// # Keys
//
// The bytes A-Z a-z 0-9 - . _ ~ of a value stay as they are and every other byte is written %XX, so no value can forge
// a separator or a hash tag of Redis Cluster. A value of more than 128 bytes is written as "=" and the base64url of its
// SHA-256; a client cannot type such a hash, since "=" is escaped. A rendered key never has a brace. Between two
// placeholders stands a byte that no value can render to, normally a colon.
//
// Several keys of one request are sorted, without duplicates, and at most 32.
//
// # Whose header, whose lock
//
// A header that the client can set freely must not choose whose balance is locked: with balance:{header.X-User} a
// stranger locks out whom they like. Take what authentication has established, with [WithValue]. Host, Authorization,
// Cookie and Proxy-Authorization are refused in a template for that reason.
//
// # Read what the key was made of
//
// A handler must act on the very value that the key was made of. [http.Request.FormValue] takes that of a form body before
// that of the query: beside {query.name} read r.URL.Query(). A handler that decodes by Content-Type, with go-chi/render
// for example, can be sent one body that is JSON here and a form there: beside {body.path} let nothing but JSON through
// to it, with chi's AllowContentType("application/json").
//
// Keys are compared byte by byte. Where the collation of a column takes "abc" and "ABC" for one row, as MySQL's default
// does, take the key from a number or a UUID, or register a value that has one spelling.
//
// # Bodies
//
// A template with {body.path} reads the body, at most 64 KiB of it, and puts it back byte for byte, so that the handler
// reads it as if nobody had. See [BufferBody] for a middleware that needs the body too.
//
// Member names match exactly. An object on the path with two members that are equal under case folding is refused:
// encoding/json would take the last of "sku", "SKU" and "ſku", and the lock must not take another one than the handler.
// Strings, integers and booleans are values; the integer 7 and the string "7" are one key, 7.0 and 7e0 are refused.
package lockkey
