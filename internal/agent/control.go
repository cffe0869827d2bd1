package agent

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// control settles a control message in the transaction of its intake. It reports
// whether the message was one.
func (a *Agents) control(ctx context.Context, tx *db.Tx, conv Conversation, in Inbound) (notice string, handled bool, err error) {
	word := strings.ToLower(strings.Trim(strings.TrimSpace(in.Text), ".!"))
	switch word {
	case "/stop":
		notice, err = a.stop(ctx, tx, conv)
		return notice, true, err
	case "/new":
		err = a.ResetTx(ctx, tx, conv.ID)
		return "A fresh start: what was said before is kept, but no longer told to the model.", true, err
	case "/status":
		notice, err = a.status(ctx, tx, conv)
		return notice, true, err
	case "yes", "y", "no", "n":
		return a.answer(ctx, tx, conv, word[0] == 'y', actorOf(in))
	}
	if notice, handled, err = a.fill(ctx, tx, conv, in); handled || err != nil {
		return notice, handled, err
	}
	if said := deciding.FindStringSubmatch(word); said != nil {
		return a.answerOne(ctx, tx, conv, said[1] == "approve", said[2], actorOf(in))
	}
	if command.MatchString(word) {
		return "There is no " + word + " here; there are /stop, /new and /status. Nothing was done.", true, nil
	}
	return "", false, nil
}

// command is what looks like a control message and nothing else: a model that was
// told a misspelt "/stop" would answer it, and nothing would stop.
var command = regexp.MustCompile(`^/[a-z]+$`)

// deciding is a yes or no to one question of several.
var deciding = regexp.MustCompile(`^/?(approve|deny)(?:\s+(\S+))?$`)

func (a *Agents) stop(ctx context.Context, tx *db.Tx, conv Conversation) (string, error) {
	ids, err := db.All(ctx, tx, db.Column[string],
		"SELECT id FROM runs WHERE key = $1 AND key <> '' AND ended = 0 AND state IN ('queued', 'running', 'waiting') ORDER BY seq", conv.ID)
	if err != nil {
		return "", err
	}
	// The last first, so that ending one does not begin the next.
	for _, id := range slices.Backward(ids) {
		if err := a.Runs.CancelTx(ctx, tx, id, "operator", "/stop"); err != nil && !fault.Is(err, fault.Conflict) {
			return "", err
		}
	}
	switch len(ids) {
	case 0:
		return "There was nothing to stop.", nil
	case 1:
		return "Stopping.", nil
	}
	return fmt.Sprintf("Stopping, and dropping %d messages that waited.", len(ids)-1), nil
}

func (a *Agents) status(ctx context.Context, tx *db.Tx, conv Conversation) (string, error) {
	m, err := a.MailboxOf(ctx, tx, conv.ID)
	if err != nil {
		return "", err
	}
	open, err := a.openQuestions(ctx, tx, conv)
	if err != nil {
		return "", err
	}
	text := "Nothing is under way."
	if m.Running != "" {
		text = "Working on " + m.Running + "."
	}
	if m.Queued > 0 {
		text += fmt.Sprintf(" %d more wait.", m.Queued)
	}
	for _, q := range open {
		text += fmt.Sprintf("\nOpen question %s: %s", q.ID, q.Summary)
	}
	return text, nil
}

func (a *Agents) openQuestions(ctx context.Context, q db.Q, conv Conversation) ([]approval.Approval, error) {
	return a.Approvals.OpenIn(ctx, q, conv.ID)
}

// answer takes a yes or no as the decision of the one open question of the
// conversation. With none open it is an ordinary message; with several it asks
// which one is meant.
func (a *Agents) answer(ctx context.Context, tx *db.Tx, conv Conversation, yes bool, by string) (string, bool, error) {
	open, err := a.openQuestions(ctx, tx, conv)
	if err != nil || len(open) == 0 {
		return "", false, err
	}
	if len(open) > 1 {
		text, err := a.which(ctx, tx, open)
		return text, true, err
	}
	notice, err := a.resolveTx(ctx, tx, open[0], plain(yes), by)
	return notice, true, err
}

