package markup

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"
)

// glyphs are what is hard to cut.
var glyphs = []string{
	"a", " ", "é", "e\u0301", "日", "한", "각", "ก็", "क्षि", "நி", "😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "\u0301", "\u200d", "🇩",
	"ᄀ", "ᅡ", "ᆨ", "\u0600", "…", "─", "\u0e33",
}

func TestBorderCutsNoCharacterThatPeopleSee(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(glyphs), 1, 20).Draw(t, "glyphs"), "")
		if rapid.Bool().Draw(t, "any") {
			s = clean("x" + rapid.StringN(0, 20, -1).Draw(t, "string"))
		}
		whole := map[int]bool{}
		for g := uniseg.NewGraphemes(s); g.Next(); {
			_, end := g.Positions()
			whole[end] = true
		}
		for i := 1; i <= len(s); i++ {
			if at := border(s, i); at > 0 && !whole[at] {
				t.Fatalf("border(%+q, %d) = %d cuts a character", s, i, at)
			}
		}
	})
}

func TestBorderFindsBordersInOrdinaryText(t *testing.T) {
	t.Parallel()
	for _, s := range glyphs[:16] {
		if got := border(s+s+"x", len(s)+len(s)/2); got != len(s) && len(s) > 1 {
			t.Errorf("border(%+q) = %d, want %d", s+s, got, len(s))
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	for _, s := range append(glyphs[:15:15], "", "abc", "日本語", "✅", "❌ no", "ＡＢ", "→", "±1 µm", "⭐", "☑", "→") {
		if got, want := columns(s), uniseg.StringWidth(s); got != want {
			t.Errorf("columns(%+q) = %d, want %d", s, got, want)
		}
	}
}

func TestCleanTakesOutWhatDeceives(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\x00b\x1b[31mc\x7f":      "ab[31mc",
		"a\u202Egnp.exe\u2069":     "agnp.exe",
		"a\xffb\xed\xa0\x80":       "a\uFFFDb\uFFFD",
		"a\r\nb\rc\u2028d":         "a\nb\nc\nd",
		"\ufeffa\u200bb\u2060c":    "abc",
		"👩‍👧 tab\t stays":          "👩‍👧 tab\t stays",
		"نمی\u200cخواهم \u200fabc": "نمی\u200cخواهم \u200fabc",
		"a\u0085b\u009bc":          "abc",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%+q) = %+q, want %+q", in, got, want)
		}
	}
}
