package scope

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// maxLen bounds the text of a scope: a long path and its base fit, a payload does not.
const maxLen = 8 << 10

// Scope is one parsed scope: immutable, cheap to copy, safe to share. The zero
// Scope grants nothing. Compare two by their String.
type Scope struct {
	base Base
	q    *qualifier // nil: unqualified
}

// qualifier is what is behind the colon, compiled for its kind.
type qualifier struct {
	text   string // canonical
	glob   string // KindName
	path   []string
	wild   bool        // path holds a wildcard
	host   hostPattern // KindHost, KindURL
	url    urlPattern
	set    []string // sorted
	amount int64    // millionths
}

// Parse reads a scope as a person writes it in a grant, a role or a command.
func Parse(text string) (Scope, error) {
	if err := checkText(text); err != nil {
		return Scope{}, err
	}
	name, qual, qualified := strings.Cut(text, ":")
	base, err := BaseOf(name)
	if err != nil {
		return Scope{}, err
	}
	if !qualified {
		return Scope{base: base}, nil
	}
	q, err := compile(base.Kind(), qual, false)
	if err != nil {
		return Scope{}, malformed(base, qual, err)
	}
	return Scope{base: base, q: q}, nil
}

// ParseRule is Parse for what a person writes to allow or refuse something. It also
// refuses what no call can ever need: a deny of shell.exec:rm would stop nothing, as
// programs are told apart by their path.
func ParseRule(text string) (Scope, error) {
	s, err := Parse(text)
	if err != nil || s.q == nil || s.base.String() != "shell.exec" {
		return s, err
	}
	for _, name := range s.q.set {
		switch {
		case strings.ContainsAny(name, "*?"):
			return Scope{}, malformed(s.base, name, errText("wildcards match no program")).WithHint("shell.exec alone stands for every program")
		case !path.IsAbs(name) || path.Clean(name) != name:
			return Scope{}, malformed(s.base, name, errText("a program is named by its whole path")).
				WithHint("for example shell.exec:/usr/bin/git; ombud caps why AGENT --tool shell.exec --input '{\"argv\":[\"git\"]}' tells it")
		}
	}
	return s, nil
}

// Of returns the scope a call needs for literal: a real path, URL, host, name or
// amount, in which `*` is an ordinary character. A query or fragment of a URL is
// dropped. A base whose qualifier is a set takes one literal per member; a base
// without qualifier and a need for all of a base take none.
func Of(base string, literal ...string) (Scope, error) {
	b, err := BaseOf(base)
	if err != nil {
		return Scope{}, err
	}
	switch {
	case len(literal) == 0:
		return Scope{base: b}, nil
	case len(literal) > 1 && b.Kind() != KindSet:
		return Scope{}, fault.New(fault.Invalid, "scope %s takes one qualifier, got %d", base, len(literal))
	}
	for _, l := range literal {
		if err := checkText(l); err != nil {
			return Scope{}, malformed(b, l, err)
		}
		if b.Kind() == KindSet && strings.Contains(l, ",") {
			return Scope{}, malformed(b, l, errText("a member of a set cannot hold a comma"))
		}
	}
	text := strings.Join(literal, ",")
	q, err := compile(b.Kind(), text, true)
	if err != nil {
		return Scope{}, malformed(b, text, err)
	}
	return Scope{base: b, q: q}, nil
}

// Must is Parse for texts fixed in the code; it panics on a malformed one.
func Must(text string) Scope {
	s, err := Parse(text)
	if err != nil {
		panic("scope: " + err.Error())
	}
	return s
}

// Unqualified returns the scope that covers all of b.
func Unqualified(b Base) Scope { return Scope{base: b} }

// Base returns the base, zero for the zero Scope.
func (s Scope) Base() Base { return s.base }

// IsZero reports whether s is no scope at all.
func (s Scope) IsZero() bool { return s.base == 0 }

// Qualified reports whether s is limited to a part of its base.
func (s Scope) Qualified() bool { return s.q != nil }

// String returns the canonical text, which Parse reads back to an equal scope.
func (s Scope) String() string {
	if s.q == nil {
		return s.base.String()
	}
	return s.base.String() + ":" + s.q.text
}

// MarshalText writes the canonical text.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what Parse reads.
func (s *Scope) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Covers reports whether everything need stands for is within s.
func (s Scope) Covers(need Scope) bool {
	switch {
	case s.base == 0 || s.base != need.base:
		return false
	case s.q == nil:
		return true
	case need.q == nil:
		return false
	}
	held, want := s.q, need.q
	switch s.base.Kind() {
	case KindName:
		return matchGlob(held.glob, want.glob)
	case KindPath:
		return matchPath(held.path, want.path)
	case KindURL:
		return held.url.covers(&want.url) && held.host.covers(want.host)
	case KindHost:
		return held.host.covers(want.host)
	case KindSet:
		return subset(want.set, held.set)
	case KindAmount:
		return want.amount <= held.amount
	}
	return false
}

// Overlaps reports whether something may be within both s and other. It errs to
// yes, so a rule that takes away never misses a part of a wide need.
func (s Scope) Overlaps(other Scope) bool {
	switch {
	case s.base == 0 || s.base != other.base:
		return false
	case s.q == nil || other.q == nil:
		return true
	}
	a, b := s.q, other.q
	switch s.base.Kind() {
	case KindName:
		return overlapGlob(a.glob, b.glob)
	case KindPath:
		return overlapPath(a, b)
	case KindURL:
		return a.url.overlaps(&b.url) && a.host.overlaps(b.host)
	case KindHost:
		return a.host.overlaps(b.host)
	case KindSet:
		return common(a.set, b.set)
	}
	return true // two amounts always share the small ones
}

// compile reads a qualifier of one kind. Literal means that it names one real
// thing: wildcards in it are ordinary characters.
func compile(k Kind, text string, literal bool) (*qualifier, error) {
	if text == "" {
		return nil, errText("the qualifier is empty")
	}
	q := &qualifier{}
	var err error
	switch k {
	case KindNone:
		return nil, errText("this base takes no qualifier")
	case KindName:
		if strings.TrimSpace(text) != text {
			return nil, errText("a name neither begins nor ends with a space")
		}
		q.glob, err = compileGlob(text, literal)
		q.text = globText(q.glob)
	case KindPath:
		q.path, err = compilePath(text, literal)
		q.text, q.wild = pathText(q.path), slices.ContainsFunc(q.path, wild)
	case KindURL:
		q.url, q.host, err = compileURL(text, literal)
		q.text = q.url.text(q.host)
	case KindHost:
		q.host, err = compileHost(text, literal)
		q.text = q.host.String()
	case KindSet:
		q.set, err = compileSet(text)
		q.text = strings.Join(q.set, ",")
	case KindAmount:
		q.amount, err = compileAmount(text)
		q.text = amountText(q.amount)
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// errText is the reason why a qualifier is malformed.
type errText string

func (e errText) Error() string { return string(e) }

func malformed(b Base, qual string, cause error) *fault.Error {
	return fault.New(fault.Invalid, "scope %s: malformed %s %q: %w", b, b.Kind(), clip(qual), cause)
}

// checkText refuses what no scope holds. It also keeps the two control
// characters that stand for wildcards in compiled patterns out of the text.
func checkText(text string) error {
	if len(text) > maxLen {
		return fault.New(fault.Invalid, "a scope of %d bytes is over the limit of %d", len(text), maxLen)
	}
	if !utf8.ValidString(text) {
		return fault.New(fault.Invalid, "a scope is not valid UTF-8")
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return fault.New(fault.Invalid, "a scope holds a control character")
	}
	return nil
}
