package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/vault"
)

// maxNote bounds what a person may say with a decision, in bytes.
const maxNote = 4096

// AskedData is the payload of approval.asked.
type AskedData struct {
	Approval     string   `json:"approval_id"`
	Run          string   `json:"run_id"`
	Step         string   `json:"step"`
	Subject      string   `json:"subject"`
	Tool         string   `json:"tool"`
	ToolDigest   string   `json:"tool_digest"`
	CallHash     []byte   `json:"call_hash"`
	Summary      string   `json:"summary"`
	Conversation string   `json:"conversation,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`
	Expires      int64    `json:"expires_at"`
}

// ResolvedData is the payload of approval.resolved.
type ResolvedData struct {
	Approval string `json:"approval_id"`
	Run      string `json:"run_id"`
	State    State  `json:"state"`
	Resolver string `json:"resolver"`
	Note     string `json:"note,omitempty"`
	Detached bool   `json:"detached,omitempty"`
}

// AskTx puts a question, in the transaction of what will wait for the answer. The
// same (run, step, call hash) asked again returns what is there, whatever its
// state. An open question about the same step with another hash is withdrawn: it
// would approve a call that is no longer going to be made.
func (a *Approvals) AskTx(ctx context.Context, tx *db.Tx, q Ask) (Approval, error) {
	if q.Run == "" || q.Step == "" || q.Subject == "" || q.Tool == "" || len(q.CallHash) == 0 {
		return Approval{}, fault.New(fault.Internal, "ask for an approval: run, step, subject, tool and call hash are needed")
	}
	if len(q.Form) > 0 { // a question that nobody could answer is not put
		if _, err := form.Parse(q.Form); err != nil {
			return Approval{}, err
		}
	}
	if q.ID == "" {
		q.ID = a.NewID()
	}
	now := tx.Now()
	r := Approval{Ask: q, State: Pending, Asked: now, Expires: now + a.opt.Expires.Microseconds(), HoldUntil: now + a.opt.Hold.Microseconds()}
	fresh, err := a.insert(ctx, tx, &r)
	if err != nil {
		return r, err
	}
	if !fresh {
		return a.ByCall(ctx, tx, q.Run, q.Step, q.CallHash)
	}
	if err := a.withdrawOthers(ctx, tx, &r); err != nil {
		return r, err
	}
	if err := a.tell(ctx, tx, &r, KindAsked, q.Subject, AskedData{
		Approval: r.ID, Run: r.Run, Step: r.Step, Subject: r.Subject, Tool: r.Tool, ToolDigest: r.ToolDigest, CallHash: r.CallHash,
		Summary: r.Summary, Conversation: r.Conversation, Scopes: r.Scopes, Reasons: r.Reasons, Expires: r.Expires,
	}); err != nil {
		return r, err
	}
	return r, a.opt.OnAsked(ctx, tx, r)
}

func (a *Approvals) tell(ctx context.Context, tx *db.Tx, r *Approval, kind, actor string, data any) error {
	_, err := a.log.AppendTx(ctx, tx, eventlog.New{
		Stream: "approval:" + r.ID, Kind: kind, Actor: actor, Cause: r.Run, Trace: r.Run, Data: data, Expect: eventlog.Any,
	})
	return err
}

func (a *Approvals) withdrawOthers(ctx context.Context, tx *db.Tx, r *Approval) error {
	ids, err := db.All(ctx, tx, db.Column[string],
		"SELECT id FROM approvals WHERE run = $1 AND step = $2 AND id <> $3 AND state IN ('pending', 'approved') ORDER BY id", r.Run, r.Step, r.ID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := a.lapse(ctx, tx, id, always, "the call was changed after it was asked for"); err != nil {
			return err
		}
	}
	return nil
}

// always is a lapse that does not look at the time.
const always = math.MaxInt64

// lapse ends a question or an unused approval that expires by due without a
// person's decision; what they said of an approved one is kept. Conflict if it was
// moved meanwhile. It calls no hook: its callers do, where somebody waits.
func (a *Approvals) lapse(ctx context.Context, tx *db.Tx, id string, due int64, why string) error {
	n, err := tx.Exec(ctx, `UPDATE approvals SET state = 'expired',
			note = CASE WHEN state = 'pending' THEN $1 ELSE note END,
			resolver = CASE WHEN state = 'pending' THEN $2 ELSE resolver END,
			resolved = CASE WHEN state = 'pending' THEN $3 ELSE resolved END
		WHERE id = $4 AND state IN ('pending', 'approved') AND expires <= $5`,
		a.vault.Seal(vault.ApprovalNote, id, []byte(why)), Self, tx.Now(), id, due)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, "approval %s was resolved meanwhile", id)
	}
	if err != nil {
		return err
	}
	r, err := a.load(ctx, tx, id)
	if err != nil {
		return err
	}
	return a.tell(ctx, tx, &r, KindResolved, Self, ResolvedData{
		Approval: r.ID, Run: r.Run, State: Expired, Resolver: Self, Note: why, Detached: r.Detached,
	})
}