// answerOne decides the question that a number or an id names; with neither, the one
// there is. Without any open question it is an ordinary message.
func (a *Agents) answerOne(ctx context.Context, tx *db.Tx, conv Conversation, yes bool, name, by string) (string, bool, error) {
	open, err := a.openQuestions(ctx, tx, conv)
	if err != nil || len(open) == 0 || name == "" {
		if name == "" {
			return a.answer(ctx, tx, conv, yes, by)
		}
		return "", false, err
	}
	for _, q := range open {
		n, err := a.Approvals.Number(ctx, tx, q)
		if err != nil {
			return "", true, err
		}
		if name == strconv.FormatInt(n, 10) || name == strings.ToLower(q.ID) {
			notice, err := a.resolveTx(ctx, tx, q, plain(yes), by)
			return notice, true, err
		}
	}
	text, err := a.which(ctx, tx, open)
	return "There is no open question " + name + " here. " + text, true, err
}

// which lists the open questions with what each is called here.
func (a *Agents) which(ctx context.Context, tx *db.Tx, open []approval.Approval) (string, error) {
	var text strings.Builder
	text.WriteString("Answer one of the open questions:")
	for _, q := range open {
		n, err := a.Approvals.Number(ctx, tx, q)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "\n%s   (%s)", inWords(q, n), q.Summary)
	}
	text.WriteString("\nor deny it the same way.")
	return text.String(), nil
}

// PressTx decides the question of a button, and says what came of it.
func (a *Agents) PressTx(ctx context.Context, tx *db.Tx, id string, yes bool, by string) (notice string, err error) {
	q, err := a.Approvals.GetTx(ctx, tx, id)
	if fault.Is(err, fault.NotFound) {
		return "There is no such question any more.", nil
	}
	if err != nil {
		return "", err
	}
	return a.resolveTx(ctx, tx, q, plain(yes), by)
}

// plain is a yes or a no with nothing filled in.
func plain(yes bool) approval.Reply {
	if yes {
		return approval.Reply{Decision: approval.Approve}
	}
	return approval.Reply{Decision: approval.Deny}
}

// resolveTx decides a question by a person's word in a chat, and says what came of it. One
// whose form is not filled in as it has to be stays open.
func (a *Agents) resolveTx(ctx context.Context, tx *db.Tx, q approval.Approval, r approval.Reply, by string) (notice string, err error) {
	_, err = a.Approvals.ResolveTx(ctx, tx, q.ID, r, by)
	switch {
	case fault.Is(err, fault.Conflict):
		return "Too late, the question has expired: " + q.Summary, nil
	case err != nil && q.Form != nil && (fault.Is(err, fault.Invalid) || fault.Is(err, fault.Denied)):
		return a.unfilled(ctx, tx, q, err)
	case err != nil:
		return "", err
	case r.Decision == approval.Approve:
		return "Approved: " + q.Summary, nil
	}
	return "Refused: " + q.Summary, nil
}

// Decided is called in the transaction that decides an approval: it wakes the run
// that waits for it, or makes the call a run of its own if its turn has ended.
func (a *Agents) Decided(ctx context.Context, tx *db.Tx, apr approval.Approval) error {
	if !apr.Detached {
		return a.Runs.WakeTx(ctx, tx, apr.Run, run.ForApproval, apr.ID)
	}
	if apr.State != approval.Approved {
		return nil
	}
	_, err := a.Runs.StartTx(ctx, tx, run.Spec{
		ID: CallRun(apr), Kind: CallKind, Name: apr.Tool, Definition: apr.ToolDigest, Cause: apr.ID, Actor: apr.Resolver,
		Parent: apr.Run, Input: CallInput{Approval: apr.ID},
	})
	return err
}
