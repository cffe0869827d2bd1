package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// matcher is what a Redactor knows, made ready for searching. It never changes.
type matcher struct {
	plain, base64, hex *automaton
	spaces             bool // some value has a space, which a form writes as "+"
}

// minPiece is the length from which a line or a string of a value is looked for by
// itself: shorter ones are ordinary words too often.
const minPiece = 16

func newMatcher(values []value) *matcher {
	m := &matcher{}
	var plain, b64, hexa []pattern
	for _, v := range values {
		for _, piece := range pieces(v.text) {
			plain = append(plain, pattern{piece, v.name})
			hexa = append(hexa, pattern{[]byte(hex.EncodeToString(piece)), v.name})
			for _, text := range inBase64(piece) {
				b64 = append(b64, pattern{text, v.name})
			}
			m.spaces = m.spaces || bytes.IndexByte(piece, ' ') >= 0
		}
	}
	m.plain = newAutomaton(func(b byte) byte { return b }, "", plain)
	m.base64 = newAutomaton(oneAlphabet, "\r\n", b64)
	m.hex = newAutomaton(lower, "\r\n :", hexa)
	return m
}

// pieces is a value and what of it is worth looking for by itself.
func pieces(text []byte) [][]byte {
	out := [][]byte{text}
	add := func(piece []byte) {
		if piece = bytes.TrimSpace(piece); len(piece) >= minPiece && len(piece) < len(text) && !bytes.HasPrefix(piece, []byte("-----")) {
			out = append(out, piece)
		}
	}
	if bytes.ContainsAny(text, "\r\n") {
		for line := range bytes.Lines(text) {
			add(line)
		}
	}
	if text[0] == '{' || text[0] == '[' {
		dec := json.NewDecoder(bytes.NewReader(text))
		for tok, err := dec.Token(); err == nil; tok, err = dec.Token() {
			if s, ok := tok.(string); ok {
				add([]byte(s))
				for line := range strings.Lines(s) {
					add([]byte(line))
				}
			}
		}
	}
	return out
}

// inBase64 is how a value can stand in an encoded text. Before it there may be 0, 1
// or 2 bytes that share its first characters; behind it other bytes, or the end,
// with or without padding.
func inBase64(v []byte) [][]byte {
	var out [][]byte
	for before := range 3 {
		whole := append(make([]byte, before, before+len(v)), v...)
		bare := base64.RawStdEncoding.EncodeToString(whole)
		from, to := (8*before+5)/6, 8*len(whole)/6 // the characters that are the value's alone
		out = append(out, []byte(bare[from:to]))
		if to < len(bare) {
			out = append(out, []byte(bare[from:]), []byte(base64.StdEncoding.EncodeToString(whole)[from:]))
		}
	}
	return out
}

// oneAlphabet makes the two alphabets of base64 one.
func oneAlphabet(b byte) byte {
	switch b {
	case '-':
		return '+'
	case '_':
		return '/'
	}
	return b
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
