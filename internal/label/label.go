// Package label holds the two things ombud remembers about every part of a
// context: who wrote it (source) and who may read it (audience). A label is
// given where content enters and travels with it through history, memory, files
// and tool results. The rule that reads labels lives in package policy.
package label

import (
	"encoding/json"
	"slices"
	"strings"
)

// Source says who wrote a part: Operator, Own, Memory or Untrusted(who).
type Source string

// The fixed sources.
const (
	Operator Source = "operator" // the person ombud works for, on a verified connection
	Own      Source = "own"      // ombud itself: its prompts, its clock, its own replies
	Memory   Source = "memory"   // recalled from memory without a source of its own
)

const untrustedPrefix = "untrusted:"

// Untrusted returns the source of content written by somebody else: a sender, a
// web origin, a file nobody vouches for.
func Untrusted(who string) Source { return Source(untrustedPrefix + who) }

// Trusted reports whether s is one of the fixed sources.
func (s Source) Trusted() bool { return s == Operator || s == Own || s == Memory }

// Audience says who may read a part: Anyone, OperatorOnly or Conversation(id).
type Audience string

// The fixed audiences.
const (
	Anyone       Audience = "public"
	OperatorOnly Audience = "operator"
)

const conversationPrefix = "conversation:"

// Conversation returns the audience of everybody in one conversation.
func Conversation(id string) Audience { return Audience(conversationPrefix + id) }

// Label is what a context as a whole carries: every source that is in it and
// every audience that limits it. The zero Label is that of an empty context.
type Label struct {
	Sources   []Source   `json:"sources,omitempty"`
	Audiences []Audience `json:"audiences,omitempty"`
}

// Of returns the label of one part.
func Of(s Source, a Audience) Label {
	return Label{Sources: []Source{s}, Audiences: []Audience{a}}
}

// Join returns the label of parts seen together: the union of both sides. It is
// commutative, associative and idempotent; nothing is ever taken away.
func Join(labels ...Label) Label {
	var out Label
	for _, l := range labels {
		out.Sources = append(out.Sources, l.Sources...)
		out.Audiences = append(out.Audiences, l.Audiences...)
	}
	slices.Sort(out.Sources)
	slices.Sort(out.Audiences)
	out.Sources = slices.Compact(out.Sources)
	out.Audiences = slices.Compact(out.Audiences)
	return out
}

// Has reports whether all of m is in l: joining it would change nothing.
func (l Label) Has(m Label) bool {
	for _, s := range m.Sources {
		if !slices.Contains(l.Sources, s) {
			return false
		}
	}
	for _, a := range m.Audiences {
		if !slices.Contains(l.Audiences, a) {
			return false
		}
	}
	return true
}

// Tainted reports whether anything in the context was written by somebody the
// operator did not vouch for.
func (l Label) Tainted() bool {
	return slices.ContainsFunc(l.Sources, func(s Source) bool { return !s.Trusted() })
}

// String lists the sources, then the audiences, for people.
func (l Label) String() string {
	parts := make([]string, 0, len(l.Sources)+len(l.Audiences))
	for _, s := range l.Sources {
		parts = append(parts, "from "+string(s))
	}
	for _, a := range l.Audiences {
		parts = append(parts, "for "+string(a))
	}
	return strings.Join(parts, ", ")
}

// Marshal returns l as JSON for a stored column.
func (l Label) Marshal() []byte {
	b, err := json.Marshal(l)
	if err != nil {
		panic("label: two string slices do not marshal: " + err.Error())
	}
	return b
}
