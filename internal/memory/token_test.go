package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTermsOfAText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"What is the boiler code?":                 "boiler cod",
		"Anna's birthdays":                         "anna birthdai",
		"The Wi-Fi at O'Neill’s":                   "wi fi wifi oneill",
		"living lives lived":                       "liv liv liv",
		"running stopped allergies allergy boxes":  "run stop allergi allergi box",
		"Müllabfuhr, Straße, Ærø, İstanbul, naïve": "mullabfuhr strass aero istanbul naiv",
		"I AM not, und das ist es":                 "",
		"on 2026-03-04 v1.2.3.4":                   "2026 03 04 20260304 v1 2 3 4",
		"黒い猫":                                      "黒 黒い い猫 猫",
		"猫":                                        "猫",
		"会议室":                                      "会 会议 议 议室 室",
		"コーヒー ｶﾌｪ":                                 "コー ーヒ ヒー カフ フェ",
		"boiler暖房A1":                               "boiler 暖 暖房 房 a1",
		"한국어를":                                     "한국 국어 어를",
		"привет ЁЛКА":                              "привет елка",
		"नमस्ते":                                   "नमस्ते",
		"don't 'quoted'":                           "quot",
		"\xff\x00 ok \u0301 a\u0308b":              "ok ab",
	} {
		if got := strings.Join(terms(text), " "); got != want {
			t.Errorf("terms(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzTerms: every term is short, visible text; a space separates, so terms of two
// texts side by side are those of each; the case does not matter for ASCII.
func FuzzTerms(f *testing.F) {
	for _, s := range []string{"The boiler-code is 4711", "黒い猫 ｶﾌｪ", "İ̇ß ﬁ Ⅷ ℡", "a\u0301\u0301 '''s", "한국어", "\xff", "e.g. x_y/z", strings.Repeat("ก", 100)} {
		f.Add(s, "b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 1<<14 {
			t.Skip()
		}
		got := terms(a)
		for _, w := range got {
			if w == "" || len(w) > maxTerm || !utf8.ValidString(w) || strings.ContainsAny(w, " '\n\x00") {
				t.Fatalf("terms(%q) has %q", a, w)
			}
		}
		if both, each := terms(a+" \n "+b), append(slices.Clone(got), terms(b)...); !slices.Equal(both, each) {
			t.Fatalf("%q and %q: %q together, %q apart", a, b, both, each)
		}
		if ascii(a) && !slices.Equal(terms(strings.ToUpper(a)), got) {
			t.Fatalf("terms of %q depend on its case", a)
		}
		slotOf(a) // must not panic
	})
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

func TestFactsThatCannotBothBeTrueShareASlot(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{"the boiler code is 4711", "The boiler code is 4712."},
		{"boiler code = 4711", "our boiler code is now 4712"},
		{"boiler code: 4711", "the boiler code is 4712"},
		{"the code of the boiler is 1", "the code of boiler is 2"},
		{"Anna's birthday is 14 March", "Anna’s birthday is 15 March"},
		{"my favourite colour is blue", "my favourite colour is a dark green"},
		{"Anna is 40 years old", "Anna is 41 years old"},
		{"my dentist is Dr. Berg", "my dentist is Maria Lund"},
		{"der Boiler Code ist 4711", "der Boiler Code lautet 4712"},
		{"port=80", "port=443"},
	}
	for _, c := range same {
		if a, b := slotOf(c[0]), slotOf(c[1]); a == "" || a != b {
			t.Errorf("%q has slot %q, %q has %q, want one", c[0], a, c[1], b)
		}
	}
	apart := [][2]string{
		{"Anna is my sister", "Anna is allergic to nuts"},
		{"Anna is Swedish", "Anna is Bob's boss"},
		{"Anna is 40 years old", "Anna is 170 cm tall"},
		{"my car is a Volvo", "my car is red"},
		{"the boiler code is 4711", "the bicycle code is 4711"},
		{"the boiler code is 4711", "the boiler code is not 4711"},
		{"it is 4711", "it is 4712"},
		{"todo: buy milk", "todo: call mum"},
		{"see https://x.example/?a=1", "see https://x.example/?a=2"},
		{"what I like is tea", "what I like is coffee"},
		{"the garage door is broken", "the garage door is green"},
	}
	for _, c := range apart {
		if a, b := slotOf(c[0]), slotOf(c[1]); a != "" && a == b {
			t.Errorf("%q and %q share slot %q", c[0], c[1], a)
		}
	}
	for _, s := range []string{"", "is", " is 4", "= 4", "x =", "=", "the is 4", fmt.Sprint(strings.Repeat("w ", 9), "code is 4")} {
		if got := slotOf(s); got != "" {
			t.Errorf("slotOf(%q) = %q", s, got)
		}
	}
}
