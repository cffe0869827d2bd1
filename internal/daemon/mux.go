package daemon

import (
	"context"
	"os"
	"slices"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/logfile"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/wire"
)

// mux is every method a front end can call.
func (d *Daemon) mux() *ipc.Mux {
	m := ipc.NewMux()
	ipc.Handle(m, wire.SystemPing, func(context.Context, wire.Empty) (wire.Pong, error) {
		return wire.Pong{At: d.db.Time()}, nil
	})
	ipc.Handle(m, wire.SystemStatus, d.status)
	ipc.Handle(m, wire.SystemStop, func(context.Context, wire.Empty) (wire.StopResult, error) {
		d.ask()
		return wire.StopResult{PID: os.Getpid()}, nil
	})
	ipc.Handle(m, wire.MessageSend, d.messageSend)
	ipc.HandleStream(m, wire.TurnWatch, d.turnWatch)
	ipc.Handle(m, wire.TurnCancel, d.turnCancel)
	ipc.Handle(m, wire.EventsList, d.eventsList)
	ipc.HandleStream(m, wire.EventsTail, d.eventsTail)
	ipc.Handle(m, wire.RunsList, d.runsList)
	ipc.Handle(m, wire.RunsGet, d.runsGet)
	ipc.HandleStream(m, wire.RunsWatch, d.runsWatch)
	ipc.Handle(m, wire.RunsSignal, d.runsSignal)
	ipc.Handle(m, wire.RunsResolve, d.runsResolve)
	ipc.Handle(m, wire.RunsVerify, d.runsVerify)
	ipc.Handle(m, wire.RunsReceipt, d.runsReceipt)
	ipc.Handle(m, wire.Explain, d.explain)
	ipc.Handle(m, wire.AuditVerify, d.auditVerify)
	ipc.Handle(m, wire.AuditTail, d.auditTail)
	ipc.Handle(m, wire.AuditShow, d.auditShow)
	ipc.Handle(m, wire.AuditAnchor, d.auditAnchor)
	ipc.HandleStream(m, wire.AuditExport, func(ctx context.Context, _ wire.Empty, send func(wire.AuditLine) error) (wire.AuditExportResult, error) {
		return exportAudit(ctx, d.audit, d.vault, send)
	})
	ipc.Handle(m, wire.CostReport, d.costReport)
	ipc.Handle(m, wire.ApprovalsList, d.approvalsList)
	ipc.Handle(m, wire.ApprovalsResolve, d.approvalsResolve)
	ipc.Handle(m, wire.CapsList, d.capsList)
	ipc.Handle(m, wire.CapsGrant, d.capsGrant)
	ipc.Handle(m, wire.CapsRevoke, d.capsRevoke)
	ipc.Handle(m, wire.CapsWhy, d.capsWhy)
	ipc.Handle(m, wire.CapsMeter, d.capsMeter)
	ipc.Handle(m, wire.AccessShow, d.accessShow)
	ipc.Handle(m, wire.AccessSet, d.accessSet)
	ipc.Handle(m, wire.AccessScope, d.accessScope)
	d.letterMethods(m)
	ipc.Handle(m, wire.ConversationsList, d.conversationsList)
	ipc.Handle(m, wire.ConversationsReset, d.conversationsReset)
	ipc.Handle(m, wire.MemoryList, d.memoryList)
	ipc.Handle(m, wire.MemorySearch, d.memorySearch)
	ipc.Handle(m, wire.ToolsList, d.toolsList)
	ipc.Handle(m, wire.ToolsAdd, d.toolsAdd)
	ipc.Handle(m, wire.ToolsRemove, d.toolsRemove)
	ipc.Handle(m, wire.ToolsTest, d.toolsTest)
	ipc.HandleStream(m, wire.LogsTail, func(ctx context.Context, req wire.LogsTailRequest, send func(wire.LogLine) error) (wire.Empty, error) {
		return wire.Empty{}, logfile.Read(ctx, d.o.Instance.LogFile(), req, send)
	})
	ipc.Handle(m, wire.DoctorRun, func(ctx context.Context, _ wire.Empty) (wire.DoctorResult, error) {
		return wire.DoctorResult{Checks: d.doctor(ctx)}, nil
	})
	ipc.Handle(m, wire.ConfigExplain, d.configExplain)
	ipc.HandleStream(m, wire.BackupCreate, d.backupCreate)
	ipc.Handle(m, wire.RestorePending, d.restorePending)
	ipc.Handle(m, wire.RestoreRelease, d.restoreRelease)
	ipc.Handle(m, wire.VaultState, d.vaultStatus)
	ipc.Handle(m, wire.VaultPassphrase, d.vaultPassphrase)
	ipc.Handle(m, wire.VaultRotate, d.vaultRotate)
	ipc.Handle(m, wire.VaultRecover, d.vaultRecover)
	ipc.Handle(m, wire.VaultRecoveryKey, d.vaultRecoveryKey)
	d.undoMethods(m)
	d.delegateMethods(m)
	d.operatorTiers(m)
	d.operatorSecrets(m)
	return m
}

// mainConversation is where a message goes that names no other.
const mainConversation = "main"

func named(conversation string) string {
	if conversation == "" {
		return mainConversation
	}
	return conversation
}

