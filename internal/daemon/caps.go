package daemon

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/grant"
	"github.com/ombud-run/ombud/internal/mcp/guests"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/wire"
)

// permit is what policy is asked about a call of a subject at the operator's
// socket, less the call. NotFound for an agent nobody configured.
func (d *Daemon) permit(subject string, held policy.Held) (in policy.Input, err error) {
	if err := grant.CheckSubject(subject); err != nil {
		return in, err
	}
	if isMCP(subject) {
		return d.mcpClients.Permit(subject, held), nil
	}
	if in, err = d.permitActor(subject, held); !fault.Is(err, fault.NotFound) {
		return in, err
	}
	if in, err = d.agents.Permit(subject, held); fault.Is(err, fault.NotFound) && !isAgent(subject) {
		in = policy.Input{
			Subject: subject, Grants: policy.NewLayer("grants of "+subject, held.Rules), Bounds: held.Bounds, Standing: held.Standing,
			Autonomy: held.Autonomy,
		}
		if in.Autonomy == nil {
			in.Autonomy, err = policy.NewAutonomy(d.grants.Usual(), nil)
		} else {
			err = nil
		}
	}
	in.Tier = policy.Trusted
	return in, err
}

func isAgent(subject string) bool { return strings.HasPrefix(subject, "agent:") }

// wireGrant shows a grant with what it comes to.
func (d *Daemon) wireGrant(ctx context.Context, x grant.Grant) (wire.Grant, error) {
	out := wire.Grant{
		ID: x.ID, Subject: x.Subject, Scope: x.Scope.String(), Effect: string(x.Effect), Conversation: d.title(ctx, x.Conversation), Origin: x.Origin,
		By: x.By, At: x.At, ExpiresAt: x.Expires, State: string(x.StateAt(d.db.Time())), RevokedAt: x.Revoked, RevokedBy: x.RevokedBy,
		Grants: string(grant.Nothing),
	}
	if out.State != string(grant.Live) {
		out.Why = "it is " + out.State
		return out, nil
	}
	without, with, err := d.grants.Around(ctx, x)
	if err != nil {
		return out, err
	}
	before, err := d.permit(x.Subject, without)
	if fault.Is(err, fault.NotFound) {
		out.Why = err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	after, err := d.permit(x.Subject, with)
	if err != nil {
		return out, err
	}
	weight, why := grant.Weigh(x, before, after)
	out.Grants, out.Why = string(weight), why
	return out, nil
}

func (d *Daemon) wireGrants(ctx context.Context, list []grant.Grant) ([]wire.Grant, error) {
	out := make([]wire.Grant, 0, len(list))
	for _, x := range list {
		shown, err := d.wireGrant(ctx, x)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	return out, nil
}

func (d *Daemon) capsList(ctx context.Context, req wire.CapsListRequest) (out wire.CapsListResult, err error) {
	subjects := d.agents.Subjects()
	if req.Subject != "" {
		if err := d.knownSubject(ctx, req.Subject); err != nil {
			return out, err
		}
		subjects = []string{req.Subject}
	}
	for _, s := range subjects {
		in, err := d.permit(s, policy.Held{})
		if err != nil {
			return out, err
		}
		role, own := in.Role, []policy.Rule(nil)
		if who, err := d.actorOf(s); err == nil { // what its file or its approved manifest gives it is a layer of its own
			role, own = who.Role, who.Own
		}
		if role != nil {
			out.Subjects = append(out.Subjects, wireSubject(s, role, own))
		}
	}
	const most = 1000
	list, err := d.grants.List(ctx, grant.Filter{Subject: req.Subject, Ended: req.All, Limit: most})
	if err != nil {
		return out, err
	}
	out.Grants, err = d.wireGrants(ctx, list)
	return out, err
}

func wireSubject(subject string, role *policy.Role, own []policy.Rule) wire.CapsSubject {
	out := wire.CapsSubject{Subject: subject, Role: role.Name(), MaxTier: role.MaxTier().String()}
	for _, l := range role.Layers() {
		for _, r := range l.Rules() {
			out.Rules = append(out.Rules, wire.CapsRule{Layer: l.Name(), Effect: r.Effect.String(), Scope: r.Scope.String()})
		}
	}
	for _, r := range own {
		out.Rules = append(out.Rules, wire.CapsRule{Layer: "grants of " + subject, Effect: r.Effect.String(), Scope: r.Scope.String()})
	}
	return out
}

// knownSubject refuses what nobody can be: a typing error in a grant would wait for
// ever for its subject.
func (d *Daemon) knownSubject(ctx context.Context, subject string) error {
	if name, is := strings.CutPrefix(subject, guests.Prefix); is {
		return d.mcpClients.Known(ctx, name)
	}
	_, err := d.permit(subject, policy.Held{})
	return err
}

func (d *Daemon) capsGrant(ctx context.Context, req wire.CapsGrantRequest) (out wire.CapsGrantResult, err error) {
	n, err := d.newGrant(ctx, req)
	if err != nil {
		return out, err
	}
	x := grant.Grant{New: n, By: grant.Operator, At: d.db.Time()}
	x.Origin = grant.FromOperator
	if !req.Preview {
		err = d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			x, err = d.grants.GrantTx(ctx, tx, n, grant.Operator)
			return err
		})
		if err != nil {
			return out, err
		}
	}
	out.Grant, err = d.wireGrant(ctx, x)
	return out, err
}

