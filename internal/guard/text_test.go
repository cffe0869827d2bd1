package guard

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                   "",
		"plain, with\ttab\nand åäö":          "plain, with\ttab\nand åäö",
		"a\r\nb\rc\r\r\nd":                   "a\nb\nc\n\nd",
		"nul\x00 bell\a esc\x1b[31m del\x7f": "nul␀ bell␇ esc␛[31m del␡",
		"bad \xff\xfe utf":                   "bad \uFFFD\uFFFD utf",
		"lone \xed\xa0\x80 half":             "lone \uFFFD\uFFFD\uFFFD half",
		"c1 \u0085 \u009b":                   "c1 ⟦U+0085⟧ ⟦U+009B⟧",
		"non \uFFFE \uFDD0 \U0001FFFF":       "non \uFFFD \uFFFD \uFFFD",
		"\uFEFFstart":                        "start",
		"in\uFEFFside":                       "in⟦U+FEFF⟧side",
		"soft\u00ADhyphen":                   "softhyphen",
		"ig\u200Bnore":                       "ig⟦U+200B⟧nore",
		"ig\u200Dnore":                       "ig⟦U+200D⟧nore",
		"abc\u202Etxt.exe":                   "abc⟦U+202E⟧txt.exe",
		"tag\U000E0041\U000E0042":            "tag⟦U+E0041⟧⟦U+E0042⟧",
		"👩‍👩‍👧 and ❤️ and 1️⃣": "👩‍👩‍👧 and ❤️ and 1️⃣",
		"می\u200cخواهم":        "می\u200cخواهم",
		"❤️‍🔥":                 "❤️‍🔥",
		"葛\U000E0100":          "葛\U000E0100",
		"a\U000E0100\uFE01":    "a⟦U+E0100⟧⟦U+FE01⟧",
		"x\uFE0F\uFE0F":        "x\uFE0F⟦U+FE0F⟧",
		"filler\u3164":         "filler⟦U+3164⟧",
		"line\u2028sep":        "line⟦U+2028⟧sep",
	} {
		if got := CleanText(in); got != want {
			t.Errorf("CleanText(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCleanTextLeavesCleanTextWhereItIs(t *testing.T) {
	text := strings.Repeat("ordinary words, även på svenska\n", 50)
	if n := testing.AllocsPerRun(50, func() { CleanText(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCleanText(f *testing.F) {
	for _, s := range []string{"é\u200d\u00ada", "a\r\rb\x00", "\uFEFF\uFEFFx", "é\u202e\u200dé\ufe0f\ufe0f", "\xed\xa0\x80\u00ad", "≨\ufe00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := CleanText(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		if again := CleanText(got); again != got {
			t.Fatalf("cleaning %q twice: %q, then %q", s, got, again)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("a control character in %q", got)
		}
		if strings.ContainsAny(got, "\u200b\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u00ad") {
			t.Fatalf("a hidden character in %q", got)
		}
		if visible := CleanText("x" + strings.Repeat("\u200d", 2) + "x"); strings.Contains(visible, "\u200d") {
			t.Fatalf("a joiner between letters stays: %q", visible)
		}
	})
}

func TestCutText(t *testing.T) {
	t.Parallel()
	family := "👩‍👩‍👧" // 18 bytes, one character
	for _, c := range []struct {
		s    string
		max  int
		want string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""}, {"abc", -1, ""}, {"", 0, ""},
		{"aé", 2, "a"}, {"ae\u0301", 2, "a"}, {"ab" + family, 19, "ab"}, {"ab" + family, 20, "ab" + family},
		{"🇸🇪🇳🇴", 12, "🇸🇪"}, {"a\r\nb", 2, "a"}, {"日本語", 7, "日本"},
		{family, 17, "👩‍👩‍"}, {"é", 1, ""}, {strings.Repeat("\x80", 9), 4, strings.Repeat("\x80", 4)},
	} {
		got, cut := CutText(c.s, c.max)
		if got != c.want || cut != (len(c.s) > max(0, c.max)) {
			t.Errorf("CutText(%q, %d) = %q, %v, want %q", c.s, c.max, got, cut, c.want)
		}
	}
}

func FuzzCutText(f *testing.F) {
	f.Add("aé👩‍👩‍👧🇸🇪🇳🇴 x\r\n", 11)
	f.Add("e\u0301\u0301\u0301", 4)
	f.Add("\x80\x80\x80\x80\x80", 4)
	f.Fuzz(func(t *testing.T, s string, most int) {
		got, cut := CutText(s, most)
		if len(got) > max(0, most) && cut || !strings.HasPrefix(s, got) || cut == (got == s) && s != "" {
			t.Fatalf("CutText(%q, %d) = %q, %v", s, most, got, cut)
		}
		if cut && most >= utf8.UTFMax && got == "" {
			t.Fatalf("CutText(%q, %d) is empty", s, most)
		}
		if !cut || !utf8.ValidString(s) {
			return
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is cut in a code point", got)
		}
		longest := 0 // the slow way, from the start
		for g := uniseg.NewGraphemes(s); g.Next(); {
			if _, end := g.Positions(); end <= most {
				longest = end
			}
		}
		if longest > 0 && len(got) != longest {
			t.Fatalf("CutText(%q, %d) = %q, want %q", s, most, got, s[:longest])
		}
	})
}

func TestAPieceHasNoPartsOfCharacters(t *testing.T) {
	t.Parallel()
	const text = "é€😀z€"
	for from := range len(text) + 1 {
		for to := from; to <= len(text); to++ {
			got := Whole(text[from:to])
			if !utf8.ValidString(got) && to-from >= utf8.UTFMax || !strings.Contains(text[from:to], got) || len(got) < to-from-2*(utf8.UTFMax-1) {
				t.Errorf("%q of %d to %d", got, from, to)
			}
		}
	}
	for _, bytes := range []string{"", "\xff\xfe\xfd\xfc\xfb", "a\x80b", "\x80\x80\x80\x80\x80"} {
		if got := Whole(bytes); got != bytes {
			t.Errorf("%q became %q", bytes, got)
		}
	}
}
