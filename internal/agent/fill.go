package agent

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
)

// maxFormText bounds what a chat is shown of a form, in bytes. The inbox shows all of it.
const maxFormText = 3000

// filling is a yes with what is filled in.
var filling = regexp.MustCompile(`(?is)^/?approve\s+(.+)$`)

// fill takes "approve 3 name=Ada" as the answer to the question with a form that the
// number or the id names; where one question with a form is open, "approve name=Ada"
// too. Anything else is not for it.
func (a *Agents) fill(ctx context.Context, tx *db.Tx, conv Conversation, in Inbound) (notice string, handled bool, err error) {
	said := filling.FindStringSubmatch(strings.TrimSpace(in.Text))
	if said == nil {
		return "", false, nil
	}
	words := form.Split(said[1])
	q, words, err := a.filled(ctx, tx, conv, words)
	if err != nil || len(words) == 0 {
		return "", false, err
	}
	f, err := form.Parse(q.Form)
	if err != nil {
		return "", true, err
	}
	answer, err := f.Words(words)
	if fault.Is(err, fault.Invalid) {
		notice, err = a.unfilled(ctx, tx, q, err)
		return notice, true, err
	}
	if err != nil {
		return "", true, err
	}
	notice, err = a.resolveTx(ctx, tx, q, approval.Reply{Decision: approval.Approve, Answer: answer}, actorOf(in))
	return notice, true, err
}

// filled is the question with a form that words are an answer to, and these words
// without its name; no words if there is none.
func (a *Agents) filled(ctx context.Context, tx *db.Tx, conv Conversation, words []string) (q approval.Approval, rest []string, err error) {
	open, err := a.openQuestions(ctx, tx, conv)
	if err != nil || len(words) == 0 {
		return q, nil, err
	}
	var formed []approval.Approval
	for _, x := range open {
		if x.Form == nil {
			continue
		}
		n, err := a.Approvals.Number(ctx, tx, x)
		if err != nil {
			return q, nil, err
		}
		if words[0] == strconv.FormatInt(n, 10) || strings.EqualFold(words[0], x.ID) {
			return x, words[1:], nil
		}
		formed = append(formed, x)
	}
	if len(formed) != 1 {
		return q, nil, nil
	}
	f, err := form.Parse(formed[0].Form)
	if err != nil || !f.Names(words[0]) {
		return q, nil, err
	}
	return formed[0], words, nil
}

// unfilled says what is wrong with an answer, and how one is written.
func (a *Agents) unfilled(ctx context.Context, tx *db.Tx, q approval.Approval, why error) (string, error) {
	n, err := a.Approvals.Number(ctx, tx, q)
	if err != nil {
		return "", err
	}
	text := "Nothing was decided, " + why.Error() + "."
	if hint := fault.HintOf(why); hint != "" {
		text += " (" + hint + ")"
	}
	return fmt.Sprintf("%s\n%s\nWrite: `%s`, or: `deny %d`. A value with spaces needs quotes.", text, formText(q), inWords(q, n), n), nil
}

// formText is what there is to fill in for a question, as it is shown in a chat. It is
// fenced, since most of it is a stranger's; no line of it begins with what ends a fence.
func formText(q approval.Approval) string {
	f, err := form.Parse(q.Form)
	if err != nil || len(f.Fields) == 0 {
		return "" // whoever approves it is told
	}
	var b strings.Builder
	b.WriteString("```\n")
	for i, line := range f.Lines() {
		if b.Len()+len(line) > maxFormText && i > 0 {
			fmt.Fprintf(&b, "and %d more, which ombud inbox shows\n", len(f.Fields)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	b.WriteString("```")
	return b.String()
}

// inWords is the message that answers a question with a form, with words in capitals
// for what is to be filled in.
func inWords(q approval.Approval, n int64) string {
	return strings.Join(append([]string{"approve", strconv.FormatInt(n, 10)}, sample(q)...), " ")
}

// sample are the words of an answer to a question that cannot be approved without one;
// none if it can.
func sample(q approval.Approval) []string {
	f, err := form.Parse(q.Form)
	if q.Form == nil || err != nil || len(f.Missing()) == 0 {
		return nil
	}
	return f.Example()
}