func (d *Daemon) newGrant(ctx context.Context, req wire.CapsGrantRequest) (n grant.New, err error) {
	if err := d.knownSubject(ctx, req.Subject); err != nil {
		return n, err
	}
	n = grant.New{Subject: req.Subject, Effect: grant.Effect(req.Effect)}
	if req.Effect == "" {
		n.Effect = grant.Allow
	}
	if n.Scope, err = scope.ParseRule(req.Scope); err != nil {
		return n, err
	}
	if err := realPrograms(n.Scope); err != nil {
		return n, err
	}
	if n.Conversation, err = d.conversationID(ctx, req.Conversation); err != nil {
		return n, err
	}
	const longest = int64(100 * 366 * 24 * time.Hour / time.Second)
	if req.ForS < 0 || req.ForS > longest {
		return n, fault.New(fault.Invalid, "a grant for %d seconds", req.ForS)
	}
	if req.ForS > 0 {
		n.Expires = d.db.Time() + req.ForS*time.Second.Microseconds()
	}
	return n, n.Check(d.db.Time())
}

// realPrograms refuses a program that is named through a link to its directory, as
// /bin/ls is where /bin leads to /usr/bin: calls need it by the real one, so the grant
// would match none.
func realPrograms(s scope.Scope) error {
	programs, is := strings.CutPrefix(s.String(), "shell.exec:")
	if !is {
		return nil
	}
	for name := range strings.SplitSeq(programs, ",") {
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err == nil && dir != filepath.Dir(name) {
			return fault.New(fault.Invalid, "%s is behind a link: calls need %s", name, filepath.Join(dir, filepath.Base(name))).
				WithHint("write shell.exec:%s", filepath.Join(dir, filepath.Base(name)))
		}
	}
	return nil
}

// realRules refuses a role's rule that realPrograms would refuse as a grant. What is no
// scope is left to whoever loads the role.
func realRules(role string, rules []string) error {
	for _, rule := range rules {
		s, err := scope.Parse(rule)
		if err != nil {
			continue
		}
		if err := realPrograms(s); err != nil {
			return fault.New(fault.Config, "roles.%s: %s: %w", role, rule, err)
		}
	}
	return nil
}

// conversationID is the id of a conversation a person named; "" stays "".
func (d *Daemon) conversationID(ctx context.Context, idOrName string) (string, error) {
	if idOrName == "" {
		return "", nil
	}
	c, err := d.conversation(ctx, idOrName)
	return c.ID, err
}

func (d *Daemon) capsRevoke(ctx context.Context, req wire.CapsRevokeRequest) (out wire.CapsRevokeResult, err error) {
	id, err := d.grants.Find(ctx, req.ID)
	if err != nil {
		return out, err
	}
	var found grant.Grant
	err = d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		found, err = d.grants.RevokeTx(ctx, tx, id, grant.Operator)
		return err
	})
	if err != nil {
		return out, err
	}
	out.Grant, err = d.wireGrant(ctx, found)
	return out, err
}

