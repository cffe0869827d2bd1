package memory

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const maxTerm = 64 // bytes of one term; a longer word is cut

// terms returns the terms of a text, in order and with repeats.
//
// A word is a run of letters, marks and digits, in lower case, Latin, Greek and
// Cyrillic without accents, English without its endings. Words that say nothing
// ("the", "what", "ist") are left out. Parts of a word with hyphens or dots count
// by themselves and, if there are two or three, also together: "Wi-Fi" is found
// by "wifi". Writing without spaces between words becomes pairs of characters,
// and Chinese characters also count singly.
func terms(text string) []string {
	t := tokeniser{}
	for _, r := range strings.ToLower(norm.NFKC.String(text)) {
		t.rune(r)
	}
	t.endWord()
	t.endCompound()
	return t.out
}

type tokeniser struct {
	out   []string
	word  []rune
	wide  bool // of word
	latin bool // the last rune lost its accents
	parts []string
}

func (t *tokeniser) rune(r rune) {
	switch {
	case unicode.IsMark(r) && (len(t.word) == 0 || t.latin):
		return // an accent, or nothing to stand on
	case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == 'ー':
		t.letter(r)
	case r == '\'' || r == '’':
		// Keeps "don't" and "Anna's" one word; plain takes the ending off.
		if len(t.word) > 0 && !t.wide {
			t.word, t.latin = append(t.word, '\''), false
		}
	case (r == '-' || r == '.' || r == '_' || r == '/') && len(t.word) > 0:
		t.endWord()
	default:
		t.endWord()
		t.endCompound()
	}
}

func (t *tokeniser) letter(r rune) {
	if wide := isWide(r); wide != t.wide {
		t.endWord()
		if wide {
			t.endCompound()
		}
		t.wide = wide
	}
	folded, latin := fold(r)
	t.latin = latin
	t.word = append(t.word, folded...)
}

// endWord takes the word that has been read.
func (t *tokeniser) endWord() {
	word, wide := t.word, t.wide
	t.word, t.wide, t.latin = t.word[:0], false, false
	switch {
	case len(word) == 0:
	case wide:
		t.pairs(word)
	default:
		if w := plain(string(word)); w != "" {
			t.parts = append(t.parts, w)
			t.add(w)
		}
	}
}

// endCompound adds the parts of a compound together.
func (t *tokeniser) endCompound() {
	if n := len(t.parts); n == 2 || n == 3 {
		t.add(strings.Join(t.parts, ""))
	}
	t.parts = t.parts[:0]
}

func (t *tokeniser) pairs(run []rune) {
	for i, r := range run {
		if len(run) == 1 || unicode.Is(unicode.Han, r) {
			t.out = append(t.out, string(r))
		}
		if i+1 < len(run) {
			t.out = append(t.out, string(run[i:i+2]))
		}
	}
}

func (t *tokeniser) add(w string) {
	if stopWords[w] {
		return
	}
	w = stem(w)
	if len(w) > maxTerm {
		end := maxTerm
		for !utf8.RuneStart(w[end]) {
			end--
		}
		w = w[:end]
	}
	t.out = append(t.out, w)
}

// plain drops apostrophes with what English puts after them, but those within a
// name stay out of sight only: "anna's" is anna, "o'neill" is oneill.
func plain(w string) string {
	w = strings.Trim(w, "'")
	for _, end := range []string{"'s", "'ll", "'re", "'ve", "'d", "'m"} {
		if cut, ok := strings.CutSuffix(w, end); ok {
			w = cut
			break
		}
	}
	return strings.ReplaceAll(w, "'", "")
}

// isWide reports letters of writing that puts no spaces between words, and
// Hangul, whose words carry endings.
func isWide(r rune) bool {
	return r >= 0x0E00 && (r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// fold takes the accent off a letter of a script where words are found without.
func fold(r rune) (folded []rune, latin bool) {
	if r < utf8.RuneSelf {
		return []rune{r}, true
	}
	if !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic) {
		return []rune{r}, false
	}
	if s, ok := special[r]; ok {
		return []rune(s), true
	}
	first, _ := utf8.DecodeRuneInString(norm.NFD.String(string(r)))
	return []rune{first}, true
}

// special are letters that do not come apart.
var special = map[rune]string{'ß': "ss", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'æ': "ae", 'œ': "oe", 'ı': "i", 'ς': "σ"}

// stem takes the commonest English endings off, so that both "living" and "lives"
// are "liv". It is light on purpose: what it leaves is a key, never shown.
func stem(w string) string {
	if len(w) < 4 || strings.ContainsFunc(w, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return w
	}
	w = singular(w)
	for _, end := range []string{"ing", "ed", "ly"} {
		if cut, ok := strings.CutSuffix(w, end); ok && len(cut) >= 3 && strings.ContainsAny(cut, "aeiouy") {
			w = undouble(cut)
			break
		}
	}
	if len(w) > 3 {
		w = strings.TrimSuffix(w, "e")
	}
	if cut, ok := strings.CutSuffix(w, "y"); ok && len(cut) >= 3 {
		w = cut + "i"
	}
	return w
}

func singular(w string) string {
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "shes"):
		return w[:len(w)-2]
	case strings.HasSuffix(w, "ss"), strings.HasSuffix(w, "us"), strings.HasSuffix(w, "is"):
		return w
	}
	return strings.TrimSuffix(w, "s")
}

// undouble: "running" is "runn" without its ending, and "run".
func undouble(w string) string {
	n := len(w)
	if n > 2 && w[n-1] == w[n-2] && !strings.ContainsRune("aeiouls", rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}

var stopWords = wordSet(`a about after all also am an and any are as at be been before being but by can could did do does doing
	for from had has have having he her here him his how i if in into is it its just me my no not of on or our out please she so
	some tell than that the their them then there these they this those to up us was we were what whats when where which who whom
	whose why will with would you your yours mine ours dont im
	aber als am an auch auf aus bei bin bis das dass dem den der des die dir doch du ein eine einem einen einer er es fur hat
	haben ich ihr im in ist ja kann mein meine mich mir mit nach nicht noch nur oder sein seine sich sie sind und uns unser von
	vor wann war warum was wer wie wir wird wo zu zum zur`)

func wordSet(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}
