package markup

import "strings"

const slackLimit = 3800 // characters; Slack takes 40,000 and tears what is longer than 4,000

// Slack makes messages of Markdown in Slack's mrkdwn, of at most 3,800 UTF-16 units. &, <
// and > are escaped, so that nothing in a text is one of Slack's commands, and @channel,
// @here and @everyone are broken up. Slack knows no escape for its other marks: those that
// it would take for formatting get a zero-width space.
func Slack(md string) []Piece {
	d := dialect{bullets: dots, schemes: []string{"https", "http", "mailto"}, maxURL: 600, columns: screen, quiet: true}
	p := marks{
		styles: [3]string{"*", "_", "~"},
		tight:  "*_~`",
		link:   slackLink,
		code: func(text string) (string, bool) {
			return "`" + slackEscapes.Replace(text) + "`", !strings.Contains(text, "`")
		},
		escape: func(e *edge, text string) string {
			start := ""
			if e.prev == 0 && !e.lead && strings.HasPrefix(text, ">") {
				start = zwsp // Slack takes &gt; for a quote too
			}
			return start + slackEscapes.Replace(muffle(e, text, "*_~`"))
		},
		raw: func(text string) string { return slackEscapes.Replace(unfence(text)) },
	}
	plain := p
	plain.plain = true
	plain.link = func(label, url string) string { return spelled(label, slackURL(url)) }
	return render(md, &d, &p, &plain, utf16s, slackLimit)
}

var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackLink(label, url string) string {
	url = slackURL(url)
	if label == url {
		return "<" + url + ">"
	}
	return "<" + url + "|" + strings.ReplaceAll(label, "|", "¦") + ">"
}

func slackURL(url string) string { return strings.ReplaceAll(url, "&", "&amp;") }

// spelled is a link where none can be hidden behind a text.
func spelled(label, url string) string {
	if label == url || "mailto:"+label == url {
		return label
	}
	return label + " (" + url + ")"
}