func (d *Daemon) capsWhy(ctx context.Context, req wire.CapsWhyRequest) (out wire.CapsWhyResult, err error) {
	conversation, err := d.conversationID(ctx, req.Conversation)
	if err != nil {
		return out, err
	}
	if err := d.knownSubject(ctx, req.Subject); err != nil {
		return out, err
	}
	held, err := d.grants.For(ctx, req.Subject, conversation)
	if err != nil {
		return out, err
	}
	in, err := d.permit(req.Subject, held)
	if err != nil {
		return out, err
	}
	if in.Unattended = req.Unattended; req.Tier != "" {
		if err := in.Tier.UnmarshalText([]byte(req.Tier)); err != nil {
			return out, err
		}
	}
	out.Subject = req.Subject
	formed, err := d.aboutCall(&in, req, &out)
	if err != nil {
		return out, err
	}
	inForce, err := d.grants.InForce(ctx, req.Subject, conversation)
	if err != nil {
		return out, err
	}
	decision := policy.Explain(&in)
	if formed && decision.Effect == policy.Allow {
		decision.Effect, decision.Reasons = policy.Ask, append(decision.Reasons, act.Formed())
	}
	out.Decision, out.Park = decision.Effect.String(), decision.Park
	for _, r := range decision.Reasons {
		out.Reasons = append(out.Reasons, wireReason(r, inForce))
	}
	if r, ok := decision.Deciding(); ok {
		out.Decided = wireReason(r, inForce)
	}
	return out, nil
}

// aboutCall says what the call is that is asked about: a scope alone, or a tool
// with an input; and whether a person has to fill something in for it.
func (d *Daemon) aboutCall(in *policy.Input, req wire.CapsWhyRequest, out *wire.CapsWhyResult) (formed bool, err error) {
	switch {
	case req.Tool == "" && req.Scope == "":
		return false, fault.New(fault.Invalid, "a scope or a tool is needed")
	case req.Tool != "" && req.Scope != "":
		return false, fault.New(fault.Invalid, "either a scope or a tool")
	case req.Tool == "":
		s, err := scope.ParseRule(req.Scope)
		if err != nil {
			return false, err
		}
		in.Scopes, in.Tool = []scope.Scope{s}, policy.ToolFacts{Name: "a tool"}
	default:
		def, err := d.tools.Get(req.Tool)
		if err != nil {
			return false, err
		}
		input := req.Input
		if input == nil {
			input = json.RawMessage("{}")
		}
		if err := d.tools.Validate(def.Name, input); err != nil {
			return false, err
		}
		if input, err = tool.Canonical(input); err != nil {
			return false, err
		}
		if in.Scopes, err = def.Scopes(input); err != nil {
			return false, err
		}
		in.Tool, out.Summary = policy.ToolFacts{Name: def.Name, Irreversible: def.Irreversible}, def.Summary(input)
		formed = def.Form != nil && def.Form(input) != nil
	}
	for _, s := range in.Scopes {
		out.Scopes = append(out.Scopes, s.String())
	}
	return formed, nil
}

// wireReason shows a reason, with the stored grant its rule comes from.
func wireReason(r policy.Reason, inForce []grant.Grant) wire.CapsReason {
	out := wire.CapsReason{Effect: r.Effect.String(), Code: string(r.Code), Layer: r.Layer, Scope: r.Scope, Rule: r.Rule, Text: r.Text}
	i := slices.IndexFunc(inForce, func(x grant.Grant) bool {
		switch {
		case r.Code == policy.CodeStanding:
			return x.Effect == grant.Standing && x.Scope.String() == r.Rule
		case r.Code != policy.CodeRule:
			return false
		case r.Layer == grant.LimitLayer(x.Subject):
			return x.Effect == grant.Limit && r.Rule == "allow "+x.Scope.String()
		}
		return r.Rule == string(x.Effect)+" "+x.Scope.String() && strings.HasPrefix(r.Layer, "grants of ")
	})
	if i >= 0 {
		out.Grant = inForce[i].ID
	}
	return out
}

