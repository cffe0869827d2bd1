package markup

import "strings"

const whatsAppLimit = 4096 // bytes

// WhatsApp makes messages of Markdown with WhatsApp's marks, of at most maxBytes bytes of
// UTF-8; 4,096 if maxBytes is 0 or less, and never less than 256. WhatsApp knows no escape:
// marks that it would take for formatting get a zero-width space.
func WhatsApp(md string, maxBytes int) []Piece {
	if maxBytes <= 0 {
		maxBytes = whatsAppLimit
	}
	maxBytes = max(maxBytes, minLimit)
	d := dialect{bullets: dots, schemes: []string{"https", "http", "mailto"}, maxURL: maxBytes / 4, columns: phone}
	p := marks{
		styles: [3]string{"*", "_", "~"},
		tight:  "*_~`",
		link:   spelled,
		code: func(text string) (string, bool) {
			return "`" + text + "`", !strings.Contains(text, "`")
		},
		escape: func(e *edge, text string) string {
			start := ""
			if e.prev == 0 && !e.lead && (strings.HasPrefix(text, "> ") || strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "* ")) {
				start = zwsp
			}
			return start + muffle(e, text, "*_~`")
		},
		raw: unfence,
	}
	plain := p
	plain.plain = true
	return render(md, &d, &p, &plain, octets, maxBytes)
}
