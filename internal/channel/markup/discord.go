package markup

import (
	"strings"
	"unicode/utf8"
)

const discordLimit = 2000 // UTF-16 units: never less than the characters Discord counts

// Discord makes messages of Markdown in Discord's own, of at most 2,000 UTF-16 units. What
// Discord would take for a mark is escaped, and @everyone, @here and <@…> are broken up.
func Discord(md string) []Piece {
	d := dialect{bullets: []string{"-"}, schemes: []string{"https", "http", "mailto"}, maxURL: 900, columns: screen, quiet: true, angles: true}
	p := marks{
		styles: [3]string{"**", "_", "~~"},
		tight:  "_",
		langs:  true,
		link:   discordLink,
		code:   discordCode,
		escape: discordEscape,
		raw:    unfence,
	}
	plain := p
	plain.plain = true
	plain.link = spelled
	return render(md, &d, &p, &plain, utf16s, discordLimit)
}

// discordLink writes a link. Discord makes none of an address that is no web page's.
func discordLink(label, url string) string {
	if label == url || !strings.HasPrefix(strings.ToLower(url), "http") {
		return spelled(label, url)
	}
	return "[" + label + "](" + url + ")"
}

func discordCode(text string) (string, bool) {
	if !strings.Contains(text, "`") {
		return "`" + text + "`", true
	}
	return "`` " + text + " ``", !strings.Contains(text, "``")
}

// discordEscape puts a backslash before what Discord would take for a mark. An address
// stays as it is: it would lead elsewhere.
func discordEscape(e *edge, text string) string {
	var b strings.Builder
	if e.prev == 0 {
		n := blockMark(text)
		b.WriteString(text[:n])
		if n < len(text) && strings.IndexByte("#>-+.)", text[n]) >= 0 {
			b.WriteByte('\\')
		}
		text = text[n:]
	}
	for text != "" {
		if n := address(text); n > 0 {
			b.WriteString(text[:n])
			text = text[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		if strings.ContainsRune("\\*_~`|[]<", r) {
			b.WriteByte('\\')
		}
		b.WriteString(text[:size])
		text = text[size:]
	}
	return b.String()
}

// blockMark is where in a text, at the start of a line, the character stands that would
// make it a heading, a quote or a list; 0 if it may be the first.
func blockMark(text string) int {
	n := 0
	for n < len(text) && n < 10 && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	if n > 0 && n < len(text) && (text[n] == '.' || text[n] == ')') {
		return n
	}
	return 0
}
