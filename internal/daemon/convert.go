package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

func wireEvent(e eventlog.Event) wire.Event {
	data := e.Data
	if e.Erased {
		data = json.RawMessage(`null`)
	}
	return wire.Event{
		Position: e.Position, ID: e.ID, Stream: e.Stream, Version: e.Version, Kind: e.Kind, At: e.At, Actor: e.Actor,
		Cause: e.Cause, Trace: e.Trace, Data: data,
	}
}

func wireRun(rec run.Record, steps []*run.Step) wire.Run {
	out := wire.Run{
		ID: rec.ID, Kind: rec.Kind, Name: rec.Name, Definition: rec.Definition, State: string(rec.State), Wait: string(rec.Wait), Key: rec.Key, Parent: rec.Parent,
		Cause: rec.Cause, Attempt: rec.Attempt + 1, Steps: len(steps), CostMicroUSD: rec.Cost, CostKnown: rec.CostKnown,
		CreatedAt: rec.Created, StartedAt: rec.Started, EndedAt: rec.Ended, Owner: rec.Owner, Error: problem(rec.ErrorClass, rec.Error),
	}
	if rec.Kind == agent.TurnKind {
		out.Conversation = rec.Key
	}
	if p := rec.Progress; p != nil && !rec.State.Ended() {
		out.Progress = &wire.RunProgress{Text: p.Text, Done: p.Done, Total: p.Total, At: p.At}
	}
	if rec.State == run.Waiting && rec.NextAt < 1<<62 {
		out.NextAt = rec.NextAt
	}
	for _, s := range steps {
		if s.State == run.Unknown {
			out.Unknown++
		}
	}
	return out
}

// maxShown is how much of a step's result a list carries.
const maxShown = 64 << 10

func (d *Daemon) wireSteps(ctx context.Context, steps []*run.Step) ([]wire.RunStep, error) {
	var out []wire.RunStep
	for _, s := range steps {
		w := wire.RunStep{
			Name: s.Name, Seq: s.Seq, Kind: s.Kind, Policy: string(s.Policy), State: string(s.State), Attempts: s.Repeats + 1,
			StartedAt: s.Opened, EndedAt: s.Closed, Error: problem(s.ErrorClass, s.Error),
		}
		if w.StartedAt == 0 {
			w.StartedAt = s.Closed
		}
		if len(s.Result) <= maxShown {
			w.Result = s.Result
		}
		if s.Audit.Chain != "" {
			w.Audit = append(w.Audit, wire.AuditRef{Chain: s.Audit.Chain, Seq: s.Audit.Seq, Hash: hex.EncodeToString(s.Audit.Hash)})
		}
		if err := d.addCall(ctx, s, &w); err != nil {
			return nil, err
		}
		addModel(s, &w)
		addLabel(s, &w)
		out = append(out, w)
	}
	return out, nil
}

// addCall shows what a tool step did and who allowed it.
func (d *Daemon) addCall(ctx context.Context, s *run.Step, w *wire.RunStep) error {
	var res act.Result
	if s.Kind != "tool" || json.Unmarshal(s.Result, &res) != nil {
		return nil //nolint:nilerr // it has no result yet, or not one of a call
	}
	w.Call = &wire.Call{
		Tool: res.Tool, Definition: d.tools.Digest(res.Tool), Subject: res.Subject, Summary: res.Summary, Scopes: res.Scopes,
		Decision: res.Decision, ApprovalID: res.Approval, Outcome: string(res.Status), ResultBytes: res.Size, BlobID: res.Blob,
		CostMicroUSD: s.Cost, CostKnown: s.CostKnown, Label: res.Label.String(),
	}
	for _, r := range res.Reasons {
		w.Call.Reasons = append(w.Call.Reasons, wire.Reason{Code: string(r.Code), Text: r.Text, Scope: r.Scope})
	}
	if res.Status == act.Refused {
		w.State = "refused"
	}
	if res.Approval == "" {
		return nil
	}
	a, err := d.approvals.Get(ctx, res.Approval)
	w.Call.Resolver = a.Resolver
	return err
}

