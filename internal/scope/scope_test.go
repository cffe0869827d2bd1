package scope

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestParseKeepsOneSpellingOfEachScope(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"fs.read":                                  "fs.read",
		"fs.read:/":                                "fs.read:/",
		"fs.read:/a//b/./c/../d/":                  "fs.read:/a/b/d",
		"fs.read:/../../etc":                       "fs.read:/etc",
		"fs.read:/a/**/**/b":                       "fs.read:/a/**/b",
		`fs.read:/a/\*\[1\]`:                       `fs.read:/a/\*\[1\]`,
		"fs.read:c:/Users/**":                      "fs.read:C:/Users/**",
		"fs.read:/C:/x":                            "fs.read:/C:/x",
		"net.fetch:HTTPS://Example.COM:443/a/":     "net.fetch:https://example.com/a",
		"net.fetch:https://example.com./":          "net.fetch:https://example.com",
		"net.fetch:https://x.io/a/%2e%2E/b/./%7Ec": "net.fetch:https://x.io/b/~c",
		"net.fetch:http://[0:0::1]:8080":           "net.fetch:http://[::1]:8080",
		"net.fetch:https://*.Example.com/v1":       "net.fetch:https://*.example.com/v1",
		"net.fetch:ftp://x.io:21":                  "net.fetch:ftp://x.io:21",
		"http:API.example.com":                     "http:api.example.com",
		"http:*.example.com:8443":                  "http:*.example.com:8443",
		"http:::1":                                 "http:[::1]",
		"net.dns:*":                                "net.dns:*",
		"email.send: b@x.io , a@x.io,b@x.io":       "email.send:a@x.io,b@x.io",
		"spend:05.50":                              "spend:5.5",
		"spend:0":                                  "spend:0",
		"memory:notes:write":                       "memory:notes:write",
		"memory.read:proj-***":                     "memory.read:proj-*",
	} {
		got, err := Parse(in)
		if err != nil {
			t.Errorf("Parse(%q): %v", in, err)
			continue
		}
		if got.String() != want {
			t.Errorf("Parse(%q) = %q, want %q", in, got, want)
		}
		if again, err := Parse(got.String()); err != nil || again.String() != want {
			t.Errorf("Parse(%q) again = %q, %v", want, again, err)
		}
	}
}