// UseTx spends an approval for the call it was given for, in the transaction of
// the call's intent. Errors: NotFound; Denied if it is of another call, was denied
// or has expired; Waiting if nobody has decided; Conflict if it was used before.
func (a *Approvals) UseTx(ctx context.Context, tx *db.Tx, id string, callHash []byte) error {
	n, err := tx.Exec(ctx, "UPDATE approvals SET state = 'used' WHERE id = $1 AND call_hash = $2 AND state = 'approved' AND expires > $3",
		id, callHash, tx.Now())
	if err != nil || n == 1 {
		return err
	}
	r, err := a.load(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(r.CallHash, callHash):
		return fault.New(fault.Denied, "approval %s was given for another call", id)
	case r.State == Used:
		return fault.New(fault.Conflict, "approval %s was used before", id)
	case r.State == Pending:
		return fault.New(fault.Waiting, "approval %s is not decided", id)
	case r.State == Denied:
		return fault.New(fault.Denied, "%s refused approval %s", r.Resolver, id)
	}
	return fault.New(fault.Denied, "approval %s has expired", id)
}

// Decision is what a person says of a question.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Deny    Decision = "deny"
)

func (d Decision) state() (State, bool) {
	switch d {
	case Approve:
		return Approved, true
	case Deny:
		return Denied, true
	}
	return "", false
}

// Reply is what a person says of a question.
type Reply struct {
	Decision Decision
	Note     string
	// Answer is what they filled in, a JSON object, with a yes to a question that has a
	// form. Nil is the empty one, which will do where nothing has to be filled in.
	Answer json.RawMessage
}

// Check reports what is wrong with a reply, whatever it is to.
func (r Reply) Check() error {
	if _, ok := r.Decision.state(); !ok {
		return fault.New(fault.Invalid, "decision %q is neither approve nor deny", r.Decision)
	}
	if len(r.Note) > maxNote || !utf8.ValidString(r.Note) || strings.ContainsRune(r.Note, 0) {
		return fault.New(fault.Invalid, "the note is over %d bytes, not UTF-8 or has a NUL", maxNote)
	}
	if r.Decision == Deny && r.Answer != nil {
		return fault.New(fault.Invalid, "a no has no answer").WithHint("say why in the note")
	}
	return nil
}

// Resolve decides an open question, once. Errors: NotFound; Conflict if it is no
// longer open; Denied if the subject would decide for itself, or if the answer holds
// the value of a secret; Invalid if the answer does not fit, which leaves it open.
func (a *Approvals) Resolve(ctx context.Context, id string, r Reply, resolver string) (out Approval, err error) {
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out, err = a.ResolveTx(ctx, tx, id, r, resolver)
		return err
	})
	return out, err
}

// ResolveTx is Resolve in the caller's transaction: a "yes" in a chat is one
// commit with its message. Nothing is written if it errs.
func (a *Approvals) ResolveTx(ctx context.Context, tx *db.Tx, id string, r Reply, resolver string) (Approval, error) {
	if err := r.Check(); err != nil {
		return Approval{}, err
	}
	if resolver == "" {
		return Approval{}, fault.New(fault.Invalid, "a decision needs somebody who takes it")
	}
	state, _ := r.Decision.state()
	asked, err := a.load(ctx, tx, id)
	if err != nil {
		return asked, err
	}
	if asked.State != Pending || asked.Subject == resolver {
		return asked, refusedToResolve(&asked, resolver)
	}
	var answer []byte // sealed
	if r.Decision == Approve {
		if answer, err = a.answer(&asked, r.Answer); err != nil { // the form of a question never changes
			return asked, err
		}
		if err := a.opt.OnApproving(ctx, tx, asked); err != nil {
			return asked, err
		}
	}
	now := tx.Now()
	expires := now + a.opt.Good.Microseconds()
	n, err := tx.Exec(ctx, `UPDATE approvals SET state = $1, resolved = $2, resolver = $3, note = $4, expires = $5, answer = $6
		WHERE id = $7 AND state = 'pending' AND expires > $2 AND subject <> $3`,
		state, now, resolver, a.vault.Seal(vault.ApprovalNote, id, []byte(r.Note)), expires, answer, id)
	if err != nil {
		return Approval{}, err
	}
	out, err := a.load(ctx, tx, id)
	if err != nil {
		return out, err
	}
	if n == 0 {
		return out, refusedToResolve(&out, resolver)
	}
	if err := a.tell(ctx, tx, &out, KindResolved, resolver, ResolvedData{
		Approval: out.ID, Run: out.Run, State: state, Resolver: resolver, Note: r.Note, Detached: out.Detached,
	}); err != nil {
		return out, err
	}
	return out, a.opt.OnResolved(ctx, tx, out)
}

