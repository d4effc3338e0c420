package lockkey

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

func TestKinds(t *testing.T) {
	const id = "0190a5b2-3c4d-7e8f-9012-abcdef123456"
	tests := map[string]struct {
		kind  kind
		value string
		want  string
		fault string
	}{
		"int":                       {kind: asInt, value: "7", want: "7"},
		"int: leading zeros":        {kind: asInt, value: "007", want: "7"},
		"int: plus":                 {kind: asInt, value: "+7", want: "7"},
		"int: minus":                {kind: asInt, value: "-07", want: "-7"},
		"int: minus zero":           {kind: asInt, value: "-0", want: "0"},
		"int: greatest":             {kind: asInt, value: "9223372036854775807", want: "9223372036854775807"},
		"int: too great":            {kind: asInt, value: "9223372036854775808", fault: "is not an integer of 64 bits"},
		"int: 2^53 + 1 stays exact": {kind: asInt, value: "9007199254740993", want: "9007199254740993"},
		"int: point":                {kind: asInt, value: "7.0", fault: "is not an integer of 64 bits"},
		"int: exponent":             {kind: asInt, value: "7e0", fault: "is not an integer of 64 bits"},
		"int: hexadecimal":          {kind: asInt, value: "0x7", fault: "is not an integer of 64 bits"},
		"int: underscore":           {kind: asInt, value: "1_000", fault: "is not an integer of 64 bits"},
		"int: space":                {kind: asInt, value: " 7", fault: "is not an integer of 64 bits"},
		"int: letters":              {kind: asInt, value: "seven", fault: "is not an integer of 64 bits"},
		"int: other digits":         {kind: asInt, value: "٧", fault: "is not an integer of 64 bits"},

		"uuid":                       {kind: asUUID, value: id, want: id},
		"uuid: upper case":           {kind: asUUID, value: strings.ToUpper(id), want: id},
		"uuid: without dashes":       {kind: asUUID, value: strings.ReplaceAll(id, "-", ""), want: id},
		"uuid: in braces":            {kind: asUUID, value: "{" + id + "}", want: id},
		"uuid: URN":                  {kind: asUUID, value: "URN:uuid:" + strings.ToUpper(id), want: id},
		"uuid: too short":            {kind: asUUID, value: id[1:], fault: "is not a UUID"},
		"uuid: too long":             {kind: asUUID, value: id + "0", fault: "is not a UUID"},
		"uuid: no digit":             {kind: asUUID, value: "g" + id[1:], fault: "is not a UUID"},
		"uuid: dash elsewhere":       {kind: asUUID, value: "0190a5b-23c4d-7e8f-9012-abcdef123456", fault: "is not a UUID"},
		"uuid: dash for a digit":     {kind: asUUID, value: "-190a5b2-3c4d-7e8f-9012-abcdef123456", fault: "is not a UUID"},
		"uuid: digit for a dash":     {kind: asUUID, value: "0190a5b203c4d-7e8f-9012-abcdef123456", fault: "is not a UUID"},
		"uuid: dash among 32":        {kind: asUUID, value: "0190a5b2-3c4d7e8f9012abcdef12345", fault: "is not a UUID"},
		"uuid: other brackets":       {kind: asUUID, value: "(" + id + ")", fault: "is not a UUID"},
		"uuid: braces and no dashes": {kind: asUUID, value: "{" + strings.ReplaceAll(id, "-", "") + "}", fault: "is not a UUID"},
		"uuid: another URN":          {kind: asUUID, value: "urn:oidx:" + id, fault: "is not a UUID"},

		"sf: quoted":              {kind: asSF, value: `"abc"`, want: "abc"},
		"sf: bare":                {kind: asSF, value: `abc`, want: "abc"},
		"sf: quoted specials":     {kind: asSF, value: `"a,b;c d"`, want: "a%2Cb%3Bc%20d"},
		"sf: escapes":             {kind: asSF, value: `"\"a\\b\""`, want: "%22a%5Cb%22"},
		"sf: spaces around":       {kind: asSF, value: ` "abc" `, want: "abc"},
		"sf: bare specials":       {kind: asSF, value: `a:b/c=d?e`, want: "a%3Ab%2Fc%3Dd%3Fe"},
		"sf: 255 bytes":           {kind: asSF, value: `"` + strings.Repeat("a", 255) + `"`, want: string(keyesc.Append(nil, strings.Repeat("a", 255)))},
		"sf: 255 bytes, escaped":  {kind: asSF, value: `"` + strings.Repeat(`\\`, 255) + `"`, want: string(keyesc.Append(nil, strings.Repeat(`\`, 255)))},
		"sf: 256 bytes":           {kind: asSF, value: `"` + strings.Repeat("a", 256) + `"`, fault: "has more than 255 bytes"},
		"sf: 256 bytes, bare":     {kind: asSF, value: strings.Repeat("a", 256), fault: "has more than 255 bytes"},
		"sf: open quote":          {kind: asSF, value: `"abc`, fault: "has an open quote"},
		"sf: one quote":           {kind: asSF, value: `"`, fault: "has an open quote"},
		"sf: escaped end":         {kind: asSF, value: `"abc\"`, fault: "has an open quote"},
		"sf: backslash at end":    {kind: asSF, value: `"abc\`, fault: "has a backslash that escapes nothing"},
		"sf: bad escape":          {kind: asSF, value: `"a\bc"`, fault: "has a backslash that escapes nothing"},
		"sf: parameters":          {kind: asSF, value: `"abc";v=1`, fault: "has more than one value, or parameters"},
		"sf: list":                {kind: asSF, value: `"abc", "def"`, fault: "has more than one value, or parameters"},
		"sf: empty":               {kind: asSF, value: `""`, fault: "is empty"},
		"sf: spaces only":         {kind: asSF, value: `  `, fault: "is empty"},
		"sf: control character":   {kind: asSF, value: "\"a\tb\"", fault: "is not printable ASCII"},
		"sf: beyond ASCII":        {kind: asSF, value: `"é"`, fault: "is not printable ASCII"},
		"sf: bare, beyond ASCII":  {kind: asSF, value: "é", fault: "is not printable ASCII"},
		"sf: delete":              {kind: asSF, value: "a\x7f", fault: "is not printable ASCII"},
		"sf: bare with comma":     {kind: asSF, value: "a,b", fault: `has one of , ; " \ or a space outside quotes`},
		"sf: bare with semicolon": {kind: asSF, value: "a;b", fault: `has one of , ; " \ or a space outside quotes`},
		"sf: bare with quote":     {kind: asSF, value: `a"b`, fault: `has one of , ; " \ or a space outside quotes`},
		"sf: bare with backslash": {kind: asSF, value: `a\b`, fault: `has one of , ; " \ or a space outside quotes`},
		"sf: bare with space":     {kind: asSF, value: `a b`, fault: `has one of , ; " \ or a space outside quotes`},

		"none: as it is":          {kind: asIs, value: "007", want: "007"},
		"none: quotes are a part": {kind: asIs, value: `"a"`, want: "%22a%22"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, fault := tt.kind.append([]byte("x:"), tt.value)
			if string(got) != "x:"+tt.want || fault != tt.fault {
				t.Errorf("append(%q) = %q, fault %q; want %q, fault %q", tt.value, got, fault, "x:"+tt.want, tt.fault)
			}
		})
	}
}

func FuzzInt(f *testing.F) {
	for _, seed := range []string{"7", "07", "+7", "-0", "", "9223372036854775807", "-9223372036854775809", "1e3", "0x10", "1_0", " 1", "٧"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		n, err := strconv.ParseInt(v, 10, 64)
		got, fault := asInt.append(nil, v)
		if (err != nil) != (fault != "") {
			t.Fatalf("%q: fault %q, strconv says %v", v, fault, err)
		}
		if err == nil && string(got) != strconv.FormatInt(n, 10) {
			t.Fatalf("%q gives %q, want %d", v, got, n)
		}
	})
}

func FuzzUUID(f *testing.F) {
	const id = "0190A5b2-3c4d-7e8f-9012-abcdef123456"
	for _, seed := range []string{id, "{" + id + "}", "urn:uuid:" + id, strings.ReplaceAll(id, "-", ""), id[1:], "(" + id + ")", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		want, err := uuid.Parse(v)
		if len(v) == 38 && (v[0] != '{' || v[37] != '}') {
			return // the library looks at neither
		}
		got, fault := asUUID.append(nil, v)
		if (err != nil) != (fault != "") {
			t.Fatalf("%q: fault %q, the library says %v", v, fault, err)
		}
		if err == nil && string(got) != want.String() {
			t.Fatalf("%q gives %q, want %s", v, got, want)
		}
	})
}

var (
	bareSF   = regexp.MustCompile(`^[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{1,255}$`) // RFC 8941 writes ranges like this
	quotedSF = regexp.MustCompile(`^"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255}"$`)
	sfEscape = regexp.MustCompile(`\\(["\\])`)
)

// A quoted string gives what its bare spelling gives, and both take exactly what the grammar has.
func FuzzSF(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, `"a\"b"`, `"\\"`, `"\"`, `"`, `""`, "a b", `"a b"`, "a,b", `"a";p`, " a ", "\x7f", "é", `"a\b"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		core := strings.Trim(v, " ")
		value, ok := core, bareSF.MatchString(core)
		if quotedSF.MatchString(core) {
			value, ok = sfEscape.ReplaceAllString(core[1:len(core)-1], "$1"), true
		}
		got, fault := asSF.append(nil, v)
		if ok != (fault == "") {
			t.Fatalf("%q: fault %q, the grammar takes it: %t", v, fault, ok)
		}
		if !ok {
			return
		}
		if want := string(keyesc.Append(nil, value)); string(got) != want {
			t.Fatalf("%q gives %q, want %q", v, got, want)
		}
		quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(value) + `"`
		if again, fault := asSF.append(nil, quoted); fault != "" || string(again) != string(got) {
			t.Fatalf("%q gives %q, quoted %q gives %q, fault %q", v, got, quoted, again, fault)
		}
	})
}
