package act

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Deps are the parts a call passes through.
type Deps struct {
	DB        *db.DB
	Vault     *vault.Vault
	Log       *eventlog.Log
	Audit     *audit.Audit
	Tools     *tool.Registry
	Invoker   *tool.Invoker
	Approvals *approval.Approvals
	Budget    *budget.Budget
	Blobs     *blob.Store
	Hide      *redact.Redactor // takes known values out of results; nil: none are known
	Secrets   Secrets          // says which secrets there are; nil: none
	Keeper    tool.Keeper      // keeps what a call is about to change; nil: nothing is kept
	Logger    *slog.Logger
	// Decide and Tell are policy.Decide and policy.Tell when nil. A test puts others
	// here to see what a rule is good for; nothing that is shipped does.
	Decide func(*policy.Input) policy.Decision
	Tell   func(label.Label, policy.Destination) policy.Decision
}

// Act makes calls. There is one in a daemon, and it alone holds the Invoker.
type Act struct {
	Deps      // without its Invoker: whoever holds an Act cannot reach one
	invoker   *tool.Invoker
	refusals  refusalCounts
	abandoned atomic.Int32
}

// New returns the one door to all effects.
func New(d Deps) *Act {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Decide == nil {
		d.Decide = policy.Decide
	}
	if d.Tell == nil {
		d.Tell = policy.Tell
	}
	invoker := d.Invoker
	d.Invoker = nil
	return &Act{Deps: d, invoker: invoker, refusals: refusalCounts{now: time.Now, seen: map[refusalKey]int64{}}}
}

// Stop writes what was only counted. No call may be under way.
func (a *Act) Stop(ctx context.Context) error { return a.flushRefusals(ctx, true) }

// Abandoned is how many calls are running on though their time is over.
func (a *Act) Abandoned() int { return int(a.abandoned.Load()) }

// call is a Call with what the first four stages found.
type call struct {
	Call
	run     *run.Run
	def     tool.Definition
	digest  string
	input   json.RawMessage // canonical
	mac     []byte          // over tool and input: the same call, whatever its step
	hash    []byte          // over everything an approval is bound to
	scopes  []scope.Scope
	summary string
	final   bool // it cannot be taken back
	to      policy.Destination
	decided policy.Decision
	permit  *policy.Input
	apr     string          // the approval the call needed, if it did
	form    json.RawMessage // what a person has to fill in with it; nil: nothing
	said    json.RawMessage // what they did
}

// Call makes one call as a step of r and returns what it came to. If the step is
// recorded, its result is returned and nothing happens. The error is the engine's
// (the run parks, stops or was taken over) and the caller returns it; a failure or
// refusal of the call is in the Result.
func (a *Act) Call(ctx context.Context, r *run.Run, c Call) (Result, error) {
	return a.awaited(ctx, r, c.Step)(a.call(ctx, r, c))
}

func (a *Act) call(ctx context.Context, r *run.Run, c Call) (Result, error) {
	s, begun := r.Recorded(c.Step)
	if begun && s.State != run.Open {
		return recorded(r, s)
	}
	k, err := a.prepare(r, c, begun)
	switch {
	case begun:
		return a.resume(ctx, k, s, err)
	case err != nil:
		return a.refuse(ctx, k, err)
	}
	return a.decide(ctx, k)
}

// resume goes on with a call that was allowed and begun before a crash.
func (a *Act) resume(ctx context.Context, k *call, s run.Step, err error) (Result, error) {
	if err == nil && !bytes.Equal(s.InputMAC, k.mac) {
		err = fault.New(fault.Conflict, "the step was begun with another call")
	}
	if err == nil && k.apr == "" {
		// By its place and not by what the call is now: that may be another.
		spent, e := a.Approvals.List(ctx, approval.Filter{State: approval.Used, Run: k.run.ID(), Step: k.Step, Limit: 1})
		if e != nil {
			return Result{}, e
		}
		for _, apr := range spent {
			k.approvedBy(apr)
			if !bytes.Equal(apr.CallHash, k.hash) {
				err = errChanged
			}
		}
	}
	if err == nil && k.unanswered() {
		err = errChanged
	}
	if err != nil {
		return a.lost(ctx, k, err)
	}
	return a.execute(ctx, k, false)
}

// errChanged says that an approval was given for something else.
var errChanged = fault.New(fault.Denied, "the tool or the call has changed since it was approved")

