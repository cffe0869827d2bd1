package scope

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gen draws scopes from small alphabets, so that pairs and chains often relate.
func gen() *rapid.Generator[Scope] {
	return rapid.Custom(func(t *rapid.T) Scope {
		base := rapid.SampledFrom([]string{"fs.read", "net.fetch", "http", "email.send", "spend", "tool", "time.read"}).Draw(t, "base")
		if base == "time.read" || rapid.IntRange(0, 9).Draw(t, "bare") == 0 {
			return Must(base)
		}
		return Must(base + ":" + qualifierOf(t, base))
	})
}

func qualifierOf(t *rapid.T, base string) string {
	switch base {
	case "fs.read":
		segs := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "*", "a*", "*b", "**", `\*`}), 0, 4).Draw(t, "path")
		return "/" + strings.Join(segs, "/")
	case "net.fetch":
		return rapid.SampledFrom([]string{"http", "https"}).Draw(t, "scheme") + "://" + hostText(t) +
			rapid.SampledFrom([]string{"", "/", "/a", "/a/b", "/ab", "/a/../b", "/a%2fb", "/a//b", "/a;x"}).Draw(t, "path")
	case "http":
		return hostText(t)
	case "email.send":
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3).Draw(t, "set"), ",")
	case "spend":
		return rapid.SampledFrom([]string{"0", "0.5", "1", "10"}).Draw(t, "amount")
	}
	return rapid.StringMatching(`[ab*]{1,5}`).Draw(t, "name")
}

func hostText(t *rapid.T) string {
	return rapid.SampledFrom([]string{"*", "x.io", "*.x.io", "a.x.io", "*.a.x.io", "b.a.x.io", "10.0.0.1"}).Draw(t, "host") +
		rapid.SampledFrom([]string{"", ":443", ":8080"}).Draw(t, "port")
}

func TestCoversIsReflexiveAndTransitive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := gen().Draw(t, "a"), gen().Draw(t, "b"), gen().Draw(t, "c")
		if !a.Covers(a) {
			t.Fatalf("%s does not cover itself", a)
		}
		if a.Covers(b) && b.Covers(c) && !a.Covers(c) {
			t.Fatalf("%s covers %s covers %s, but the first does not cover the last", a, b, c)
		}
	})
}

func TestOverlapsMissesNothingThatIsShared(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := gen().Draw(t, "a"), gen().Draw(t, "b"), gen().Draw(t, "c")
		if a.Overlaps(b) != b.Overlaps(a) {
			t.Fatalf("overlap of %s and %s depends on the side", a, b)
		}
		if a.Covers(c) && b.Covers(c) && !a.Overlaps(b) {
			t.Fatalf("%s and %s share %s but do not overlap", a, b, c)
		}
	})
}

func TestIntersectNeverGrantsMoreThanEitherSide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(gen(), 0, 5)
		a, b := NewSet(list.Draw(t, "a")...), NewSet(list.Draw(t, "b")...)
		both, need := a.Intersect(b), gen().Draw(t, "need")
		if both.Covers(need) && !(a.Covers(need) && b.Covers(need)) {
			t.Fatalf("%v ∩ %v = %v grants %s", a.Strings(), b.Strings(), both.Strings(), need)
		}
		for _, s := range both.Scopes() {
			if !a.Covers(s) || !b.Covers(s) {
				t.Fatalf("%v ∩ %v holds %s", a.Strings(), b.Strings(), s)
			}
		}
		if got, want := strings.Join(b.Intersect(a).Strings(), " "), strings.Join(both.Strings(), " "); got != want {
			t.Fatalf("intersection depends on the side: %s, %s", got, want)
		}
	})
}

// A pattern that covers a need with wildcards covers every real thing in it.
func TestPatternCoversWhatAPatternWithinItCovers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringMatching(`[ab*]{1,6}`)
		held, need := Must("tool:"+glob.Draw(t, "held")), Must("tool:"+glob.Draw(t, "need"))
		real, err := Of("tool", rapid.StringMatching(`[ab]{1,8}`).Draw(t, "name"))
		if err != nil {
			t.Fatal(err)
		}
		if need.Covers(real) && (held.Covers(need) && !held.Covers(real) || held.Covers(real) && !held.Overlaps(need)) {
			t.Fatalf("held %s, need %s, real %s", held, need, real)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"fs.read:/a/**/b*", `fs.read:/\*`, "net.fetch:https://*.x.io:8080/a/..%2fb;c//d", "http:[::1]:80",
		"email.send:a, b", "spend:1.50", "tool:a*", "time.read", "fs.read:c:/x", "net.fetch:https://x.io/%2e%2e/%7e?q#f", "http:0x7f.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if !s.IsZero() {
				t.Fatalf("%q: a scope and an error", text)
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q reads back as %q, %v", s, again, err)
		}
		if !s.Covers(again) || !again.Covers(s) || !s.Overlaps(again) {
			t.Fatalf("%q and its reading differ", s)
		}
		if wide := Unqualified(s.Base()); !wide.Covers(s) || s.Qualified() && s.Covers(wide) {
			t.Fatalf("%q and its base", s)
		}
	})
}

func FuzzOf(f *testing.F) {
	f.Add("/ws/**/[x]")
	f.Add("https://x.io/a/../%2fb?q")
	f.Add("a*")
	f.Fuzz(func(t *testing.T, literal string) {
		for _, base := range []string{"fs.read", "net.fetch", "http", "email.send", "tool"} {
			s, err := Of(base, literal)
			if err != nil {
				continue
			}
			again, err := Parse(s.String())
			if err != nil || !again.Covers(s) || !s.Covers(again) || again.String() != s.String() {
				t.Fatalf("%s of %q is %q, reads back as %q, %v", base, literal, s, again, err)
			}
		}
	})
}
