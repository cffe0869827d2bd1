package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	zwsp = "\u200b" // seen by nobody; a border of words to the networks
	zwj  = '\u200d'
)

// clean takes out what would not be shown or would show a text as another than it is.
func clean(s string) string {
	if plainASCII(s) {
		return s
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.IsControl(r), turns(r), unseen(r):
			return -1
		}
		return r
	}, s)
}

func plainASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7F || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// turns reports whether r turns the direction of what follows it.
func turns(r rune) bool {
	return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x206F
}

// unseen reports whether r shows nothing and joins nothing.
func unseen(r rune) bool {
	return r == 0x200B || r == 0x180E || r == 0xFEFF || r >= 0x2060 && r <= 0x2065
}

// visible reports whether there is something to see in s.
func visible(s string) bool {
	for _, r := range s {
		switch {
		case unicode.IsSpace(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.M, r):
		case r == 0x2800, r == 0x3164, r == 0x115F, r == 0x1160, r == 0xFFA0:
		default:
			return true
		}
	}
	return false
}

// border returns the last place in s, at or before i and after 0, where a character as
// people see it ends. 0 if there is none. It may leave out a border, and never makes one up
// where a reader would see it.
func border(s string, i int) int {
	for ; i > 0; i-- {
		if i >= len(s) {
			return len(s)
		}
		if utf8.RuneStart(s[i]) && !joined(s, i) {
			return i
		}
	}
	return 0
}

// joined reports whether what stands before i in s and what stands after it are, or may
// be, one character to who sees them.
func joined(s string, i int) bool {
	next, _ := utf8.DecodeRuneInString(s[i:])
	if next < 0x80 && s[i-1] < 0x80 {
		return false
	}
	prev, _ := utf8.DecodeLastRuneInString(s[:i])
	switch {
	case extends(next), prev == zwj, prepends(prev), next == '\u200b': // ours, that belongs to the @ before it
		return true
	case regional(next) && regional(prev):
		return odd(s[:i])
	case (jamo(next) || hangul(next)) && jamo(prev), jamo(next) && hangul(prev):
		return true
	case virama(prev) && unicode.IsLetter(next):
		return true
	}
	return false
}

func extends(r rune) bool {
	return r == zwj || r == '\u200c' || unicode.In(r, unicode.M, unicode.Other_Grapheme_Extend) ||
		r >= 0x1F3FB && r <= 0x1F3FF || r >= 0xE0020 && r <= 0xE007F || r == 0x0E33 || r == 0x0EB3
}

// virama reports whether r joins the letters around it in an Indic script.
func virama(r rune) bool {
	return r >= 0x94D && r <= 0xDCD && r&0x7F == 0x4D || r == 0xDCA || r == 0x1039 || r == 0x17D2 || r == 0x1A60
}

// prepends reports whether r is a part of the character behind it.
func prepends(r rune) bool {
	switch r {
	case 0x0D4E, 0x111C2, 0x111C3, 0x113D1, 0x1193F, 0x11941, 0x11A3A, 0x11D46, 0x11F02:
		return true
	}
	return r >= 0x11A84 && r <= 0x11A89 || unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

func regional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

// odd reports whether s ends in an odd number of the halves of flags.
func odd(s string) bool {
	n := 0
	for s != "" {
		r, size := utf8.DecodeLastRuneInString(s)
		if !regional(r) {
			break
		}
		s, n = s[:len(s)-size], n+1
	}
	return n%2 == 1
}

func jamo(r rune) bool {
	return r >= 0x1100 && r <= 0x11FF || r >= 0xA960 && r <= 0xA97C || r >= 0xD7B0 && r <= 0xD7FB
}

func hangul(r rune) bool { return r >= 0xAC00 && r <= 0xD7A3 }

// wide are the ranges of characters that take two columns.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115F, Stride: 1}, {Lo: 0x231A, Hi: 0x231B, Stride: 1}, {Lo: 0x23E9, Hi: 0x23EC, Stride: 1},
		{Lo: 0x25FD, Hi: 0x25FE, Stride: 1}, {Lo: 0x2614, Hi: 0x2615, Stride: 1}, {Lo: 0x2705, Hi: 0x2705, Stride: 1},
		{Lo: 0x270A, Hi: 0x270B, Stride: 1}, {Lo: 0x2728, Hi: 0x2728, Stride: 1}, {Lo: 0x274C, Hi: 0x274C, Stride: 1},
		{Lo: 0x2753, Hi: 0x2757, Stride: 1}, {Lo: 0x2795, Hi: 0x2797, Stride: 1}, {Lo: 0x2B50, Hi: 0x2B55, Stride: 5},
		{Lo: 0x2E80, Hi: 0x303E, Stride: 1}, {Lo: 0x3041, Hi: 0xA4CF, Stride: 1}, {Lo: 0xA960, Hi: 0xA97F, Stride: 1},
		{Lo: 0xAC00, Hi: 0xD7A3, Stride: 1}, {Lo: 0xF900, Hi: 0xFAFF, Stride: 1}, {Lo: 0xFE30, Hi: 0xFE6F, Stride: 1},
		{Lo: 0xFF00, Hi: 0xFF60, Stride: 1}, {Lo: 0xFFE0, Hi: 0xFFE6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1F18E, Hi: 0x1F18E, Stride: 1}, {Lo: 0x1F191, Hi: 0x1F19A, Stride: 1}, {Lo: 0x1F1E6, Hi: 0x1F320, Stride: 1},
		{Lo: 0x1F32D, Hi: 0x1F64F, Stride: 1}, {Lo: 0x1F680, Hi: 0x1F6FF, Stride: 1}, {Lo: 0x1F7E0, Hi: 0x1F7EB, Stride: 1},
		{Lo: 0x1F900, Hi: 0x1FAFF, Stride: 1}, {Lo: 0x20000, Hi: 0x3FFFD, Stride: 1},
	},
}

// columns is how wide s is in a font whose characters are all as wide.
func columns(s string) int {
	n, last := 0, 0 // last is where the character that is being read began
	for i, r := range s {
		switch {
		case r < 0x300:
			n++
		case i > last && joined(s, i):
			n += widening(s, i, r)
			continue
		case unicode.Is(wide, r):
			n += 2
		default:
			n++
		}
		last = i
	}
	return n
}

// widening is by how much r, at i in s, makes the character wider that it is a part of.
func widening(s string, i int, r rune) int {
	if prev, _ := utf8.DecodeLastRuneInString(s[:i]); r == 0xFE0F && !unicode.Is(wide, prev) {
		return 1 // it is shown as an emoji
	}
	if unicode.Is(unicode.Mc, r) || unicode.IsLetter(r) && !jamo(r) {
		return 1
	}
	return 0
}

// word reports whether a network takes r for a part of a word.
func word(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
