package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) explainCmd() *cobra.Command {
	return a.command(spec{
		use:   "explain ID",
		short: "the life of anything that has an id",
		long: `Tells what happened, who allowed it, what it cost and what is left to do, for an
event, run, approval, delivery or conversation. "last" is the last message
that somebody sent, wherever that was.`,
		example: "ombud explain last\nombud explain run_0197a3c05b0c\nombud explain last --json",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.Explain(ctx, wire.ExplainRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("explain/1", res, func(p *page) { explainPage(p, res) })
	})
}

func explainPage(p *page, e wire.Explanation) {
	p.line("%s", p.strong(oneLine(e.Asked)))
	if e.Conversation != nil {
		p.field("conversation", e.Conversation.Name+" ("+e.Conversation.Channel+")")
	}
	if e.Outcome != "" {
		p.field("outcome", p.outcome(e.Outcome)+" after "+span(micros(e.DurationUS)))
	} else if e.Run != nil {
		p.field("state", p.outcome(e.Run.State)+", for "+span(micros(e.DurationUS)))
	}
	if e.Run != nil {
		p.field("waits for", oneLine(e.Run.WaitsFor))
		p.field("progress", progress(e.Run.Progress))
	}
	p.field("cost", costOf(e.CostMicroUSD, e.CostKnown, e.PossibleMicroUSD))
	if e.Run != nil && e.Run.Error != nil {
		p.problem("error", *e.Run.Error)
	}
	p.line("")
	for _, m := range moments(p, e) {
		p.moment(m)
	}
	if e.Reply != "" {
		p.line("")
		p.line("%s", p.faint("reply"))
		p.line("%s", indent(guard.CleanText(e.Reply)))
	}
	if e.Withheld != "" {
		p.line("")
		p.line("%s", p.faint("kept from the conversation"))
		p.line("%s", indent(guard.CleanText(e.Withheld)))
	}
	p.line("")
	if len(e.Left) == 0 {
		p.field("left to do", "nothing")
		return
	}
	p.line("%s", p.faint("left to do"))
	for _, l := range e.Left {
		p.line("  %s", oneLine(l))
	}
}

func (p *page) outcome(s string) string {
	switch s {
	case "completed", "done", "ok", "sent", "approved":
		return p.good(s)
	case "failed", "error", "timed_out", "denied", "refused", "over_budget", "looping", "step_limit":
		return p.bad(s)
	case "unknown", "uncertain", "waiting", "parked", "escalated", "open", "retrying":
		return p.warn(s)
	}
	return s
}

func (p *page) problem(name string, pr wire.Problem) {
	p.field(name, fmt.Sprintf("%s (%s)", oneLine(pr.Message), pr.Class))
	if pr.Hint != "" {
		p.field("", p.faint(oneLine(pr.Hint)))
	}
}

// moment is one entry of the timeline.
type moment struct {
	at    int64
	what  string   // one word or two
	text  string   // what it was
	below []string // details, one a line
}

const whatWidth = 14

func (p *page) moment(m moment) {
	at := "            "
	if m.at > 0 {
		at = time.UnixMicro(m.at).In(p.now.Location()).Format("15:04:05.000")
	}
	p.line("%s  %s%s", p.faint(at), pad(m.what, whatWidth), m.text)
	for _, b := range m.below {
		p.line("%s%s", strings.Repeat(" ", len("15:04:05.000  ")+whatWidth), b)
	}
}

// addressed says by what ombud was addressed on a chat network, or that it was not.
func addressed(e wire.Event) string {
	var data struct {
		Addressed string `json:"addressed"`
		Overheard bool   `json:"overheard"`
	}
	if json.Unmarshal(e.Data, &data) != nil { // another kind of event
		return ""
	}
	switch {
	case data.Overheard:
		return "overheard: it was not said to ombud, or by nobody ombud answers"
	case data.Addressed != "":
		return "addressed: " + oneLine(data.Addressed)
	}
	return ""
}

// moments puts everything into the order of time; what happened at the same
// instant stays in the order of cause.
func moments(p *page, e wire.Explanation) []moment {
	var out []moment
	if e.Event != nil {
		below := []string{p.faint(fmt.Sprintf("%s, position %d, from %s", e.Event.ID, e.Event.Position, oneLine(e.Event.Actor)))}
		if how := addressed(*e.Event); how != "" {
			below = append(below, p.faint(how))
		}
		out = append(out, moment{at: e.Event.At, what: "message", text: messageText(*e.Event), below: below})
	}
	if r := e.Run; r != nil {
		start := r.StartedAt
		if start == 0 {
			start = r.CreatedAt
		}
		text := r.Kind
		if r.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", r.Attempt)
		}
		out = append(out, moment{at: start, what: "run", text: text, below: []string{p.faint(r.ID)}})
	}
	for _, s := range e.Steps {
		out = append(out, p.stepMoment(s))
	}
	for _, q := range e.Approvals {
		below := []string{p.faint(q.ID)}
		for _, r := range q.Reasons {
			below = append(below, p.faint("because "+oneLine(r.Text)))
		}
		out = append(out, moment{at: q.AskedAt, what: "asked you", text: oneLine(q.Summary), below: below})
		if q.ResolvedAt > 0 {
			text := p.outcome(q.State) + " by " + oneLine(q.Resolver)
			if q.Note != "" {
				text += ": " + oneLine(q.Note)
			}
			m := moment{at: q.ResolvedAt, what: "answer", text: text}
			if len(q.Answer) > 0 {
				m.below = append(m.below, p.faint("filled in: "+oneLine(string(q.Answer))))
			}
			out = append(out, m)
		}
	}
	if r := e.Run; r != nil && r.EndedAt > 0 {
		out = append(out, moment{at: r.EndedAt, what: "end", text: p.outcome(r.State)})
	}
	for _, d := range e.Deliveries {
		out = append(out, p.deliveryMoment(d))
	}
	slices.SortStableFunc(out, func(a, b moment) int {
		switch {
		case a.at == 0 || b.at == 0 || a.at == b.at:
			return 0
		case a.at < b.at:
			return -1
		}
		return 1
	})
	return out
}