func (d *Daemon) capsMeter(ctx context.Context, req wire.CapsMeterRequest) (out wire.CapsMeterResult, err error) {
	const week, year = 7, 366
	days := req.Days
	if days == 0 {
		days = week
	}
	if days < 0 || days > year {
		return out, fault.New(fault.Invalid, "days is %d and has to be 1 to %d", days, year)
	}
	out.Since = d.db.Time() - int64(days)*(24*time.Hour).Microseconds()
	list, err := audit.Tally(ctx, d.db, out.Since, req.Subject)
	for _, c := range list {
		out.Lines = append(out.Lines, wire.CapsCalls{
			Subject: c.Subject, Tool: c.Tool, Outcome: c.Outcome, Reason: c.Reason, Calls: c.Count, CostMicroUSD: c.Cost,
		})
	}
	return out, err
}

// approvalsResolve decides a question; with it, in the same commit, it leaves
// standing approvals of what the call needs where that is asked for.
func (d *Daemon) approvalsResolve(ctx context.Context, req wire.ApprovalsResolveRequest) (out wire.ApprovalsResolveResult, err error) {
	if err := checkDecision(req); err != nil { // first: what is wrong with it is wrong of every question
		return out, err
	}
	found, err := d.approvals.Find(ctx, req.ID)
	if err != nil {
		return out, err
	}
	standing, err := standingOf(found, req)
	if err != nil {
		return out, err
	}
	var a approval.Approval
	var left []grant.Grant
	err = d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		left = nil
		if a, err = d.approvals.ResolveTx(ctx, tx, found.ID, replyOf(req), grant.Operator); err != nil {
			return err
		}
		for _, n := range standing {
			x, err := d.grants.GrantTx(ctx, tx, n, grant.Operator)
			if err != nil {
				return err
			}
			left = append(left, x)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out = wire.ApprovalsResolveResult{Approval: wireApproval(a), RunID: a.Run}
	if a.Detached {
		out.RunID = ""
		if a.State == approval.Approved {
			out.RunID = agent.CallRun(a)
		}
	}
	if out.RunID, err = d.turnOrCall(ctx, out.RunID); err != nil {
		return out, err
	}
	out.Grants, err = d.wireGrants(ctx, left)
	return out, err
}

// turnOrCall is a run, if it is one whose end a person waits for: not a call of a job, whose
// answer goes to its program.
func (d *Daemon) turnOrCall(ctx context.Context, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	rec, _, err := d.runs.Get(ctx, id)
	if err != nil || rec.Kind != agent.TurnKind && rec.Kind != agent.CallKind {
		return "", err
	}
	return id, nil
}

func replyOf(req wire.ApprovalsResolveRequest) approval.Reply {
	return approval.Reply{Decision: approval.Decision(req.Decision), Note: req.Note, Answer: req.Answer}
}

// checkDecision reports what is wrong with a decision, whatever the question is and
// whether or not it is open.
func checkDecision(req wire.ApprovalsResolveRequest) error {
	if err := replyOf(req).Check(); err != nil {
		return err
	}
	switch req.Standing {
	case "":
		return nil
	case wire.StandingAlways, wire.StandingConversation:
	default:
		return fault.New(fault.Invalid, "standing is %q", req.Standing).
			WithHint("it is %s, %s or left out", wire.StandingConversation, wire.StandingAlways)
	}
	if req.Decision != wire.Approve {
		return fault.New(fault.Invalid, "only a yes can hold for later calls")
	}
	if req.Answer != nil {
		return fault.New(fault.Invalid, "an answer is for this call alone").WithHint("approve it without %s", req.Standing)
	}
	return nil
}

// standingOf are the standing approvals that go with a decision: for exactly what
// the call was shown to need.
func standingOf(a approval.Approval, req wire.ApprovalsResolveRequest) (out []grant.New, err error) {
	if req.Standing == "" {
		return nil, nil
	}
	if a.Form != nil {
		return nil, fault.New(fault.Invalid, "%s has to be filled in by a person each time, so no approval of it can stand", a.ID).
			WithHint("approve it for this call alone")
	}
	conversation := ""
	if req.Standing == wire.StandingConversation {
		if conversation = a.Conversation; conversation == "" {
			return nil, fault.New(fault.Invalid, "%s was not asked in a conversation", a.ID)
		}
	}
	for _, text := range a.Scopes {
		s, err := scope.Parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, grant.New{
			Subject: a.Subject, Scope: s, Effect: grant.Standing, Conversation: conversation, Origin: grant.FromApproval + ":" + a.ID,
		})
	}
	return out, nil
}
