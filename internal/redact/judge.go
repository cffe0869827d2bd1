package redact

import (
	"bytes"
	"math"
	"unicode"
)

// Judge says what speaks against hiding a value wherever it appears, "" for nothing.
// short says that it is not looked for at all.
func Judge(text []byte) (why string, short bool) {
	text = bytes.TrimSpace(text)
	if len(text) < MinLen {
		return "it is shorter than 8 bytes, so it is not looked for in what is shown", true
	}
	const weak = 40 // bits; a word of eight small letters has 38, were it random
	if guess(text) < weak {
		return "it is easily guessed and may be part of ordinary text, where it is hidden too", false
	}
	return "", false
}

// guess is how many bits a value has at most, judged by what it is made of.
func guess(text []byte) float64 {
	pool, seen := 0, map[rune]bool{}
	var classes [4]bool
	for _, c := range string(text) {
		seen[c] = true
		switch {
		case unicode.IsLower(c):
			classes[0] = true
		case unicode.IsUpper(c):
			classes[1] = true
		case unicode.IsDigit(c):
			classes[2] = true
		default:
			classes[3] = true
		}
	}
	for i, size := range []int{26, 26, 10, 33} {
		if classes[i] {
			pool += size
		}
	}
	each := math.Min(math.Log2(float64(pool)), math.Log2(float64(len(seen)))+1)
	return each * float64(len(text))
}
