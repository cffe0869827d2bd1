//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// noon is when everything of the fake daemon happened, in Unix µs.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).UnixMicro()

// mux answers every method, most of them with something that never changes.
func (d *fakeDaemon) mux() *ipc.Mux {
	m := ipc.NewMux()
	ipc.Handle(m, wire.SystemPing, answer[wire.Empty](wire.Pong{At: noon}))
	ipc.Handle(m, wire.SystemStatus, d.status)
	ipc.Handle(m, wire.SystemStop, func(ctx context.Context, _ wire.Empty) (wire.StopResult, error) {
		s, err := d.status(ctx, wire.Empty{})
		time.AfterFunc(50*time.Millisecond, d.stop) // after the answer, and so that stop has to wait
		return wire.StopResult{PID: s.PID}, err
	})
	ipc.Handle(m, wire.MessageSend, d.send)
	ipc.HandleStream(m, wire.TurnWatch, d.watch)
	ipc.Handle(m, wire.TurnCancel, d.cancel)
	ipc.Handle(m, wire.ApprovalsResolve, d.resolve)
	ipc.HandleStream(m, wire.EventsTail, func(_ context.Context, _ wire.EventsTailRequest, send func(wire.Event) error) (wire.EventsTailResult, error) {
		for _, e := range cannedEvents() {
			if err := send(e); err != nil {
				return wire.EventsTailResult{}, err
			}
		}
		return wire.EventsTailResult{Position: 2}, nil
	})
	ipc.Handle(m, wire.EventsList, answer[wire.EventsListRequest](wire.EventsListResult{Events: cannedEvents(), Next: 2, Head: 2}))
	ipc.Handle(m, wire.RunsList, answer[wire.RunsListRequest](wire.RunsListResult{Runs: []wire.Run{cannedRun(), uncertainRun(), waitingRun()}}))
	ipc.Handle(m, wire.RunsGet, func(_ context.Context, req wire.RunsGetRequest) (wire.RunsGetResult, error) {
		if req.ID == "run_9" {
			return wire.RunsGetResult{Run: uncertainRun()}, nil
		}
		if req.ID == "run_5" {
			return wire.RunsGetResult{Run: waitingRun()}, nil
		}
		return wire.RunsGetResult{Run: cannedRun(), Steps: cannedSteps()}, nil
	})
	cannedWatch(m)
	cannedTriggers(m)
	ipc.Handle(m, wire.RunsResolve, func(_ context.Context, req wire.RunsResolveRequest) (wire.RunsResolveResult, error) {
		r := uncertainRun()
		r.State, r.Unknown = map[string]string{wire.ResolveCancel: "cancelling", wire.ResolveDone: "running"}[req.Decision], 0
		return wire.RunsResolveResult{Run: r}, nil
	})
	ipc.Handle(m, wire.RunsVerify, answer[wire.Empty](wire.RunsVerifyResult{
		Runs: 3, Steps: 7, DurationUS: 4200,
		Mismatches: []wire.RunMismatch{{RunID: "run_1", What: "runs.state", Rows: "completed", Event: "running"}},
	}))
	ipc.Handle(m, wire.RunsReceipt, answer[wire.RunsReceiptRequest](wire.RunsReceiptResult{Receipt: json.RawMessage(`{"format":"ombud.receipt.v1","run":"run_1"}`)}))
	ipc.Handle(m, wire.Explain, answer[wire.ExplainRequest](cannedExplanation()))
	ipc.Handle(m, wire.AuditVerify, answer[wire.AuditVerifyRequest](wire.AuditVerifyResult{Entries: 12, Chains: 1, Checkpoints: 1, DurationUS: 900, Head: wire.AuditRef{Chain: "node1-1", Seq: 12, Hash: "ab12"}}))
	entry := wire.AuditEntry{
		Ref: wire.AuditRef{Chain: "node1-1", Seq: 12, Hash: "ab12"}, At: noon, Kind: "call", Actor: "agent:main", Subject: "agent:main", Tool: "fs.read",
		Scopes: []string{"fs.read:…"}, Outcome: "ok", Run: "run_7", Step: "tool/0.0", DurationUS: 1500, SignedBy: 12,
	}
	ipc.Handle(m, wire.AuditTail, answer[wire.AuditTailRequest](wire.AuditTailResult{Entries: []wire.AuditEntry{entry}}))
	ipc.Handle(m, wire.AuditShow, func(_ context.Context, req wire.AuditShowRequest) (wire.AuditShowResult, error) {
		shown := entry
		shown.Ref.Seq, shown.Text = req.Seq, `{"chain":"node1-1"}`
		return wire.AuditShowResult{Entry: shown}, nil
	})
	ipc.Handle(m, wire.AuditAnchor, answer[wire.Empty](wire.AuditAnchorResult{Ref: entry.Ref, Line: `{"anchor":"ombud.audit.anchor.v1"}`, File: "/mnt/anchors"}))
	ipc.HandleStream(m, wire.AuditExport, func(_ context.Context, _ wire.Empty, send func(wire.AuditLine) error) (wire.AuditExportResult, error) {
		return wire.AuditExportResult{Lines: 1, PublicKey: "00ff"}, send(wire.AuditLine{Line: json.RawMessage(`{"seq":1}`)})
	})
	ipc.Handle(m, wire.CostReport, answer[wire.CostReportRequest](cannedCost()))
	ipc.Handle(m, wire.ApprovalsList, d.approvals)
	cannedCaps(m)
	ipc.Handle(m, wire.DLQList, answer[wire.DLQListRequest](wire.DLQListResult{Letters: []wire.DeadLetter{cannedLetter()}}))
	ipc.Handle(m, wire.DLQReplay, answer[wire.DLQReplayRequest](wire.DLQResult{Letter: cannedLetter()}))
	ipc.Handle(m, wire.DLQShow, answer[wire.DLQRequest](wire.DLQResult{Letter: cannedLetter()}))
	ipc.Handle(m, wire.DLQDrop, answer[wire.DLQDropRequest](wire.DLQResult{Letter: cannedLetter()}))
	ipc.Handle(m, wire.ConversationsList, answer[wire.ConversationsListRequest](wire.ConversationsListResult{Conversations: []wire.Conversation{*cannedConversation()}}))
	ipc.Handle(m, wire.ConversationsReset, answer[wire.ConversationsResetRequest](wire.ConversationsResetResult{Conversation: *cannedConversation()}))
	fact := wire.MemoryFact{ID: "mem_1", Text: "the boiler code is 4711", Kind: "fact", Source: "operator", Pinned: true, At: noon, Version: 1}
	ipc.Handle(m, wire.MemoryList, answer[wire.MemoryListRequest](wire.MemoryResult{Facts: []wire.MemoryFact{fact}}))
	ipc.Handle(m, wire.MemorySearch, answer[wire.MemorySearchRequest](wire.MemoryResult{Facts: []wire.MemoryFact{fact}, Index: "warming"}))
	ipc.Handle(m, wire.ToolsList, answer[wire.Empty](wire.ToolsListResult{Tools: []wire.Tool{
		{Name: "fs.write", Description: "Write a file. It replaces what was there.", Kind: "effect", Access: "ask"},
		{Name: "memory.recall", Description: "Look something up", Kind: "local", ReadOnly: true, Access: "allow"},
		{Name: "odd", Quarantined: "its schema is no schema"},
	}, Processes: []wire.ToolProcess{cannedProcess(), cannedLoop()}}))
	ipc.HandleStream(m, wire.LogsTail, func(_ context.Context, _ wire.LogsTailRequest, send func(wire.LogLine) error) (wire.Empty, error) {
		return wire.Empty{}, send(wire.LogLine{At: noon, Level: "warn", Message: "slow commit", Attrs: json.RawMessage(`{"took":"1.2s","what":"a b"}`)})
	})
	ipc.Handle(m, wire.DoctorRun, answer[wire.Empty](wire.DoctorResult{Checks: []wire.Check{{ID: "store.writable", Status: "ok", Detail: "a row was written"}}}))
	ipc.Handle(m, wire.ConfigExplain, answer[wire.ConfigExplainRequest](wire.ConfigExplainResult{Values: []wire.ConfigValue{{Key: "turn.steps", Value: "16", Origin: "env", Where: "OMBUD_TURN_STEPS"}}}))
	cannedSchedules(m)
	cannedRecipes(m)
	cannedLoops(m)
	cannedSigned(m)
	cannedChannels(m)
	cannedUndo(m)
	cannedProcesses(m)
	cannedServers(m)
	d.cannedAgents(m)
	cannedVault(m)
	cannedBackup(m)
	cannedSecrets(m)
	if err := m.Check(wire.Methods()); err != nil {
		panic(err)
	}
	return m
}