func addModel(s *run.Step, w *wire.RunStep) {
	var resp model.Response
	if s.Kind != "model" || json.Unmarshal(s.Result, &resp) != nil {
		return
	}
	w.Model = &wire.ModelCall{
		Provider: resp.Provider, Model: resp.Model, Stop: string(resp.Stop), Asks: s.Repeats + 1, Calls: len(resp.Calls),
		Cost: wire.Cost{
			MicroUSD: s.Cost, Calls: 1, InputTokens: resp.Usage.Input, OutputTokens: resp.Usage.Output,
			CacheReadTokens: resp.Usage.CacheRead, CacheWriteTokens: resp.Usage.CacheWrite,
		},
	}
	if !s.CostKnown {
		w.Model.Cost.Unpriced = 1
	}
}

func wireApproval(a approval.Approval) wire.Approval {
	out := wire.Approval{
		ID: a.ID, State: string(a.State), Summary: a.Summary, Tool: a.Tool, Subject: a.Subject, Conversation: a.Conversation,
		RunID: a.Run, Step: a.Step, Scopes: a.Scopes, AskedAt: a.Asked, ExpiresAt: a.Expires, ResolvedAt: a.Resolved,
		Resolver: a.Resolver, Note: a.Note, Form: wireForm(a.Form), Answer: a.Answer,
	}
	switch a.State {
	case approval.Pending:
		out.State = "open"
	case approval.Used:
		out.State = string(approval.Approved)
	}
	for _, text := range a.Reasons {
		out.Reasons = append(out.Reasons, wire.Reason{Code: "ask", Text: text})
	}
	return out
}

// wireForm is what a person is shown of a form; nil if there is none.
func wireForm(schema json.RawMessage) *wire.ApprovalForm {
	if len(schema) == 0 {
		return nil
	}
	out := &wire.ApprovalForm{Fields: []wire.ApprovalField{}, Schema: schema}
	f, err := form.Parse(schema)
	if err != nil { // it was read when it was asked; whoever approves it is told
		return out
	}
	for _, x := range f.Fields {
		shown := wire.ApprovalField{
			Name: x.Name, Title: x.Title, Description: x.Description, Type: string(x.Type), What: x.What(), Required: x.Required, Default: x.Default,
		}
		for _, c := range x.Choices {
			shown.Choices = append(shown.Choices, wire.ApprovalChoice{Value: c.Value, Title: c.Title})
		}
		out.Fields = append(out.Fields, shown)
	}
	return out
}

func (d *Daemon) wireConversation(ctx context.Context, c agent.Conversation) (out wire.Conversation, err error) {
	err = d.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		m, err := d.agents.MailboxOf(ctx, q, c.ID)
		out = wire.Conversation{
			ID: c.ID, Name: c.Title, Channel: c.Address.Channel, Messages: c.Messages(), Queued: m.Queued, RunID: m.Running,
			CreatedAt: c.Created, LastAt: c.LastAt, ResetAt: c.ResetAt,
		}
		if out.Name == "" { // a chat that has said nothing yet
			out.Name = c.Address.Channel + ":" + c.Address.Chat
		}
		return err
	})
	return out, err
}

func wireDelivery(it outbox.Item) wire.Delivery {
	return wire.Delivery{
		ID: it.ID, Channel: it.Channel, Recipient: it.ChatName, State: string(it.State), Attempts: it.Attempts, QueuedAt: it.Queued,
		SentAt: it.DeliveredAt, NextAt: nextOf(it), Receipt: it.Ref, Error: problem(it.ErrorClass, it.Error),
	}
}

func nextOf(it outbox.Item) int64 {
	if it.State != outbox.Queued {
		return 0
	}
	return it.NextAt
}

// title is what a person calls a conversation: its name, or its id where it has
// none any more.
func (d *Daemon) title(ctx context.Context, id string) string {
	if id == "" {
		return ""
	}
	c, err := d.conversation(ctx, id)
	if err != nil || c.Title == "" {
		return id
	}
	return c.Title
}
