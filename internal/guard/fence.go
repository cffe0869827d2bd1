package guard

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

// Fence puts what others wrote between marks that they cannot write themselves: a
// model is told that what stands between them is data. The marks hold a random
// word. It is recorded with the context it was made for, so that a repeat shows a
// model the same text, and is used for that context only.
//
// A fence stops nothing by itself, for a model may obey what it reads all the same.
// What such a model can do then is bounded by labels.
type Fence struct{ mark string }

// NewFence returns a fence with a fresh mark.
func NewFence() Fence {
	var b [5]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("guard: crypto/rand does not fail: " + err.Error())
	}
	return Fence{hex.EncodeToString(b[:])}
}

// FenceOf returns the fence with a recorded mark.
func FenceOf(mark string) Fence { return Fence{mark} }

// Mark returns the random word.
func (f Fence) Mark() string { return f.mark }

const maxWho = 80 // bytes of who wrote it

// Wrap returns text as data of who. Neither can end the fence: their delimiters are
// replaced, hidden characters are made visible, and the mark itself is taken out.
func (f Fence) Wrap(who, text string) string {
	who, _ = CutText(strings.Join(strings.Fields(f.defang(who)), " "), maxWho)
	return "«data " + f.mark + " from " + who + "»\n" + f.defang(text) + "\n«end of data " + f.mark + "»"
}

// delimiters are what could be read as the marks, or as those between the parts of
// a prompt.
var delimiters = strings.NewReplacer("«", "<", "»", ">", "≪", "<", "≫", ">", "《", "<", "》", ">", "⟪", "<", "⟫", ">", "〈", "<", "〉", ">")

var promptTokens = regexp.MustCompile(`(?i)<\|[a-z0-9_]+\|>|\[/?inst\]|<</?sys>>|</?s>`)

func (f Fence) defang(text string) string {
	text = delimiters.Replace(CleanText(text))
	if f.mark != "" {
		text = strings.ReplaceAll(text, f.mark, strings.Repeat("·", 5))
	}
	return promptTokens.ReplaceAllStringFunc(text, func(t string) string { return t[:1] + " " + t[1:] })
}

var fenced = regexp.MustCompile(`(?s)^«data ([0-9a-f]+) from [^»\n]*»\n(.*)\n«end of data ([0-9a-f]+)»$`)

// Unwrap returns what a fence that encloses all of text holds, and text itself if
// none does. It is for showing data to a person, who needs no marks.
func Unwrap(text string) string {
	m := fenced.FindStringSubmatch(text)
	if m == nil || m[1] != m[3] {
		return text
	}
	return m[2]
}
