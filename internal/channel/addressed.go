package channel

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mode says when ombud is addressed in a group.
type Mode string

// The modes.
const (
	Mention Mode = "mention" // when it is named, answered or commanded
	Always  Mode = "always"  // by everything people write
	Never   Mode = "never"   // not at all
)

// Why says by what ombud was addressed.
type Why string

// The reasons.
const (
	Direct    Why = "direct chat"
	Mentioned Why = "mentioned"
	Replied   Why = "reply to a message of ombud's"
	Commanded Why = "command"
	EveryOne  Why = "the group is set to always"
	Pressed   Why = "button"
	NotAsked  Why = ""
)

// Addressed decides whether a message is for ombud, by one rule for all networks. mode is
// that of the message's group; it says nothing of direct chats.
func Addressed(m Received, mode Mode) Why {
	switch {
	case m.Own || m.Bot:
		return NotAsked
	case m.Press != nil:
		return Pressed
	case !m.Group:
		return Direct
	case mode != Mention && mode != Always:
		return NotAsked
	case m.Command:
		return Commanded
	case m.MentionsMe:
		return Mentioned
	case m.QuotesMe:
		return Replied
	case m.Elsewhere:
		return NotAsked
	case mode == Always:
		return EveryOne
	}
	return NotAsked
}

// withoutName is a text without ombud's own name at its beginning: it says whom the text is
// for, and is no part of what is said.
func withoutName(text string, me Me) string {
	for _, name := range append([]string{strings.TrimPrefix(me.Name, "@")}, me.Names...) {
		at, size := len("@"), len("@")+len(name)
		if name == "" || len(text) <= size || text[:at] != "@" || !strings.EqualFold(text[at:size], name) {
			continue
		}
		rest := strings.TrimLeft(text[size:], ",:;!- \t\n")
		next, _ := utf8.DecodeRuneInString(text[size:])
		if rest == "" || unicode.IsLetter(next) || unicode.IsDigit(next) || next == '_' {
			continue // nothing else was said, or the name goes on
		}
		return rest
	}
	return text
}
