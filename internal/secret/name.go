package secret

import (
	"regexp"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*([._-][a-z0-9]+)*$`)

const maxName = 64

// CheckName refuses what is no name of a secret. The error does not repeat it: it may
// be the value.
func CheckName(name string) error {
	if len(name) <= maxName && nameForm.MatchString(name) {
		return nil
	}
	err := fault.New(fault.Invalid, "this is not a name of a secret: a to z and 0 to 9, single . _ - between, a letter first, at most %d", maxName)
	if near := strings.ToLower(name); near != name && len(near) <= maxName && nameForm.MatchString(near) {
		return err.WithHint("write it in small letters")
	}
	return err.WithHint("for example github-token; the value never stands on the command line")
}

const refPrefix = "secret:"

// ParseRef reads "secret:NAME". is is false for any other text; the error is for a
// reference whose name is none.
func ParseRef(text string) (name string, is bool, err error) {
	name, is = strings.CutPrefix(text, refPrefix)
	if !is {
		return "", false, nil
	}
	return name, true, CheckName(name)
}

// Text is a text in which names of secrets stand for their values.
type Text struct {
	parts []string // plain, name, plain, name, …, plain
}

const open, shut = "{{secret:", "}}"

// ParseText reads a text with "{{secret:NAME}}" in it. Other braces mean nothing.
func ParseText(text string) (Text, error) {
	var t Text
	for {
		plain, rest, found := strings.Cut(text, open)
		t.parts = append(t.parts, plain)
		if !found {
			return t, nil
		}
		name, after, closed := strings.Cut(rest, shut)
		if !closed {
			return Text{}, fault.New(fault.Invalid, "%s is not closed by %s", open, shut)
		}
		if err := CheckName(name); err != nil {
			return Text{}, err
		}
		t.parts = append(t.parts, name)
		text = after
	}
}

// Names lists the secrets of the text, each once.
func (t Text) Names() []string {
	var out []string
	seen := map[string]bool{}
	for i := 1; i < len(t.parts); i += 2 {
		if name := t.parts[i]; !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

// Fill puts the values into the text. It is called where the text is sent.
func (t Text) Fill(value func(name string) (Value, error)) (string, error) {
	var b strings.Builder
	for i, part := range t.parts {
		if i%2 == 1 {
			v, err := value(part)
			if err != nil {
				return "", err
			}
			part = v.Reveal()
		}
		b.WriteString(part)
	}
	return b.String(), nil
}