func (d *Daemon) messageSend(ctx context.Context, req wire.MessageSendRequest) (wire.MessageSendResult, error) {
	name := named(req.Conversation)
	address := agent.Local(name)
	if known, err := d.conversation(ctx, name); err == nil {
		address, name = known.Address, known.Title
	}
	got, err := d.agents.Intake(ctx, agent.Inbound{
		Address: address, Title: name, Sender: "operator", Text: req.Text, Key: req.Key,
		Source: label.Operator, Audience: label.OperatorOnly, Tier: policy.Trusted, Control: true,
	})
	if err != nil {
		return wire.MessageSendResult{}, err
	}
	out := wire.MessageSendResult{EventID: got.Event, RunID: got.Run, Conversation: got.Conversation, Duplicate: got.Duplicate, Notice: got.Notice}
	if !req.Wait || got.Run == "" {
		return out, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := ipc.Gone(ctx)
	go func() { // ends with the call
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	rec, err := d.runs.Wait(ctx, got.Run)
	if err != nil {
		return out, err
	}
	res, err := d.turnResult(ctx, rec)
	out.Result = &res
	return out, err
}

func (d *Daemon) conversation(ctx context.Context, idOrName string) (c agent.Conversation, err error) {
	err = d.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		c, err = d.agents.Conversation(ctx, q, idOrName)
		return err
	})
	return c, err
}

func (d *Daemon) turnCancel(ctx context.Context, req wire.TurnCancelRequest) (wire.TurnCancelResult, error) {
	err := d.runs.Cancel(ctx, req.RunID, "operator", "cancelled by the operator")
	moved := err == nil
	if fault.Is(err, fault.Conflict) {
		err = nil
	}
	if err != nil {
		return wire.TurnCancelResult{}, err
	}
	rec, _, err := d.runs.Get(ctx, req.RunID)
	return wire.TurnCancelResult{RunID: req.RunID, State: string(rec.State), Moved: moved}, err
}

func (d *Daemon) eventsList(ctx context.Context, req wire.EventsListRequest) (wire.EventsListResult, error) {
	evs, err := d.readEvents(ctx, req)
	if err != nil {
		return wire.EventsListResult{}, err
	}
	head, err := d.events.Head(ctx)
	out := wire.EventsListResult{Next: req.After, Head: head}
	for _, e := range evs {
		out.Events = append(out.Events, wireEvent(e))
		out.Next = e.Position
	}
	return out, err
}

func (d *Daemon) readEvents(ctx context.Context, req wire.EventsListRequest) ([]eventlog.Event, error) {
	limit := req.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	if req.Stream != "" {
		return d.streamEvents(ctx, req, limit)
	}
	exact, prefixes := splitKinds(req.Kinds)
	var filter eventlog.Filter
	most := 1000 // a family is chosen here, from all there is
	if len(prefixes) == 0 {
		filter.Kinds, most = exact, limit
	}
	var out []eventlog.Event
	for after := req.After; len(out) < limit; { // one read gives a page at most
		page, err := d.events.Read(ctx, after, most, filter)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, e := range page {
			after = e.Position
			if matchKind(req.Kinds, e.Kind) && len(out) < limit {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// streamEvents reads one stream; its versions are few, so it is filtered here.
func (d *Daemon) streamEvents(ctx context.Context, req wire.EventsListRequest, limit int) (out []eventlog.Event, err error) {
	for version := int64(0); len(out) < limit; {
		page, err := d.events.Stream(ctx, req.Stream, version, 256)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, e := range page {
			version = e.Version
			if e.Position > req.After && matchKind(req.Kinds, e.Kind) && len(out) < limit {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

func (d *Daemon) approvalsList(ctx context.Context, req wire.ApprovalsListRequest) (wire.ApprovalsListResult, error) {
	f := approval.Filter{State: approval.State(req.State), Limit: req.Limit}
	switch req.State {
	case "", "open":
		f.State = approval.Pending
	case "all":
		f.State = ""
	}
	list, err := d.approvals.List(ctx, f)
	out := wire.ApprovalsListResult{Notices: slices.Concat(d.loopNotices(), d.serverNotices(), d.recipeNotices())}
	for _, a := range list {
		shown := wireApproval(a)
		shown.Conversation = d.title(ctx, shown.Conversation)
		out.Approvals = append(out.Approvals, shown)
	}
	return out, err
}

func (d *Daemon) conversationsReset(ctx context.Context, req wire.ConversationsResetRequest) (wire.ConversationsResetResult, error) {
	c, err := d.conversation(ctx, named(req.Conversation))
	if err != nil {
		return wire.ConversationsResetResult{}, err
	}
	if err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return d.agents.ResetTx(ctx, tx, c.ID) }); err != nil {
		return wire.ConversationsResetResult{}, err
	}
	if c, err = d.conversation(ctx, c.ID); err != nil {
		return wire.ConversationsResetResult{}, err
	}
	shown, err := d.wireConversation(ctx, c)
	return wire.ConversationsResetResult{Conversation: shown}, err
}

func (d *Daemon) conversationsList(ctx context.Context, req wire.ConversationsListRequest) (wire.ConversationsListResult, error) {
	limit := req.Limit
	if limit <= 0 {
		limit = 100
	}
	list, err := d.agents.Conversations(ctx, min(limit, 1000))
	if err != nil {
		return wire.ConversationsListResult{}, err
	}
	var out wire.ConversationsListResult
	for _, c := range list {
		shown, err := d.wireConversation(ctx, c)
		if err != nil {
			return out, err
		}
		out.Conversations = append(out.Conversations, shown)
	}
	return out, nil
}
