package guard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// CleanText returns s as text that every store, terminal and model takes, and in
// which nothing is hidden from the person who reads it:
//
//   - bytes that are not UTF-8 and noncharacters become U+FFFD, line ends "\n";
//   - control characters other than tab and line end become their picture (NUL ␀,
//     ESC ␛) or ⟦U+0085⟧;
//   - invisible characters and those that turn the direction of writing become
//     ⟦U+202E⟧, except where they do honest work: a joiner, a direction mark or a
//     variation selector between characters outside ASCII, or a selector behind a
//     visible one;
//   - soft hyphens and a byte order mark at the start are dropped.
//
// It returns clean text unchanged and without allocating; cleaning twice changes
// nothing more.
func CleanText(s string) string {
	s = strings.TrimPrefix(s, bom)
	dirty := firstDirty(s)
	if dirty < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	start := strings.LastIndexByte(s[:dirty], '\n') + 1 // context for what follows
	b.WriteString(s[:start])
	prev := '\n'
	for i := start; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '\r' {
			if !strings.HasPrefix(s[i+1:], "\n") {
				b.WriteByte('\n')
			}
			i, prev = i+1, '\n'
			continue
		}
		i += size
		next, _ := utf8.DecodeRuneInString(s[i:])
		if writeClean(&b, prev, r, next) {
			prev = r
		}
	}
	return b.String()
}

const bom = "\uFEFF"

// firstDirty returns where the first rune stands that needs a closer look, -1 if
// there is none.
func firstDirty(s string) int {
	for i, r := range s {
		switch {
		case r >= ' ' && r < 0x7F, r == '\n', r == '\t':
		case r < 0xA0, r == utf8.RuneError, r == softHyphen, noncharacter(r), invisible(r):
			return i
		}
	}
	return -1
}

const softHyphen = '\u00AD'

// writeClean writes r as it is seen, and reports whether it is seen as itself.
func writeClean(b *strings.Builder, prev, r, next rune) bool {
	switch {
	case r == softHyphen:
		return false
	case r == '\n', r == '\t':
	case r < ' ':
		r = '\u2400' + r
	case r == 0x7F:
		r = '\u2421'
	case r < 0xA0 && r > 0x7F:
		fmt.Fprintf(b, "⟦U+%04X⟧", r)
		return false
	case noncharacter(r):
		r = utf8.RuneError
	case invisible(r) && !honest(prev, r, next):
		fmt.Fprintf(b, "⟦U+%04X⟧", r)
		return false
	}
	b.WriteRune(r)
	return true
}

func noncharacter(r rune) bool { return r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF }

// hidden are the characters that are not seen: the default ignorable ones of
// Unicode, blank letters, and the controls of direction.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x034F, 0x034F, 1}, {0x061C, 0x061C, 1}, {0x115F, 0x1160, 1}, {0x17B4, 0x17B5, 1}, {0x180B, 0x180F, 1},
		{0x200B, 0x200F, 1}, {0x2028, 0x202E, 1}, {0x2060, 0x206F, 1}, {0x2800, 0x2800, 1}, {0x3164, 0x3164, 1},
		{0xFE00, 0xFE0F, 1}, {0xFEFF, 0xFEFF, 1}, {0xFFA0, 0xFFA0, 1}, {0xFFF0, 0xFFFB, 1},
	},
	R32: []unicode.Range32{{0x1BCA0, 0x1BCA3, 1}, {0x1D173, 0x1D17A, 1}, {0xE0000, 0xE0FFF, 1}},
}

func invisible(r rune) bool { return r >= 0x034F && unicode.Is(hidden, r) }

// honest reports whether an invisible r serves the writing around it.
func honest(prev, r, next rune) bool {
	switch {
	case r >= 0x200C && r <= 0x200F: // joiners, direction marks
		return (foreign(prev) || prev == 0xFE0F) && foreign(next)
	case r == 0xFE0E || r == 0xFE0F: // text or emoji style, also behind digits
		return prev > ' ' && !invisible(prev)
	case r >= 0xFE00 && r <= 0xFE0D, r >= 0xE0100 && r <= 0xE01EF: // shapes of one character
		return unicode.In(prev, unicode.Han, unicode.Mongolian, unicode.Myanmar) || r < 0xFE10 && unicode.Is(unicode.Sm, prev)
	}
	return false
}

// foreign reports whether r is a visible character outside ASCII that stays as it is.
func foreign(r rune) bool {
	return r >= 0xA0 && r != utf8.RuneError && r != softHyphen && !noncharacter(r) && !invisible(r) && !unicode.IsSpace(r)
}

// CutText returns the longest start of s of at most max bytes that ends between
// two characters as a person sees them, and whether anything was cut off. Where
// the first such character alone is too long it is cut between code points. From
// a max of 4 on the start is never empty, so a loop over the rest ends.
func CutText(s string, max int) (string, bool) {
	if len(s) <= max {
		return s, false
	}
	if max <= 0 {
		return "", true
	}
	from := safeBorder(s, max)
	end, state, rest := from, -1, s[from:]
	for rest != "" {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if end+len(cluster) > max {
			break
		}
		end += len(cluster)
	}
	if end == 0 {
		for end = max; end > 0 && !utf8.RuneStart(s[end]); end-- {
		}
	}
	if end == 0 && max >= utf8.UTFMax { // no UTF-8 at all
		end = max
	}
	return s[:end], true
}

// safeBorder returns the last border at or before max that is one whatever stands
// before it: between two printable ASCII characters. It saves the reading of the
// whole text, of which only the end matters.
func safeBorder(s string, max int) int {
	for i := max; i > 0; i-- {
		if plain(s[i-1]) && plain(s[i]) {
			return i
		}
	}
	return 0
}

func plain(c byte) bool { return c >= ' ' && c < 0x7F }

// Whole is a piece that was cut out of a text by its bytes, without the parts of characters
// at its borders. What is no text keeps its bytes.
func Whole(piece string) string {
	for i := range min(len(piece), utf8.UTFMax) {
		if utf8.RuneStart(piece[i]) {
			piece = piece[i:]
			break
		}
	}
	for i := 1; i < utf8.UTFMax && i <= len(piece); i++ {
		if last := piece[len(piece)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				piece = piece[:len(piece)-i]
			}
			break
		}
	}
	return piece
}

// OneLine is text of others in one clean line of at most max bytes.
func OneLine(s string, max int) string {
	s, _ = CutText(strings.Join(strings.Fields(CleanText(s)), " "), max)
	return s
}

// Lines is text of others, clean, as it is broken, in at most max bytes.
func Lines(s string, max int) string {
	s, _ = CutText(strings.TrimSpace(CleanText(s)), max)
	return s
}