func TestMalformedScopesGrantNothing(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", ":", ":x", "fs", "fs.read:", "FS.READ", " fs.read", "fs.read ", "fs.read:notes", "fs.read:~/x", "fs.read:/a/b**",
		"fs.read:/a/**b", "fs.read:/a/*/../b", "fs.read:/a/[ab]", "fs.read:/a/{x,y}", "fs.read:/a?", `fs.read:/a\b`, `fs.read:/a\`,
		"fs.read:/a\x00", "fs.read:/a\x01", "fs.read:/\xff", "fs.read:/a\nb",
		"net.fetch:example.com", "net.fetch:/docs", "net.fetch:https://", "net.fetch:https:///x", "net.fetch:https:x.io",
		"net.fetch:https://user@x.io", "net.fetch:https://u:p@x.io/", "net.fetch:https://x.io/?q", "net.fetch:https://x.io?",
		"net.fetch:https://x.io/#f", "net.fetch:https://x.io#", "net.fetch:https://x.io:0", "net.fetch:https://x.io:70000",
		"net.fetch:https://x.io:", "net.fetch:gopher://x.io", "net.fetch:https://x..io", "net.fetch:https://räka.se",
		"net.fetch:http://2130706433", "net.fetch:http://0x7f.1", "net.fetch:http://0177.0.0.1", "net.fetch:http://127.1",
		"net.fetch:http://[::1%25eth0]", "net.fetch:http://x.io/%zz", "net.fetch:https://*.1.2.3.4",
		"http:a*.example.com", "http:*.", "http:.", "http:a b", "http:x.io:", "http:x.io:http", "http:[x]", "http:a:b:c",
		"email.send:a,,b", "email.send:,", "spend:-1", "spend:*", "spend:1e3", "spend:1.", "spend:.5", "spend:0.1234567",
		"spend:1234567890123", "time.read:x", "memory.read: x", "tool.allowlist",
		"memory.read:" + strings.Repeat("x", maxLen),
	} {
		s, err := Parse(in)
		if err == nil {
			t.Errorf("Parse(%.60q) = %q, want an error", in, s)
			continue
		}
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("Parse(%.60q): class %s, want invalid", in, fault.ClassOf(err))
		}
		if !s.IsZero() || s.Covers(s) || s.Overlaps(s) || s.Covers(Must("fs.read")) || Must("fs.read").Covers(s) {
			t.Errorf("the scope of malformed %.60q grants something", in)
		}
	}
}

// A rule that no call can meet refuses nothing, though it reads as if it did.
func TestARuleForAProgramNamesItsPath(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"shell.exec", "shell.exec:/usr/bin/git", "shell.exec:/bin/[,/bin/ls", "email.send:ana", "fs.read:/a"} {
		if s, err := ParseRule(text); err != nil || s.String() != Must(text).String() {
			t.Errorf("%s: %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"shell.exec:git", "shell.exec:*", "shell.exec:/usr/bin/*", "shell.exec:/bin/ls,rm", "shell.exec:/bin/../bin/ls", "fs.raed"} {
		if s, err := ParseRule(text); err == nil || !s.IsZero() || fault.HintOf(err) == "" {
			t.Errorf("%s: %s, %v", text, s, err)
		}
	}
}

func TestUnknownBaseNamesTheNearest(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"fs.raed:/x": "fs.read", "fsread": "fs.read", "net.fech": "net.fetch", "shell.exce": "shell.exec", "Memory.Read": "memory.read",
		"hubb": "hub", "remind.wirte": "remind.write",
	} {
		_, err := Parse(in)
		if hint := fault.HintOf(err); !strings.Contains(hint, "did you mean "+want) {
			t.Errorf("hint for %q = %q, want %s first", in, hint, want)
		}
	}
	_, err := Parse("zzzzzz")
	if hint := fault.HintOf(err); strings.Contains(hint, "did you mean") || hint == "" {
		t.Errorf("hint for a base near nothing = %q", hint)
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		held, need string
		want       bool
	}{
		{"fs.read", "fs.read:/etc/x", true},
		{"fs.read", "fs.read", true},
		{"fs.read:/**", "fs.read", false},
		{"fs.read", "fs.write:/x", false},
		{"memory", "memory.read", false},
		{"fs.read:/ws/**", "fs.read:/ws", true},
		{"fs.read:/ws/**", "fs.read:/ws/a/b", true},
		{"fs.read:/ws/**", "fs.read:/wsx/a", false},
		{"fs.read:/ws/**", "fs.read:/ws/../etc/passwd", false},
		{"fs.read:/ws/**", "fs.read:/ws/*/x", true},
		{"fs.read:/ws/**", "fs.read:/ws/**", true},
		{"fs.read:/ws/*", "fs.read:/ws/a/b", false},
		{"fs.read:/ws/*", "fs.read:/ws/.hidden", true},
		{"fs.read:/ws/*", "fs.read:/ws/**", false},
		{"fs.read:/ws/*.txt", "fs.read:/ws/a.txt", true},
		{"fs.read:/ws/*.txt", "fs.read:/ws/a/b.txt", false},
		{"fs.read:/**/*.txt", "fs.read:/a/b/c.txt", true},
		{"fs.read:/**/*.txt", "fs.read:/c.txt", true},
		{"fs.read:/a/**/b/**/c", "fs.read:/a/b/x/b/y/c", true},
		{"fs.read:/a/**/b/**/c", "fs.read:/a/x/y/c", false},
		{`fs.read:/a/\*`, "fs.read:/a/b", false},
		{"fs.read:/a", "fs.read:/a/b", false},
		{"fs.read:/A", "fs.read:/a", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/a", true},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/", true},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docsx", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/../admin", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/%2e%2e/admin", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/..%2fadmin", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs/..;/admin", false},
		{"net.fetch:https://x.io/docs", "net.fetch:https://x.io/docs//../../admin", false},
		{`net.fetch:https://x.io/docs`, `net.fetch:https://x.io/docs/..\admin`, false},
		{"net.fetch:https://x.io", "net.fetch:https://x.io/docs/..%2fadmin", true},
		{"net.fetch:https://x.io", "net.fetch:http://x.io", false},
		{"net.fetch:https://x.io", "net.fetch:https://x.io:8443", false},
		{"net.fetch:https://x.io", "net.fetch:https://x.io:443/a", true},
		{"net.fetch:https://x.io", "net.fetch:https://x.io.evil.com", false},
		{"net.fetch:https://*.x.io", "net.fetch:https://x.io", false},
		{"net.fetch:https://*.x.io", "net.fetch:https://a.b.x.io/p", true},
		{"net.fetch:https://*.x.io", "net.fetch:https://evilx.io", false},
		{"http:*.example.com", "http:example.com", false},
		{"http:*.example.com", "http:a.example.com:8080", true},
		{"http:*.example.com", "http:*.a.example.com", true},
		{"http:*.a.example.com", "http:*.example.com", false},
		{"http:*", "http:10.0.0.1", true},
		{"http:x.io:80", "http:x.io", false},
		{"email.send:a,b", "email.send:b", true},
		{"email.send:a,b", "email.send:b,a", true},
		{"email.send:a,b", "email.send:b,c", false},
		{"spend:5", "spend:5", true},
		{"spend:5", "spend:4.999999", true},
		{"spend:5", "spend:5.000001", false},
		{"memory:x", "memory:x:write", false},
		{"memory:*", "memory:x:write", true},
		{"tool:app.*", "tool:app.push", true},
		{"tool:app.*", "tool:apps", false},
		{"tool:*a*b", "tool:xaxxab", true},
		{"tool:*a*b", "tool:*b", false},
	} {
		if got := Must(c.held).Covers(Must(c.need)); got != c.want {
			t.Errorf("%s covers %s = %v, want %v", c.held, c.need, got, c.want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"fs.write", "fs.write:/x", true},
		{"fs.write:/ws/**", "fs.write:/ws/secret/**", true},
		{"fs.write:/ws/a/*", "fs.write:/ws/b/*", false},
		{"fs.write:/ws/*", "fs.write:/ws/*/x", false},
		{"fs.write:/ws/a*", "fs.write:/ws/*b", true},
		{"fs.write:/ws/a*", "fs.write:/ws/b*", false},
		{"email.send:a,b", "email.send:b,c", true},
		{"email.send:a", "email.send:b", false},
		{"http:*.x.io", "http:a.x.io:80", true},
		{"http:x.io:80", "http:x.io:81", false},
		{"net.fetch:https://x.io/a", "net.fetch:https://x.io/a/b", true},
		{"net.fetch:https://x.io/a", "net.fetch:https://x.io/b", false},
		{"net.fetch:https://x.io/admin", "net.fetch:https://x.io//admin", true},
		{"net.fetch:https://x.io/admin", "net.fetch:https://x.io/docs/..%2fadmin", true},
		{"net.fetch:https://x.io/a", "net.fetch:http://x.io/a", false},
		{"tool:a*", "tool:*z", true},
		{"tool:a*", "tool:b", false},
	} {
		a, b := Must(c.a), Must(c.b)
		if a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%s overlaps %s = %v and %v, want %v", a, b, a.Overlaps(b), b.Overlaps(a), c.want)
		}
	}
}

func TestOfTakesWildcardsAsCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, want string
		literal    []string
	}{
		{"fs.read", `fs.read:/ws/\*\*/\[x\]`, []string{"/ws/**/[x]"}},
		{"fs.read", "fs.read", nil},
		{"net.fetch", "net.fetch:https://x.io/a", []string{"https://x.io/a?q=1#f"}},
		{"email.send", "email.send:a,b", []string{"b", "a"}},
		{"tool", `tool:a\*`, []string{"a*"}},
	} {
		s, err := Of(c.base, c.literal...)
		if err != nil || s.String() != c.want {
			t.Errorf("Of(%s, %q) = %q, %v, want %q", c.base, c.literal, s, err, c.want)
		}
	}
	for _, bad := range [][]string{{"email.send", "a,b"}, {"http", "*.x.io"}, {"http", "*"}, {"net.fetch", "https://*.x.io"},
		{"fs.read", "/a", "/b"}, {"fs.read", ""}, {"fs.read", "a"}, {"time.read", "x"}, {"nope", "x"}} {
		if s, err := Of(bad[0], bad[1:]...); err == nil || !s.IsZero() {
			t.Errorf("Of(%q) = %q, want an error", bad, s)
		}
	}
}

func TestEveryBaseHasAName(t *testing.T) {
	t.Parallel()
	for _, b := range Bases() {
		got, err := BaseOf(b.String())
		if err != nil || got != b {
			t.Errorf("base %q is in the table twice or not at all", b)
		}
		if b.ReadOnly() && b.Irreversible() {
			t.Errorf("base %s only reads and cannot be taken back", b)
		}
		if b.Area() == "" || strings.Contains(b.Area(), ".") {
			t.Errorf("base %s has area %q", b, b.Area())
		}
	}
	if len(Bases()) != NumBases()-1 || len(table) > 255 {
		t.Errorf("%d bases, NumBases %d", len(Bases()), NumBases())
	}
}

func TestCoversDoesNotAllocate(t *testing.T) {
	held := []Scope{Must("fs.read:/ws/**/x*y/**"), Must("net.fetch:https://*.x.io/a"), Must("email.send:a,b"), Must("tool:a*b*c")}
	need := []Scope{Must("fs.read:/ws/a/b/xzy/c"), Must("net.fetch:https://q.x.io/a/b"), Must("email.send:b"), Must("tool:axxbxxc")}
	if n := testing.AllocsPerRun(100, func() {
		for i := range held {
			if !held[i].Covers(need[i]) || !held[i].Overlaps(need[i]) {
				t.Fatalf("%s does not cover %s", held[i], need[i])
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCoversPath(b *testing.B) {
	held, need := Must("fs.read:/home/ana/work/**"), Must("fs.read:/home/ana/work/a/b/c/d.txt")
	for b.Loop() {
		if !held.Covers(need) {
			b.Fatal("not covered")
		}
	}
}

func TestWhatIsShownOfAScopeIsWholeCharacters(t *testing.T) {
	t.Parallel()
	for lead := range 4 {
		_, err := Parse(strings.Repeat("a", lead) + strings.Repeat("é€", 40) + ":x")
		if err == nil || strings.Contains(err.Error(), `\x`) || !utf8.ValidString(err.Error()) {
			t.Errorf("%v", err)
		}
	}
}
