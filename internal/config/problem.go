package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Source says where a value came from.
type Source struct {
	Kind   Kind
	Name   string // file, variable or flag
	Line   int    // of a file, from 1
	Column int    // of a file, from 1, in characters
}

// Kind is a layer. Later ones win.
type Kind string

// The layers. FromFound is a variable of somebody else, such as OLLAMA_HOST: it
// replaces a default and nothing a person wrote for ombud.
const (
	FromDefault     Kind = "default"
	FromFound       Kind = "found"
	FromFile        Kind = "file"
	FromEnvironment Kind = "environment"
	FromFlag        Kind = "flag"
)

func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		return fmt.Sprintf("%s:%d:%d", s.Name, s.Line, s.Column)
	case FromFound:
		return "environment " + s.Name
	case FromEnvironment, FromFlag:
		return string(s.Kind) + " " + s.Name
	}
	return string(s.Kind)
}

// Problem is one thing that is wrong.
type Problem struct {
	At      Source
	Key     string // "" when no key is concerned
	Msg     string
	Near    string // the nearest valid name, "" if none is near
	Excerpt string // the line with a mark under the column, for broken YAML
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.At.String() + ": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Msg)
	if p.Near != "" {
		fmt.Fprintf(&b, "; did you mean %q?", p.Near)
	}
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	return redact(b.String())
}

// Error is every problem of one load, those of the file first and by line.
type Error struct{ Problems []Problem }

const shownProblems = 20

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems in the configuration", len(e.Problems))
	for i, p := range e.Problems {
		if i == shownProblems {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Problems)-i)
			break
		}
		b.WriteString("\n  " + strings.ReplaceAll(p.String(), "\n", "\n  "))
	}
	return b.String()
}

// asFault returns nil for no problems, else fault.Config around an Error.
func asFault(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	rank := func(p Problem) int {
		if p.At.Kind == FromFile {
			return p.At.Line
		}
		return 1 << 30
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return a.At.Column - b.At.Column
	})
	return fault.New(fault.Config, "%w", &Error{problems}).
		WithHint("`ombud config sample` prints every key with its meaning")
}

// secretText matches what vendors' keys look like. It need not find them all:
// it catches the common slip of a key pasted where its name belongs.
var secretText = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{8,}|\b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bxox[abeprs]-[A-Za-z0-9-]{8,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY`)

// urlPassword matches the password of a URL, in its group.
var urlPassword = regexp.MustCompile(`://[^\s/?#:@]*:([^\s/]+)@`)

// queryPassword matches a password given as a parameter of a URL, in its group.
var queryPassword = regexp.MustCompile(`(?i)[?&\s](?:ssl)?password=([^&\s]+)`)

const hidden = "(hidden)"

// redact takes secrets out of a text that is about to be shown.
func redact(s string) string {
	s = secretText.ReplaceAllString(s, hidden)
	for _, re := range []*regexp.Regexp{urlPassword, queryPassword} {
		for _, m := range slices.Backward(re.FindAllStringSubmatchIndex(s, -1)) {
			s = s[:m[2]] + hidden + s[m[3]:]
		}
	}
	return s
}
