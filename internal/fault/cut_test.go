package fault

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsNoTextIsCutWhereItIsLong(t *testing.T) {
	t.Parallel()
	if got := Cut(strings.Repeat("\x80", 9), 6); len(got) != 6 {
		t.Errorf("%q", got)
	}
}

func TestACutTextHasNoHalfCharacter(t *testing.T) {
	t.Parallel()
	const text = "aé€😀z"
	for n := range len(text) + 2 {
		got := Cut(text, n)
		if len(got) > n || len(got) < min(n, len(text))-(utf8.UTFMax-1) || !utf8.ValidString(got) || !strings.HasPrefix(text, got) {
			t.Errorf("up to %d: %q", n, got)
		}
	}
}