// messageText takes the text out of a comms.message, in whichever of its keys.
func messageText(e wire.Event) string {
	var data struct {
		Text    string `json:"text"`
		Content string `json:"content"`
		Body    string `json:"body"`
	}
	if err := decodeLoose(e.Data, &data); err == nil {
		for _, s := range []string{data.Text, data.Content, data.Body} {
			if s != "" {
				return fmt.Sprintf("“%s”", short(s, 100))
			}
		}
	}
	return e.Kind
}

func (p *page) stepMoment(s wire.RunStep) moment {
	m := moment{at: s.StartedAt, what: s.Name, text: p.outcome(s.State)}
	if s.EndedAt > 0 && s.EndedAt-s.StartedAt >= 1000 {
		m.text += " in " + span(micros(s.EndedAt-s.StartedAt))
	}
	if s.Attempts > 1 {
		m.text += fmt.Sprintf(", begun %d times", s.Attempts)
	}
	switch {
	case s.Model != nil:
		p.modelDetails(&m, *s.Model)
	case s.Call != nil:
		p.callDetails(&m, *s.Call)
	}
	p.keptDetails(&m, s.Kept)
	if s.Error != nil {
		m.below = append(m.below, p.bad(oneLine(s.Error.Message)))
	}
	if s.Label != nil {
		p.labelDetails(&m, *s.Label)
	}
	if len(s.Audit) > 0 {
		m.below = append(m.below, p.faint("audit "+auditNumbers(s.Audit)))
	}
	return m
}

// labelDetails tells the way of the label: only where something came in, went out
// or was held back.
func (p *page) labelDetails(m *moment, l wire.LabelStep) {
	for _, part := range l.From {
		m.below = append(m.below, p.faint("+ "+oneLine(part)))
	}
	if l.Told != "" {
		m.below = append(m.below, p.faint("tells "+oneLine(l.Told)+" what is "+oneLine(l.In)))
	}
	if l.Rule != "" {
		m.below = append(m.below, p.warn("labels: "+oneLine(l.Rule)))
	}
	for _, phrase := range l.Warnings {
		m.below = append(m.below, p.warn("reads like an order: "+oneLine(phrase)))
	}
}

func (p *page) modelDetails(m *moment, c wire.ModelCall) {
	cost := money(c.Cost.MicroUSD, c.Cost.Unpriced == 0)
	m.text = modelLine(wire.Model{Provider: c.Provider, Model: c.Model}) + " " + m.text
	detail := fmt.Sprintf("%d tokens in, %d out, cost %s", c.Cost.InputTokens, c.Cost.OutputTokens, cost)
	if c.Calls > 0 {
		detail += ", wants " + plural(int64(c.Calls), "call")
	}
	if c.Asks > 1 {
		detail += fmt.Sprintf(", asked %d times", c.Asks)
	}
	m.below = append(m.below, detail)
}

func (p *page) callDetails(m *moment, c wire.Call) {
	summary := oneLine(c.Summary)
	if summary == "" {
		summary = c.Tool
	}
	outcome := c.Outcome
	if outcome == "" {
		outcome = "open"
	}
	m.text = summary + "  " + p.outcome(outcome)
	if len(c.Scopes) > 0 {
		m.below = append(m.below, "needs "+oneLine(strings.Join(c.Scopes, ", ")))
	}
	m.below = append(m.below, c.Decision+p.faint(" for "+oneLine(c.Subject)))
	for _, r := range c.Reasons {
		m.below = append(m.below, p.faint("  "+oneLine(r.Text)))
	}
	if c.ApprovalID != "" {
		m.below = append(m.below, p.faint(c.ApprovalID+" decided by "+orDash(oneLine(c.Resolver))))
	}
	if c.CostMicroUSD > 0 || !c.CostKnown {
		m.below = append(m.below, "cost "+money(c.CostMicroUSD, c.CostKnown))
	}
	if c.ResultBytes > 0 {
		line := "result " + size(c.ResultBytes)
		if c.Label != "" {
			line += ", " + oneLine(c.Label)
		}
		m.below = append(m.below, p.faint(line))
	}
}

func (p *page) deliveryMoment(d wire.Delivery) moment {
	m := moment{at: d.SentAt, what: "delivery", text: fmt.Sprintf("%s to %s (%s)", p.outcome(d.State), oneLine(d.Recipient), d.Channel)}
	if m.at == 0 {
		m.at = d.QueuedAt
	}
	if d.Attempts > 1 {
		m.text += fmt.Sprintf(", attempt %d", d.Attempts)
	}
	if d.NextAt > 0 {
		m.below = append(m.below, "next attempt "+p.clock(d.NextAt))
	}
	if d.Error != nil {
		m.below = append(m.below, p.bad(oneLine(d.Error.Message)))
	}
	m.below = append(m.below, p.faint(d.ID))
	return m
}

// auditNumbers writes references as "n1a2 17, 18".
func auditNumbers(refs []wire.AuditRef) string {
	var b strings.Builder
	chain := ""
	for i, r := range refs {
		switch {
		case r.Chain != chain:
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(oneLine(r.Chain) + " ")
		case i > 0:
			b.WriteString(", ")
		}
		chain = r.Chain
		fmt.Fprintf(&b, "%d", r.Seq)
	}
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