// decide is stage 4.
func (a *Act) decide(ctx context.Context, k *call) (Result, error) {
	k.permit = a.policyInput(k)
	k.decided = a.judge(k)
	if twice := a.unknownBefore(k); twice && k.decided.Effect == policy.Allow {
		k.decided = policy.Decision{Effect: policy.Ask, Reasons: []policy.Reason{{
			Effect: policy.Ask, Code: "repeat", Layer: "run",
			Text: "the same call was made before in this run and its outcome is unknown",
		}}}
	}
	switch k.decided.Effect {
	case policy.Deny:
		return a.refuse(ctx, k, fault.New(fault.Denied, "not allowed: %s", k.decided))
	case policy.Ask, policy.Allow:
	}
	if err := a.secretsThere(ctx, k); err != nil {
		return a.refuse(ctx, k, err) // before a person is asked about what cannot be done
	}
	if k.decided.Effect == policy.Ask {
		return a.ask(ctx, k)
	}
	return a.allowed(ctx, k)
}

// judge is what policy says, or that the tool is for another subject alone.
func (a *Act) judge(k *call) policy.Decision {
	if only := k.def.Only; only != "" && only != k.Authority.Subject {
		return policy.Decision{Effect: policy.Deny, Reasons: []policy.Reason{{
			Effect: policy.Deny, Code: "subject", Layer: "tool", Text: k.Tool + " can be called by the " + only + " only",
		}}}
	}
	if k.def.Within && !k.Within {
		return policy.Decision{Effect: policy.Deny, Reasons: []policy.Reason{{
			Effect: policy.Deny, Code: "subject", Layer: "tool", Text: k.Tool + " can be called by what ombud does by itself only",
		}}}
	}
	if k.def.Lent && !k.Lent {
		return policy.Decision{Effect: policy.Deny, Reasons: []policy.Reason{{
			Effect: policy.Deny, Code: "subject", Layer: "tool", Text: k.Tool + " can be called only by an agent that works for the loop it belongs to",
		}}}
	}
	d := a.Decide(k.permit)
	if k.Review && d.Effect == policy.Allow {
		return policy.Decision{Effect: policy.Ask, Park: true, Reasons: []policy.Reason{{
			Effect: policy.Ask, Code: "review", Layer: "call", Text: "it is proposed to you",
		}}}
	}
	d = k.withForm(d)
	d.Park = (d.Park || k.Review) && !k.Patient
	return d
}

func recorded(r *run.Run, s run.Step) (Result, error) {
	var res Result
	if err := r.InDoubt(s.Name); err != nil {
		return res, err
	}
	if len(s.Result) > 0 {
		err := json.Unmarshal(s.Result, &res)
		if err != nil || res.Status != Unclear || s.State == run.Unknown {
			return res, err
		}
	}
	// Settled by a person or by a cancellation: there was no result to write, or one that
	// said that nobody knows.
	res = Result{Status: Unclear, Text: s.Error, Class: s.ErrorClass}
	switch s.State {
	case run.Done:
		res = Result{Status: OK, Text: "done, as a person says; its result was not recorded"}
	case run.Errored:
		res.Status = Failed
	}
	return res, nil
}

// prepare resolves, validates and derives: stages 1 to 3. A call that was begun before
// is what it was then, whatever has become known as a secret since.
func (a *Act) prepare(r *run.Run, c Call, begun bool) (*call, error) {
	k := &call{Call: c, run: r}
	k.mac = a.Vault.MAC("call", []byte(c.Tool), c.Input)
	if !begun {
		k.Tool = a.Hide.String(c.Tool)
		if err := a.holdsSecret(c.Input); err != nil {
			return k, err
		}
	}
	def, err := a.Tools.Get(c.Tool)
	if err != nil {
		return k, err
	}
	k.def, k.Tool = def, def.Name
	k.digest = a.Tools.Digest(def.Name)
	if err := a.Tools.Validate(def.Name, c.Input); err != nil {
		return k, err
	}
	if k.input, err = tool.Canonical(c.Input); err != nil {
		return k, err
	}
	k.mac = a.Vault.MAC("call", []byte(def.Name), k.input)
	if k.scopes, err = def.Scopes(k.input); err != nil {
		return k, err
	}
	k.summary = def.Summary(k.input)
	k.final = def.Irreversible && (def.Undoable == nil || !def.Undoable(k.input))
	k.to = k.destination()
	if err := k.takeForm(); err != nil {
		return k, err
	}
	k.hash = k.bind(r.ID(), c.Step)
	return k, nil
}

// lost ends a call that was begun before a crash with a tool that is no longer
// what it was: nobody can tell what became of it.
func (a *Act) lost(ctx context.Context, k *call, cause error) (Result, error) {
	k.def.Repeat, k.def.Kind, k.def.ReadOnly = tool.AtMostOnce, tool.Effect, false
	k.form = nil // nothing is made of it
	res, err := a.execute(ctx, k, false)
	if err == nil {
		a.Logger.Warn("an interrupted call cannot be resumed", "tool", k.Tool, "run", k.run.ID(), "error", cause)
	}
	return res, err
}

