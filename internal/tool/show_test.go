package tool

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShowHidesNothingAndStaysOnOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"notes/å b.txt":  "notes/å b.txt",
		"a\nrm -rf /":    `"a\nrm -rf /"`,
		"cod\u202etxt":   `"cod\u202etxt"`,
		"zero\u200bwide": `"zero\u200bwide"`,
		" padded":        `" padded"`,
		"":               `""`,
		"\xff":           `"\xff"`,
	} {
		if got := Show(in); got != want {
			t.Errorf("Show(%q) = %s, want %s", in, got, want)
		}
	}
	if got := Show(strings.Repeat("é", 5000)); len(got) > maxShown+8 || !utf8.ValidString(got) {
		t.Errorf("a long text is shown in %d bytes", len(got))
	}
}