// answer is a handler that always says the same.
func answer[Req, Resp any](resp Resp) func(context.Context, Req) (Resp, error) {
	return func(context.Context, Req) (Resp, error) { return resp, nil }
}

func cannedEvents() []wire.Event {
	return []wire.Event{
		{Position: 1, ID: "evt_1", Stream: "conversation:cnv_1", Version: 1, Kind: "comms.message", At: noon, Actor: "operator", Data: json.RawMessage(`{"text":"say \u001b[31mred"}`)},
		{Position: 2, ID: "evt_2", Stream: "run:run_1", Version: 1, Kind: "run.created", At: noon + 1000, Actor: "agent:main", Cause: "evt_1", Data: json.RawMessage(`{}`)},
	}
}

func cannedConversation() *wire.Conversation {
	return &wire.Conversation{ID: "cnv_1", Name: "main", Channel: "local", Messages: 4, LastAt: noon}
}

func cannedRun() wire.Run {
	return wire.Run{
		ID: "run_1", Kind: "turn", Name: "main", Conversation: "main", State: "completed", Attempt: 1, Steps: 3, CostMicroUSD: 1234, CostKnown: true,
		CreatedAt: noon + 1000, StartedAt: noon + 2000, EndedAt: noon + 1_502_000, Cause: "evt_1",
	}
}

