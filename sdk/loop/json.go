package loop

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What a call says and hears is small JSON of known shape. It is written and read by hand:
// in a sandbox, encoding/json takes most of the time of a call.

var errAnswer = errors.New("the answer is not what it should be")

// object is the JSON of an object that is being written, without its end.
type object []byte

// key begins a field. A name needs no escapes.
func (o object) key(name string) object {
	if len(o) > 1 {
		o = append(o, ',')
	}
	o = append(o, '"')
	o = append(o, name...)
	return append(o, '"', ':')
}

func (o object) str(name, value string) object { return appendString(o.key(name), value) }

func (o object) int(name string, n int64) object { return strconv.AppendInt(o.key(name), n, 10) }

func (o object) bool(name string, b bool) object { return strconv.AppendBool(o.key(name), b) }

// raw is a field whose value is JSON already; nothing is null.
func (o object) raw(name string, value []byte) object {
	if len(value) == 0 {
		value = []byte("null")
	}
	return append(o.key(name), value...)
}

// texts is a field that is an object of texts, in the order of its keys: a call that is made
// again has to be the same.
func (o object) texts(name string, m map[string]string) object {
	o = append(o.key(name), '{')
	for n, key := range slices.Sorted(maps.Keys(m)) {
		if n > 0 {
			o = append(o, ',')
		}
		o = append(appendString(o, key), ':')
		o = appendString(o, m[key])
	}
	return append(o, '}')
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. What is not UTF-8 becomes U+FFFD.
func appendString[B ~[]byte](b B, s string) B {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// scanner reads JSON.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take passes over a byte that has to come.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		s.bad = true
		return false
	}
	s.i++
	return true
}

// fields calls each for the fields of an object; it has to pass over the value. null has
// no fields.
func (s *scanner) fields(each func(name string)) {
	if s.peek() == 'n' {
		s.skip()
		return
	}
	if !s.take('{') {
		return
	}
	if s.peek() == '}' {
		s.i++
		return
	}
	for !s.bad {
		name := s.text()
		if !s.take(':') {
			return
		}
		each(name)
		if s.peek() == '}' {
			s.i++
			return
		}
		s.take(',')
	}
}

// items calls each for the items of a list, as fields does.
func (s *scanner) items(each func()) {
	if s.peek() == 'n' {
		s.skip()
		return
	}
	if !s.take('[') {
		return
	}
	if s.peek() == ']' {
		s.i++
		return
	}
	for !s.bad {
		each()
		if s.peek() == ']' {
			s.i++
			return
		}
		s.take(',')
	}
}

// skip passes over a value and returns it as it is written.
func (s *scanner) skip() []byte {
	s.peek()
	from, deep := s.i, 0
	for s.i < len(s.b) && !s.bad {
		c := s.b[s.i]
		switch c {
		case '"':
			s.quoted()
			s.i--
		case '{', '[':
			deep++
		case '}', ']', ',':
			if deep == 0 {
				return s.b[from:s.i]
			}
			if c != ',' {
				deep--
			}
		}
		s.i++
		if deep == 0 && (c == '"' || c == '}' || c == ']') {
			break
		}
	}
	s.bad = s.bad || deep > 0 || from == s.i
	return s.b[from:s.i]
}

// quoted passes over a string and returns what is between its marks, and whether it has
// escapes.
func (s *scanner) quoted() (inner []byte, escaped bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.i
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			escaped = true
			s.i++
		case '"':
			s.i++
			return s.b[from : s.i-1], escaped
		}
	}
	s.bad = true
	return nil, false
}

// text reads a string; null is "".
func (s *scanner) text() string {
	if s.peek() == 'n' {
		s.skip()
		return ""
	}
	inner, escaped := s.quoted()
	if !escaped {
		return string(inner)
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch c = inner[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, n := unicodeAt(inner[i+1:])
			out = utf8.AppendRune(out, r)
			i += n
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// unicodeAt reads the digits behind \u, and with them the second half of a pair. It says how
// many bytes that was.
func unicodeAt(b []byte) (r rune, n int) {
	four := func(b []byte) rune {
		if len(b) < 4 {
			return -1
		}
		v, err := strconv.ParseUint(string(b[:4]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	r = four(b)
	if r < 0 {
		return utf8.RuneError, min(len(b), 4)
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(b) >= 10 && b[4] == '\\' && b[5] == 'u' {
		if pair := utf16.DecodeRune(r, four(b[6:])); pair != utf8.RuneError {
			return pair, 10
		}
	}
	return utf8.RuneError, 4
}

// truth reads true; anything else is false.
func (s *scanner) truth() bool { return string(s.skip()) == "true" }

// number reads a whole number; anything else is 0.
func (s *scanner) number() int {
	n, err := strconv.Atoi(string(s.skip()))
	if err != nil {
		return 0
	}
	return n
}

// read reads the fields of an answer. An empty answer has none.
func read(answer []byte, each func(s *scanner, name string)) error {
	if len(answer) == 0 {
		return nil
	}
	s := &scanner{b: answer}
	s.fields(func(name string) { each(s, name) })
	if s.bad {
		return errAnswer
	}
	return nil
}
