//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

func cannedGrant() wire.Grant {
	return wire.Grant{
		ID: "grt_1", Subject: "agent:main", Scope: "fs.write:/w/notes.txt", Effect: "standing", Origin: "operator", By: "operator", At: noon,
		State: "live", Grants: "all",
	}
}

// cannedCaps answers what is about authority. A grant for email.send grants
// nothing; an unknown scope is refused as the daemon does it.
func cannedCaps(m *ipc.Mux) {
	cannedMCPClients(m)
	ipc.Handle(m, wire.CapsList, func(_ context.Context, req wire.CapsListRequest) (wire.CapsListResult, error) {
		out := wire.CapsListResult{
			Subjects: []wire.CapsSubject{{Subject: "agent:main", Role: "assistant", MaxTier: "trusted", Rules: []wire.CapsRule{
				{Layer: "role assistant", Effect: "allow", Scope: "memory.read"}, {Layer: "role assistant", Effect: "ask", Scope: "fs.write:/w/**"},
			}}},
			Grants: []wire.Grant{cannedGrant(), uselessGrant()},
		}
		if req.All {
			g := cannedGrant()
			g.ID, g.State, g.RevokedAt, g.RevokedBy = "grt_0", "revoked", noon, "operator"
			out.Grants = append(out.Grants, g)
		}
		return out, nil
	})
	ipc.Handle(m, wire.CapsGrant, func(_ context.Context, req wire.CapsGrantRequest) (wire.CapsGrantResult, error) {
		if strings.HasPrefix(req.Scope, "fs.raed") {
			return wire.CapsGrantResult{}, fault.New(fault.Invalid, "unknown scope base %q", req.Scope).WithHint("did you mean fs.read?")
		}
		g := cannedGrant()
		if req.Scope == "email.send" {
			g = uselessGrant()
		}
		g.Subject, g.Scope, g.Conversation = req.Subject, req.Scope, req.Conversation
		if g.Effect = req.Effect; g.Effect == "" {
			g.Effect = "allow"
		}
		if req.ForS > 0 {
			g.ExpiresAt = noon + req.ForS*1e6
		}
		if req.Preview {
			g.ID = ""
		}
		return wire.CapsGrantResult{Grant: g}, nil
	})
	ipc.Handle(m, wire.CapsRevoke, func(_ context.Context, req wire.CapsRevokeRequest) (wire.CapsRevokeResult, error) {
		g := cannedGrant()
		if req.ID != g.ID {
			return wire.CapsRevokeResult{}, fault.New(fault.NotFound, "no grant %q", req.ID).WithHint("ombud caps list")
		}
		g.State, g.RevokedAt, g.RevokedBy = "revoked", noon, "operator"
		return wire.CapsRevokeResult{Grant: g}, nil
	})
	ipc.Handle(m, wire.CapsWhy, func(_ context.Context, req wire.CapsWhyRequest) (wire.CapsWhyResult, error) {
		role := wire.CapsReason{
			Effect: "allow", Code: "rule", Layer: "role assistant", Scope: req.Scope, Rule: "allow fs.read:/w/**",
			Text: `role assistant: rule "allow fs.read:/w/**" decides on ` + req.Scope,
		}
		deny := wire.CapsReason{
			Effect: "deny", Code: "rule", Layer: "grants of agent:main", Scope: req.Scope, Rule: "deny fs.read:/w/a", Grant: "grt_1",
			Text: `grants of agent:main: rule "deny fs.read:/w/a" decides on ` + req.Scope,
		}
		return wire.CapsWhyResult{
			Decision: "deny", Subject: req.Subject, Scopes: []string{req.Scope}, Decided: deny, Reasons: []wire.CapsReason{role, deny},
		}, nil
	})
	ipc.Handle(m, wire.CapsMeter, answer[wire.CapsMeterRequest](wire.CapsMeterResult{Since: noon, Lines: []wire.CapsCalls{
		{Subject: "agent:main", Tool: "fs.read", Outcome: "ok", Calls: 12},
		{Subject: "agent:main", Tool: "shell.exec", Outcome: "refused", Reason: "rule", Calls: 2, CostMicroUSD: 1200},
	}}))
	access := wire.Access{
		Subject: "agent:main", Level: "assisted", Usual: true, Areas: []wire.AccessArea{{Area: "fs", Level: "manual"}},
		Levels: []wire.LevelDoc{{Level: "manual", Doc: "asks before everything but reading"}},
	}
	ipc.Handle(m, wire.AccessShow, answer[wire.AccessShowRequest](access))
	ipc.Handle(m, wire.AccessSet, func(_ context.Context, req wire.AccessSetRequest) (wire.Access, error) {
		out := access
		if req.Level == "reckless" {
			return out, fault.New(fault.Invalid, "unknown level %q", req.Level).WithHint("it is one of manual, assisted")
		}
		out.Level, out.Usual = req.Level, false
		return out, nil
	})
	ipc.Handle(m, wire.AccessScope, func(_ context.Context, req wire.AccessScopeRequest) (wire.Access, error) {
		out := access
		limit, useless := cannedGrant(), uselessGrant()
		limit.Effect, limit.Scope = "deny", "shell.exec"
		out.Preset, out.Limits = req.Preset, []wire.Grant{limit, useless}
		return out, nil
	})
}

func uselessGrant() wire.Grant {
	g := cannedGrant()
	g.ID, g.Scope, g.Effect, g.Grants, g.Why = "grt_2", "email.send", "allow", "nothing", "role assistant: nothing within email.send"
	return g
}

// approvals lists the canned question and those that are open.
func (d *fakeDaemon) approvals(context.Context, wire.ApprovalsListRequest) (wire.ApprovalsListResult, error) {
	out := wire.ApprovalsListResult{Approvals: []wire.Approval{cannedApproval()}}
	d.mu.Lock()
	defer d.mu.Unlock()
	for run, text := range d.state.Texts {
		if verb, _, _ := strings.Cut(text, " "); (verb == "allow" || verb == "fill") && d.state.Decided[run] == "" {
			q := cannedApproval()
			q.ID, q.State, q.RunID = "apr_"+run, "open", run
			if verb == "fill" {
				q.Form = cannedForm()
			}
			out.Approvals = append(out.Approvals, q)
		}
	}
	return out, nil
}

// cannedForm is what a question of the script asks to fill in.
func cannedForm() *wire.ApprovalForm {
	return &wire.ApprovalForm{Schema: json.RawMessage(`{"type":"object","properties":{
		"full name":{"type":"string","title":"Who you are"},"size":{"type":"integer","minimum":1,"maximum":5},
		"colours":{"type":"array","items":{"enum":["red","blue"]},"default":["blue"]},"sure":{"type":"boolean"}},"required":["full name","size"]}`)}
}
