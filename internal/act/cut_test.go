package act

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

func TestALongOutputIsShownInWholeCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	for lead := range utf8.UTFMax {
		name := "t.long" + string(rune('a'+lead))
		b.add(define(name), text(strings.Repeat("a", lead)+strings.Repeat("😀", MaxText/2)))
		res := b.do(to("1", name, `{"as":"free"}`))[0]
		if res.Blob == "" || strings.ContainsRune(res.Text, utf8.RuneError) || strings.Contains(res.Text, `\x`) {
			i := strings.IndexRune(res.Text, utf8.RuneError)
			t.Errorf("lead %d: half a character at %d of %d", lead, i, len(res.Text))
		}
	}
}
