package redact

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// view is a text as it reads without some of its escapes. start and end say where in
// the text each byte comes from; both are nil for the text itself.
type view struct {
	text       []byte
	start, end []int32
}

func (v *view) from(i int) int {
	switch {
	case v.start == nil:
		return i
	case i < len(v.start):
		return int(v.start[i])
	case i == 0:
		return 0
	}
	return int(v.end[i-1])
}

func (v *view) to(i int) int { // of the byte before i
	if v.end == nil {
		return i
	}
	return int(v.end[i-1])
}

// escape is one way to write a byte as several.
type escape struct {
	mark byte
	// read decodes what stands at the beginning of text: n bytes of it are into out.
	// n is 0 if it is no escape, and -1 if it may become one with more text.
	read func(text []byte, out []byte) (n int, decoded []byte)
}

// escapes lists the escapes. The last is for forms, where a space is a "+" too.
func escapes() []escape {
	return []escape{{'\\', readBackslash}, {'%', readPercent}, {'%', readForm}}
}

const formEscape = 2 // index in escapes

// unescape is v without the escapes of one kind. rest is where in the source an
// escape begins that is not complete, -1 if none does; with final there is none. ok
// is false if there is nothing to undo.
func (v *view) unescape(e escape, form, final bool) (out view, rest int, ok bool) {
	rest = -1
	if bytes.IndexByte(v.text, e.mark) < 0 && (!form || bytes.IndexByte(v.text, '+') < 0) {
		return out, rest, false
	}
	out = view{text: make([]byte, 0, len(v.text)), start: make([]int32, 0, len(v.text)), end: make([]int32, 0, len(v.text))}
	for i := 0; i < len(v.text); {
		before := len(out.text)
		n := 0
		if b := v.text[i]; b == e.mark || form && b == '+' {
			n, out.text = e.read(v.text[i:], out.text)
		}
		if n < 0 && !final {
			return out, v.from(i), true // what came before it may matter, and what follows is not known
		}
		if n <= 0 {
			out.text, n = append(out.text, v.text[i]), 1
		} else {
			ok = true
		}
		for range out.text[before:] {
			out.start = append(out.start, int32(v.from(i)))
			out.end = append(out.end, int32(v.to(i+n)))
		}
		i += n
	}
	return out, rest, ok
}

func readPercent(text, out []byte) (int, []byte) {
	if len(text) < 3 {
		if len(text) == 2 && unhex(text[1]) < 0 {
			return 0, out
		}
		return -1, out
	}
	hi, lo := unhex(text[1]), unhex(text[2])
	if hi < 0 || lo < 0 {
		return 0, out
	}
	return 3, append(out, byte(hi<<4|lo))
}

func readForm(text, out []byte) (int, []byte) {
	if text[0] == '+' {
		return 1, append(out, ' ')
	}
	return readPercent(text, out)
}

// simple are the escapes of one letter.
const simple, means = `"\/bfnrt'`, "\"\\/\b\f\n\r\t'"

func readBackslash(text, out []byte) (int, []byte) {
	if len(text) < 2 {
		return -1, out
	}
	if i := strings.IndexByte(simple, text[1]); i >= 0 {
		return 2, append(out, means[i])
	}
	switch text[1] {
	case 'x':
		if len(text) < 4 {
			return hope(text[2:]), out
		}
		if r := number(text[2:4]); r >= 0 {
			return 4, append(out, byte(r))
		}
	case 'u':
		return readUnicode(text, out)
	}
	return 0, out
}

func readUnicode(text, out []byte) (int, []byte) {
	if len(text) < 6 {
		return hope(text[2:]), out
	}
	r := number(text[2:6])
	switch {
	case r < 0:
		return 0, out
	case !utf16.IsSurrogate(r):
		return 6, utf8.AppendRune(out, r)
	}
	if second := text[6:]; len(second) < 6 {
		if bytes.HasPrefix([]byte(`\u`), second) || bytes.HasPrefix(second, []byte(`\u`)) && hope(second[2:]) < 0 {
			return -1, out
		}
		return 0, out
	}
	if text[6] == '\\' && text[7] == 'u' {
		if both := utf16.DecodeRune(r, number(text[8:12])); both != utf8.RuneError {
			return 12, utf8.AppendRune(out, both)
		}
	}
	return 0, out
}

// hope is -1 if digits may become a number with more text, else 0.
func hope(digits []byte) int {
	for _, b := range digits {
		if unhex(b) < 0 {
			return 0
		}
	}
	return -1
}

func number(digits []byte) (r rune) {
	for _, b := range digits {
		d := unhex(b)
		if d < 0 {
			return -1
		}
		r = r<<4 | rune(d)
	}
	return r
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b - 'a' + 10)
	case 'A' <= b && b <= 'F':
		return int(b - 'A' + 10)
	}
	return -1
}
