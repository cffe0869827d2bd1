package agent

import (
	"regexp"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
)

// claim is a way to say that something was done, and the tools that do it.
type claim struct {
	said  *regexp.Regexp
	tools []string // prefixes of tool names
}

func saying(verbs string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|[.!?\n]\s*|\b(?:and|so|then)\s+)(?:ok(?:ay)?[,.!]?\s+|done[,.:!]?\s+)?i(?:'ve|’ve| have)?(?: just| now| also| already)? (?:` + verbs + `)\b`)
}

// claims are the first person's claims we can check. They are few on purpose: a
// reply that is data, a quotation or a plan must never be held up.
var claims = []claim{
	{saying(`remembered|memorized|stored|noted`), []string{"memory."}},
	{saying(`sent|emailed|e-mailed|messaged`), []string{"comms.", "email.", "send", "outbox."}},
	{saying(`written|wrote|saved|created|updated`), []string{"fs.", "memory.", "shell."}},
	{saying(`deleted|removed|erased`), []string{"fs.", "memory.", "shell."}},
	{saying(`run|ran|executed`), []string{"shell."}},
	{saying(`scheduled|set a reminder|set the reminder`), []string{"remind.", "schedule."}},
}

// unbacked returns what to say to a model whose answer claims an action that no
// tool did in this turn, or "".
func (t *turn) unbacked(text string) string {
	text = ownWords(text)
	for _, c := range claims {
		said := strings.TrimSpace(c.said.FindString(text))
		if said == "" || t.did(c.tools) {
			continue
		}
		return "[ombud] You say " + quoted(said) + ", but no tool that does this was run in this turn. " +
			"Do it with a tool now, or say plainly that it was not done."
	}
	return ""
}

// ownWords is text without what it shows: code, quotations, and whatever a line
// that ends with a colon leads in, such as a draft.
func ownWords(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text) {
		plain := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(plain, "```"), strings.HasPrefix(plain, "~~~"):
			code = !code
		case code, strings.HasPrefix(plain, ">"):
		default:
			b.WriteString(line)
			if strings.HasSuffix(plain, ":") {
				return b.String()
			}
		}
	}
	return b.String()
}

func (t *turn) did(prefixes []string) bool {
	for _, res := range t.ran {
		if res.Status != act.OK {
			continue
		}
		for _, p := range prefixes {
			if strings.HasPrefix(res.Tool, p) {
				return true
			}
		}
	}
	return false
}

func quoted(s string) string { return "“" + strings.Trim(s, ".!?\n ") + "”" }