// CallApproved makes the call an approval was given for, in a run of its own: the
// turn that asked has ended. Everything but the question is as in Call.
func (a *Act) CallApproved(ctx context.Context, r *run.Run, c Call, apr approval.Approval) (Result, error) {
	return a.awaited(ctx, r, c.Step)(a.callApproved(ctx, r, c, apr))
}

func (a *Act) callApproved(ctx context.Context, r *run.Run, c Call, apr approval.Approval) (Result, error) {
	s, begun := r.Recorded(c.Step)
	if begun && s.State != run.Open {
		return recorded(r, s)
	}
	c.Label = label.Join(c.Label, apr.Label)
	k, err := a.prepare(r, c, begun)
	k.approvedBy(apr)
	if err == nil && !bytes.Equal(k.bind(apr.Run, apr.Step), apr.CallHash) {
		err = errChanged
	}
	switch {
	case begun:
		return a.resume(ctx, k, s, err)
	case err != nil:
		return a.refuse(ctx, k, err)
	}
	k.hash = apr.CallHash
	k.permit = a.policyInput(k)
	if k.decided = a.judge(k); k.decided.Effect == policy.Deny {
		return a.refuse(ctx, k, fault.New(fault.Denied, "not allowed any more: %s", k.decided))
	}
	if err := a.secretsThere(ctx, k); err != nil {
		return a.refuse(ctx, k, err)
	}
	return a.execute(ctx, k, true)
}

// bind is what an approval is bound to: any change makes it another call.
func (k *call) bind(runID, step string) []byte {
	h := sha256.New()
	parts := []string{k.Tool, k.digest, string(k.input), k.to.Name, runID, step}
	// What the person was shown: the same input is another file where the workspace is another.
	scopes := scopeTexts(k.scopes)
	slices.Sort(scopes)
	if k.form != nil { // and what they were asked to fill in, were the tool to ask something else one day
		parts = append(parts, string(k.form))
	}
	for _, part := range append(parts, scopes...) {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(part) >> (8 * i))
		}
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

func (a *Act) policyInput(k *call) *policy.Input {
	au := k.Authority
	return &policy.Input{
		Subject: au.Subject, Tool: policy.ToolFacts{Name: k.Tool, Irreversible: k.final}, Scopes: k.scopes,
		Grants: au.Grants, Role: au.Role, Bounds: au.Bounds, Tier: au.Tier, Standing: au.Standing, Autonomy: au.Autonomy,
		Unattended: au.Unattended, Label: k.Label, Destination: k.to, Budget: k.Budget,
	}
}

// unknownBefore reports whether this very call has an unknown outcome in the run.
func (a *Act) unknownBefore(k *call) bool {
	return k.run.Any(func(s run.Step) bool { return s.State == run.Unknown && string(s.InputMAC) == string(k.mac) })
}

// deniedBefore reports whether a person refused this very call in the run.
func (a *Act) deniedBefore(k *call) bool {
	return k.run.Any(func(s run.Step) bool {
		if s.State != run.Errored || string(s.InputMAC) != string(k.mac) {
			return false
		}
		var res Result
		return json.Unmarshal(s.Result, &res) == nil && res.Approval != "" && res.Status == Refused && res.Class == fault.Denied
	})
}

// ask waits for a person: stage 5. The approval and the wait are one commit. When
// the run is called again it comes back here and finds the decision.
func (a *Act) ask(ctx context.Context, k *call) (Result, error) {
	if a.deniedBefore(k) {
		return a.refuse(ctx, k, errDeniedBefore)
	}
	apr, found, err := a.findApproval(ctx, k)
	if err != nil {
		return Result{}, err
	}
	if !found && k.decided.Park {
		return a.review(ctx, k)
	}
	if !found || apr.State == approval.Pending && (k.Patient || a.DB.Time() < apr.HoldUntil) {
		if apr, err = a.park(ctx, k, apr); err != nil {
			return Result{}, err
		}
	}
	switch apr.State {
	case approval.Approved:
		k.approvedBy(apr)
		return a.execute(ctx, k, true)
	case approval.Pending:
		return a.leave(ctx, k, apr)
	case approval.Denied:
		return a.denied(ctx, k, apr)
	default:
		res := a.refusal(k.Tool, fault.New(fault.Timeout, "nobody approved this call before the question expired"))
		return a.record(ctx, k, res, apr.ID, nil)
	}
}

func noted(note string) string {
	if note == "" {
		return ""
	}
	return ": " + note
}

func (a *Act) findApproval(ctx context.Context, k *call) (apr approval.Approval, found bool, err error) {
	err = a.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		apr, err = a.Approvals.ByCall(ctx, q, k.run.ID(), k.Step, k.hash)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return apr, false, nil
	}
	return apr, err == nil, err
}

