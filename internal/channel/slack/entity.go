package slack

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

// Slack keeps a text with three characters escaped (&amp; &lt; &gt;), and what is a link
// or a name between < and >. So a < that is there begins one, and what a person typed
// can never look like one.

// unescape takes the escapes back, once: a text about &lt; stays one.
var unescape = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")

// parts calls text for what stands between entities, as it is kept, and entity for what
// is inside of one. An < that nothing closes is text.
func parts(s string, text, entity func(string)) {
	for s != "" {
		open := strings.IndexByte(s, '<')
		if open < 0 {
			text(s)
			return
		}
		end := strings.IndexAny(s[open+1:], "<>\n")
		if end < 0 || s[open+1+end] != '>' || end == 0 {
			text(s[:open+1])
			s = s[open+1:]
			continue
		}
		if open > 0 {
			text(s[:open])
		}
		entity(s[open+1 : open+1+end])
		s = s[open+end+2:]
	}
}

// mentioned calls fn for each user that a text names, with the name that stands there.
func mentioned(s string, fn func(id, label string)) {
	parts(s, func(string) {}, func(e string) {
		if ref, label, _ := strings.Cut(e, "|"); strings.HasPrefix(ref, "@") && isID(ref[1:]) {
			fn(ref[1:], label)
		}
	})
}

// isID reports whether s can be an id of Slack's.
func isID(s string) bool {
	if len(s) < 2 || len(s) > 40 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
}

// plain turns a text as Slack keeps it into one for people. name and room give the names
// of users and channels, "" if they are not known.
func plain(s string, name, room func(id string) string) string {
	var b strings.Builder
	parts(s, func(t string) { _, _ = unescape.WriteString(&b, t) }, func(e string) {
		_, _ = unescape.WriteString(&b, spoken(e, name, room))
	})
	out := b.String()
	if !utf8.ValidString(out) {
		return strings.ToValidUTF8(out, "\uFFFD")
	}
	return out
}

// spoken is what an entity means, still escaped.
func spoken(e string, name, room func(id string) string) string {
	ref, label, _ := strings.Cut(e, "|")
	switch {
	case strings.HasPrefix(e, "@"):
		return "@" + cmp.Or(label, escaped(name(ref[1:])), ref[1:])
	case strings.HasPrefix(e, "#"):
		return "#" + cmp.Or(label, escaped(room(ref[1:])), ref[1:])
	case strings.HasPrefix(e, "!"):
		return special(ref[1:], label)
	}
	bare := strings.TrimPrefix(ref, "mailto:")
	bare = strings.TrimPrefix(bare, "tel:")
	if label == "" || label == ref || label == bare || strings.TrimPrefix(strings.TrimPrefix(ref, "https://"), "http://") == label {
		return bare
	}
	return label + " (" + bare + ")"
}

// special is a group of people, or a time.
func special(ref, label string) string {
	kind, _, _ := strings.Cut(ref, "^")
	switch kind {
	case "here", "channel", "everyone":
		return "@" + kind
	case "subteam":
		return cmp.Or(label, "@group")
	}
	return cmp.Or(label, kind)
}

func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// withoutName takes names of ombud off the beginning of a text, as Slack keeps it.
func withoutName(s string, is func(id string) bool) string {
	for {
		s = strings.TrimLeft(s, " \t\n:,\u00a0")
		end := strings.IndexByte(s, '>')
		if !strings.HasPrefix(s, "<@") || end < 0 {
			return s
		}
		id, _, _ := strings.Cut(s[2:end], "|")
		if !is(id) {
			return s
		}
		s = s[end+1:]
	}
}