func uncertainRun() wire.Run {
	return wire.Run{ID: "run_9", Kind: "loop", Name: "mail", State: "uncertain", Attempt: 1, Unknown: 1, CreatedAt: noon, Error: &wire.Problem{Class: fault.Unknown, Message: "the mail may have gone out"}}
}

func cannedSteps() []wire.RunStep {
	return []wire.RunStep{
		{
			Name: "context", Seq: 1, Kind: "context", State: "done", Attempts: 1, StartedAt: noon + 3000, EndedAt: noon + 3400,
			Label: &wire.LabelStep{Out: "from operator, for operator", From: []string{"the message: from operator, for operator"}, Warnings: []string{"you are now"}},
		},
		{
			Name: "model/1", Seq: 2, Kind: "model", State: "done", Attempts: 1, StartedAt: noon + 4000, EndedAt: noon + 904_000,
			Model: &wire.ModelCall{Provider: "anthropic", Model: "claude", Stop: "tool_use", Asks: 2, Calls: 1, Cost: wire.Cost{MicroUSD: 1234, Calls: 1, InputTokens: 812, OutputTokens: 40}},
			Audit: []wire.AuditRef{{Chain: "node1-1", Seq: 7}},
		},
		{
			Name: "tool/1.1", Seq: 3, Kind: "tool", State: "done", Attempts: 1, StartedAt: noon + 905_000, EndedAt: noon + 1_405_000,
			Call: &wire.Call{
				Tool: "fs.write", Subject: "agent:main", Summary: "write notes.txt (12 bytes)", Scopes: []string{"fs.write:/w/notes.txt"}, Decision: "ask",
				Reasons: []wire.Reason{{Code: "role", Text: "role assistant asks before writing"}}, ApprovalID: "apr_1", Resolver: "operator", Outcome: "ok", ResultBytes: 14, CostKnown: true, Label: "own",
			},
			Kept:  []wire.Checkpoint{{ID: "chk_1", State: "kept", Files: 2, Repository: "/w/repo"}},
			Label: &wire.LabelStep{In: "from web", Out: "from web", Told: "the working directory", Rule: "others wrote it"},
			Audit: []wire.AuditRef{{Chain: "node1-1", Seq: 9}, {Chain: "node1-1", Seq: 11}},
		},
	}
}

func cannedApproval() wire.Approval {
	return wire.Approval{
		ID: "apr_1", State: "approved", Summary: "write notes.txt (12 bytes)", Tool: "fs.write", Subject: "agent:main", Conversation: "main", RunID: "run_1",
		Scopes: []string{"fs.write:/w/notes.txt"}, Reasons: []wire.Reason{{Code: "role", Text: "role assistant asks before writing"}},
		AskedAt: noon + 906_000, ResolvedAt: noon + 1_400_000, Resolver: "operator", Note: "fine",
	}
}

func cannedExplanation() wire.Explanation {
	e, r := cannedEvents()[0], cannedRun()
	return wire.Explanation{
		Asked: "evt_1", Event: &e, Conversation: cannedConversation(), Run: &r, Steps: cannedSteps(), Approvals: []wire.Approval{cannedApproval()},
		Reply: "Done.\nAnything else?", Outcome: "completed", CostMicroUSD: 1234, CostKnown: false, DurationUS: 1_502_000,
		Deliveries: []wire.Delivery{{ID: "out_1", Channel: "local", Recipient: "operator", State: "sent", Attempts: 1, QueuedAt: noon + 1_502_000, SentAt: noon + 1_503_000}},
	}
}

func cannedCost() wire.CostReportResult {
	known := wire.Cost{MicroUSD: 1_234_500, Calls: 12, InputTokens: 4000, OutputTokens: 900}
	unknown := wire.Cost{Calls: 2, Unpriced: 2, InputTokens: 10, OutputTokens: 5}
	return wire.CostReportResult{
		Days: []wire.CostDay{{Date: "2026-01-02", Models: []wire.CostModel{
			{Provider: "anthropic", Model: "claude", Cost: known}, {Provider: "ollama", Model: "llama", Cost: unknown},
		}}},
		Total: wire.Cost{MicroUSD: 1_234_500, Calls: 14, Unpriced: 2, InputTokens: 4010, OutputTokens: 905},
	}
}

func cannedLetter() wire.DeadLetter {
	e := cannedEvents()[0]
	return wire.DeadLetter{
		ID: "dead_1", Source: "subscription", Name: "memory", Ref: e.ID, Title: e.Kind, State: "waiting", Event: &e, Attempts: 4, FirstAt: noon - 31_000_000, At: noon,
		Problem:    wire.Problem{Class: fault.Invalid, Message: "no such fact"},
		WaysToGoOn: []wire.DLQWay{{Command: "ombud dlq replay dead_1", Does: "hands the event to memory again, out of order"}},
	}
}
