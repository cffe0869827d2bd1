package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) inboxCmd() *cobra.Command {
	var all bool
	c := a.command(spec{
		use:     "inbox",
		short:   "what waits for your decision",
		example: "ombud inbox\nombud inbox --all",
	}, func(ctx context.Context, _ []string) error {
		req := wire.ApprovalsListRequest{}
		if all {
			req.State = "all"
		}
		res, err := a.client.ApprovalsList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("inbox/1", res, func(p *page) { a.inboxPage(p, res.Approvals, res.Notices) })
	})
	c.Flags().BoolVar(&all, "all", false, "decided ones too")
	return c
}

func (a *app) inboxPage(p *page, list []wire.Approval, notices []string) {
	for _, n := range notices {
		p.line("%s", p.warn(oneLine(n)))
	}
	if len(list) == 0 && len(notices) > 0 {
		return
	}
	if len(notices) > 0 {
		p.line("")
	}
	if len(list) == 0 {
		p.line("nothing waits for you")
		return
	}
	for i, q := range list {
		if i > 0 {
			p.line("")
		}
		p.line("%s  %s", p.strong(oneLine(q.ID)), oneLine(q.Summary))
		p.approvalFields(q)
		if q.State == "open" && len(formOf(q.Form).Fields) > 0 {
			p.field("  answer", a.approveWords(q.ID, q.Form))
		}
	}
	p.line("")
	p.line("%s", p.faint("ombud approve ID, or ombud approve ID --deny; the beginning of an id is enough"))
}

// approvalFields tells what a person needs to decide, and what was decided.
func (p *page) approvalFields(q wire.Approval) {
	p.field("  tool", q.Tool)
	p.field("  wanted by", q.Subject)
	for i, s := range q.Scopes {
		name := "  needs"
		if i > 0 {
			name = ""
		}
		p.field(name+" ", oneLine(s))
	}
	for i, r := range q.Reasons {
		name := "  asked as"
		if i > 0 {
			name = ""
		}
		p.field(name+" ", oneLine(r.Text))
	}
	p.formFields(q.Form)
	if q.Conversation != "" {
		p.field("  in", q.Conversation)
	}
	when := p.clock(q.AskedAt)
	if q.State == "open" && q.ExpiresAt > 0 {
		when += ", expires in " + span(time.UnixMicro(q.ExpiresAt).Sub(p.now))
	}
	p.field("  asked", when)
	if q.State != "open" {
		p.field("  state", fmt.Sprintf("%s %s %s", q.State, p.clock(q.ResolvedAt), q.Resolver))
		p.field("  note", oneLine(q.Note))
		p.field("  answer", oneLine(string(q.Answer)))
	}
}

// held reports whether the instance was restored and does nothing yet: then there is
// nothing to wait for.
func (a *app) held(ctx context.Context) bool {
	st, err := a.client.SystemStatus(ctx)
	return err == nil && st.Held != nil
}

func (a *app) approveCmd() *cobra.Command {
	var deny, noWait bool
	var note, stream, answer string
	var h holds
	var c *cobra.Command
	c = a.command(spec{
		use:   "approve ID [FIELD=VALUE…]",
		short: "say yes or no to a question in the inbox",
		long: `Decides a question, once. What waited for it goes on, and its reply is shown as ask
does, with the same exit codes; --no-wait returns at once. --for-conversation and
--always leave a standing approval of what the call needs, which is shown first and
taken back with ombud caps revoke.

Some questions have fields to fill in, which ombud inbox shows. Give them as
FIELD=VALUE: yes or no, a list with commas or by saying its field again. Where there
is one field, its value alone will do; --answer takes the whole as JSON. Without any,
a terminal is asked for the fields one by one. What does not fit decides nothing.`,
		example: `ombud approve apr_0197a3
ombud approve apr_0197a3 name="Ada Lovelace" size=2 colours=red,blue
ombud approve apr_0197a3 --deny --note "not that file"
ombud approve apr_0197a3 --for-conversation`,
		args:          cobra.MinimumNArgs(1),
		keepInterrupt: true,
	}, func(ctx context.Context, args []string) error {
		given := c.Flags().Changed("answer")
		if deny && (given || len(args) > 1) {
			return fault.New(fault.Usage, "a no fills nothing in").WithHint("say why with --note")
		}
		live, err := a.streams(stream)
		if err != nil {
			return err
		}
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
		req := wire.ApprovalsResolveRequest{ID: args[0], Decision: wire.Approve, Note: note}
		if deny {
			req.Decision = wire.Deny
		}
		if req.Standing, err = a.standing(ctx, &h, args[0], deny); err != nil {
			return err
		}
		if !deny {
			if req.Answer, err = a.answerOf(ctx, args[0], args[1:], answer, given); err != nil {
				return err
			}
		}
		res, err := a.client.ApprovalsResolve(ctx, req)
		if err != nil {
			return a.unanswered(ctx, args[0], err)
		}
		held := a.held(ctx)
		if noWait || res.RunID == "" || held {
			return a.show("approve/1", res, func(p *page) {
				p.line("%s: %s", res.Approval.State, oneLine(res.Approval.Summary))
				for _, g := range res.Grants {
					p.grantLines(g)
				}
				if held && res.RunID != "" {
					p.line("this instance is held: it goes on when you let go, with ombud restore release")
				}
			})
		}
		a.note("%s: %s", res.Approval.State, oneLine(res.Approval.Summary))
		return a.await(ctx, askResult{Conversation: res.Approval.Conversation}, res.RunID, live)
	})
	c.Flags().BoolVar(&deny, "deny", false, "say no")
	h.flags(c)
	c.Flags().StringVar(&note, "note", "", "why; told to the agent and recorded")
	c.Flags().StringVar(&answer, "answer", "", "what is filled in, as a JSON object")
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for what goes on")
	a.streamFlag(c, &stream)
	return c
}