// park asks and waits in one commit. It returns only if there is nothing to wait
// for: the decision came first.
func (a *Act) park(ctx context.Context, k *call, apr approval.Approval) (approval.Approval, error) {
	ask := a.question(k)
	if apr.ID != "" {
		ask.ID = apr.ID
	}
	until := apr.HoldUntil
	switch {
	case k.Patient: // the end of the question wakes it; this is for the case that it does not
		until = a.DB.Time() + patienceTime.Microseconds()
	case until == 0:
		until = a.DB.Time() + a.Approvals.Hold().Microseconds()
	}
	err := k.run.Park(ctx, run.ForApproval, ask.ID, until, func(ctx context.Context, tx *db.Tx) (bool, error) {
		var err error
		apr, err = a.Approvals.AskTx(ctx, tx, ask)
		return apr.State != approval.Pending, err
	})
	return apr, err
}

// errDecided says that the decision came while the wait for it was being ended.
var errDecided = errors.New("the question was decided meanwhile")

// leave ends the wait: the turn ends without the call, which becomes a run of its
// own if a person approves it later.
func (a *Act) leave(ctx context.Context, k *call, apr approval.Approval) (Result, error) {
	res, err := a.record(ctx, k, a.parked(k.Tool, apr.ID), apr.ID, func(ctx context.Context, tx *db.Tx) error {
		err := a.Approvals.DetachTx(ctx, tx, apr.ID)
		if fault.Is(err, fault.Conflict) {
			return errDecided
		}
		return err
	})
	if errors.Is(err, errDecided) {
		return a.ask(ctx, k)
	}
	return res, err
}

func scopeTexts(list []scope.Scope) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.String()
	}
	return out
}

func reasonTexts(list []policy.Reason) []string {
	out := make([]string, len(list))
	for i, r := range list {
		out[i] = r.Text
	}
	return out
}

// refuse records a call that is not made.
func (a *Act) refuse(ctx context.Context, k *call, cause error) (Result, error) {
	if run.Unwinding(cause) {
		return Result{}, cause
	}
	res := a.refusal(k.Tool, cause)
	if k.decided.Effect == policy.Deny && k.permit != nil {
		res.Label = label.Of(label.Own, label.Anyone) // what policy says is made from the call itself
	}
	return a.record(ctx, k, res, "", nil)
}

// record is the exit of every call that was not made: one commit with its audit.
func (a *Act) record(ctx context.Context, k *call, res Result, aprID string, extra func(context.Context, *db.Tx) error) (Result, error) {
	k.apr = aprID
	k.fill(&res)
	single := a.refusals.count(k) || aprID != "" // what a person was asked is never only counted
	spec := run.StepSpec{Name: k.Step, Kind: "tool", InputMAC: k.mac, OnClose: func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
		if extra != nil {
			if err := extra(ctx, tx); err != nil {
				return err
			}
		}
		o.Result = marshal(res)
		if !single {
			return nil
		}
		ref, err := a.Audit.AppendTx(ctx, tx, k.entry("call.refused", res))
		o.Audit = run.AuditRef(ref)
		return err
	}}
	_, err := k.run.DoTx(ctx, spec, func(context.Context, *db.Tx) run.Outcome { return run.Fail(res.Err()) })
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

func (k *call) fill(res *Result) {
	res.Subject = k.Authority.Subject
	res.Summary, res.Scopes, res.Decision, res.Reasons = k.summary, scopeTexts(k.scopes), k.decided.Effect.String(), k.decided.Reasons
	res.Approval, res.From = k.apr, k.Label
	if k.to.Emits {
		res.To = k.to.Name
	}
	if k.permit == nil {
		res.Decision = ""
	}
}

func marshal(res Result) json.RawMessage {
	b, err := json.Marshal(res)
	if err != nil {
		panic("act: a result does not marshal: " + err.Error())
	}
	return b
}

// entry is the audit entry of a call.
func (k *call) entry(kind string, res Result) audit.Entry {
	e := audit.Entry{
		Kind: kind, Actor: k.run.Record().Actor, Subject: k.Authority.Subject, Tool: k.Tool, Scopes: scopeTexts(k.scopes),
		Outcome: string(res.Status), Run: k.run.ID(), Step: k.Step, InputMAC: k.mac, DurationUS: res.TookUS,
	}
	if res.Class != "" {
		e.Reason = string(res.Class)
	}
	if len(k.decided.Reasons) > 0 && res.Status == Refused {
		e.Reason = string(k.decided.Reasons[0].Code)
	}
	return e
}

// errAbandoned is the cause of a context whose call overran its time.
var errAbandoned = errors.New("the call overran its timeout")
