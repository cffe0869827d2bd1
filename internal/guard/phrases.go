package guard

import (
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// phrases are ways to give a model orders in what should be data, as they look
// when flat. They are few and plain: a warning is a help for a person who reads
// what happened, and decides nothing.
var phrases = []string{
	// English
	"ignore previous instructions", "ignore all previous instructions", "ignore the above", "ignore your instructions",
	"disregard previous instructions", "disregard all previous", "disregard your instructions", "forget all previous instructions",
	"forget everything above", "new system prompt", "your new instructions", "override your instructions", "reveal your system prompt",
	"repeat your system prompt", "you are now", "from now on you", "do not tell the user", "do not tell the operator", "without telling the user",
	"developer mode", "do anything now", "the operator says", "the operator has approved", "as the operator",
	// German
	"ignoriere alle vorherigen anweisungen", "ignoriere die vorherigen anweisungen", "vergiss alle bisherigen anweisungen", "du bist jetzt", "sag es dem benutzer nicht",
	// French
	"ignore les instructions precedentes", "ignorez les instructions precedentes", "oublie toutes les instructions", "tu es maintenant", "ne le dis pas a l'utilisateur",
	// Spanish
	"ignora las instrucciones anteriores", "ignora todas las instrucciones", "olvida las instrucciones anteriores", "ahora eres", "no se lo digas al usuario",
	// Italian, Portuguese
	"ignora le istruzioni precedenti", "ignora tutte le istruzioni", "ignore as instrucoes anteriores", "esqueca as instrucoes anteriores",
	// Swedish
	"ignorera tidigare instruktioner", "ignorera alla tidigare instruktioner", "glom alla tidigare instruktioner",
	// Russian, Chinese, Japanese
	"игнорируи предыдущие инструкции", "игнорируи все предыдущие инструкции", "забудь предыдущие инструкции",
	"忽略之前的指令", "忽略以上指令", "忽略先前的所有指令", "忽略所有之前的指示", "以前の指示を無視", "これまでの指示を無視",
}

const (
	maxScan   = 256 << 10 // bytes that are looked at
	maxWarned = 5         // phrases told of one text
)

// Phrases returns what in a text reads like orders to a model, at most five of the
// known phrases. Letters are compared without accents, case and width, hidden
// characters and markup are looked through, Cyrillic and Greek letters that look
// Latin count as Latin, and base64 is decoded once. It finds only what is known.
func Phrases(text string) []string {
	if len(text) > maxScan {
		text = text[:maxScan]
	}
	views := []string{flat(text)}
	if !ascii(text) {
		views = append(views, flat(looksLatin.Replace(text)))
	}
	for _, run := range encoded(text) {
		run = standard.Replace(run)
		if plain, err := base64.RawStdEncoding.DecodeString(run[:len(run)/4*4]); err == nil {
			views = append(views, flat(string(plain)))
		}
	}
	var found []string
	for _, p := range phrases {
		for _, v := range views {
			if strings.Contains(v, p) && len(found) < maxWarned {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

const (
	minEncoded = 32 // letters from which on a word is taken for base64
	maxEncoded = 64 // words that are decoded
	maxTag     = 200
)

var standard = strings.NewReplacer("-", "+", "_", "/")

// encoded returns the words of a text that could be base64.
func encoded(text string) (out []string) {
	start := 0
	for i := 0; i <= len(text) && len(out) < maxEncoded; i++ {
		if i < len(text) && base64Letter(text[i]) {
			continue
		}
		if i-start >= minEncoded {
			out = append(out, text[start:i])
		}
		start = i + 1
	}
	return out
}

func base64Letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// flat makes texts that look alike equal: no accents, case, markup, hidden
// characters or more than one space.
func flat(s string) string {
	if !ascii(s) {
		s = norm.NFKD.String(visible.ReplaceAllString(s, ""))
	}
	var b strings.Builder
	b.Grow(len(s))
	space := true
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '<' {
			if n := strings.IndexAny(s[i+1:min(len(s), i+maxTag)], "<>"); n >= 0 && s[i+1+n] == '>' {
				i += n + 2
				continue
			}
		}
		i += size
		switch {
		case unicode.IsSpace(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		case r == '*' || r == '_' || r == '~' || r == '`', r > unicode.MaxASCII && (unicode.Is(unicode.Mn, r) || invisible(r) || r == softHyphen):
			continue
		case r == '’' || r == '‘':
			r = '\''
		}
		space = false
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// visible is what CleanText makes of hidden characters.
var visible = regexp.MustCompile(`⟦U\+[0-9A-F]{4,6}⟧`)

var looksLatin = strings.NewReplacer(
	"а", "a", "е", "e", "о", "o", "р", "p", "с", "c", "х", "x", "у", "y", "і", "i", "ѕ", "s", "ј", "j", "ԁ", "d", "һ", "h", "ո", "n",
	"А", "A", "В", "B", "Е", "E", "К", "K", "М", "M", "Н", "H", "О", "O", "Р", "P", "С", "C", "Т", "T", "Х", "X", "І", "I", "Ѕ", "S",
	"ο", "o", "α", "a", "ι", "i", "υ", "u", "ν", "v", "ρ", "p", "Ι", "I", "Ο", "O", "Α", "A", "Ε", "E",
)