// answer seals what was filled in, if it is what the question wants.
func (a *Approvals) answer(q *Approval, said json.RawMessage) ([]byte, error) {
	if q.Form == nil {
		if said != nil {
			return nil, fault.New(fault.Invalid, "%s has nothing to fill in", q.ID).WithHint("approve it without an answer")
		}
		return nil, nil
	}
	f, err := form.Parse(q.Form)
	if err != nil {
		return nil, fault.New(fault.Verification, "the form of approval %s: %w", q.ID, err)
	}
	fits, err := f.Check(said)
	if err != nil {
		return nil, err
	}
	if name := a.opt.Hide.Find(fits); name != "" {
		return nil, fault.New(fault.Denied, "the answer holds the value of the secret %s, which whoever asked would be told", name).
			WithHint("fill in something else, or say no")
	}
	return a.vault.Seal(vault.ApprovalAnswer, q.ID, fits), nil
}

func refusedToResolve(r *Approval, resolver string) error {
	switch {
	case r.State != Pending:
		return fault.New(fault.Conflict, "approval %s is %s since %s resolved it", r.ID, r.State, r.Resolver)
	case r.Subject == resolver:
		return fault.New(fault.Denied, "%s cannot decide about its own call", resolver)
	}
	return fault.New(fault.Conflict, "approval %s expired before it was decided", r.ID)
}

// DetachTx says that the turn went on without waiting any longer: the call
// becomes a run of its own if it is approved. Detaching twice is fine. Conflict if
// the question was decided meanwhile: then there is nothing to leave behind.
func (a *Approvals) DetachTx(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, "UPDATE approvals SET detached = 1 WHERE id = $1 AND state = 'pending'", id)
	if err != nil || n == 1 {
		return err
	}
	r, err := a.load(ctx, tx, id)
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "approval %s is %s already", id, r.State)
}

// WithdrawTx ends the open questions of a run that has ended, but for detached
// ones, which outlive it. It belongs in the transaction that ends the run.
func (a *Approvals) WithdrawTx(ctx context.Context, tx *db.Tx, run, why string) error {
	ids, err := db.All(ctx, tx, db.Column[string],
		"SELECT id FROM approvals WHERE run = $1 AND state IN ('pending', 'approved') AND detached = 0 ORDER BY id", run)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := a.lapse(ctx, tx, id, always, why); err != nil {
			return err
		}
	}
	return nil
}

// expireBatch is how many approvals one look takes.
const expireBatch = 64

// ExpireOnce ends the questions nobody decided in time and the approvals nobody
// used, and returns how many.
func (a *Approvals) ExpireOnce(ctx context.Context) (n int, err error) {
	for {
		var due []string
		err := a.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			due, err = db.All(ctx, q, db.Column[string],
				"SELECT id FROM approvals WHERE state IN ('pending', 'approved') AND expires <= $1 ORDER BY expires, id LIMIT $2",
				a.db.Time(), expireBatch)
			return err
		})
		if err != nil {
			return n, err
		}
		for _, id := range due {
			err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return a.expire(ctx, tx, id) })
			if err != nil && !fault.Is(err, fault.Conflict) {
				return n, err
			}
			n++
		}
		if len(due) < expireBatch {
			return n, nil
		}
	}
}

func (a *Approvals) expire(ctx context.Context, tx *db.Tx, id string) error {
	before, err := a.load(ctx, tx, id)
	if err != nil {
		return err
	}
	why := "nobody decided in time"
	if before.State == Approved {
		why = "it was approved and not used in time"
	}
	if err := a.lapse(ctx, tx, id, tx.Now(), why); err != nil || before.State != Pending {
		return err
	}
	r, err := a.load(ctx, tx, id)
	if err != nil {
		return err
	}
	return a.opt.OnResolved(ctx, tx, r)
}
