package job

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Bounds of a call.
const (
	maxInput = 1 << 20 // bytes
	maxKey   = 200     // bytes
	callStep = "call"
)

// Request is a call a job wants made.
type Request struct {
	Token string
	Tool  string
	Input json.RawMessage
	Key   string        // the same key is the same call; "" for a call that is sent once
	Wait  time.Duration // how long to wait for a person, too
	// Within lets the job call a tool that is for what ombud does by itself. Whoever holds
	// the token alone cannot set it.
	Within bool
	// Patient lets the call wait for a person as long as its question is open. Such a question
	// does not outlive its job.
	Patient bool
}

// Answer is what became of a call.
type Answer struct {
	Run       string
	Result    act.Result
	Duplicate bool // the key was known
}

// callInput is what a jobcall run is started with.
type callInput struct {
	Job      string          `json:"job"`
	Tool     string          `json:"tool,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Within   bool            `json:"within,omitempty"`
	Patient  bool            `json:"patient,omitempty"`
	Approval string          `json:"approval,omitempty"` // given after the run that asked had ended
}

// Kind is the kind of run that makes a job's calls.
func (j *Jobs) Kind() run.Kind {
	return run.Kind{Name: CallKind, Handle: j.handle, TellUnknown: true, Heard: true, Ended: j.callEnded}
}

// Call makes a call and waits for what it comes to. What the call came to, a
// refusal too, is in the answer; a Result of class Waiting names the approval that
// has to come first. Errors: Denied for a token that is not good; Conflict for a
// key that came with another call before; Unavailable when the job has no call
// left; or the store's.
func (j *Jobs) Call(ctx context.Context, req Request) (Answer, error) {
	if len(req.Input) > maxInput || len(req.Key) > maxKey {
		return Answer{}, fault.New(fault.Invalid, "a call has at most %d bytes of input and %d of key", maxInput, maxKey)
	}
	if len(req.Input) == 0 {
		req.Input = json.RawMessage("{}")
	}
	if req.Key == "" {
		req.Key = id.New("key")
	}
	var ans Answer
	err := j.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		ans, err = j.begin(ctx, tx, req)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return j.await(ctx, req, ans)
}

// begin finds the call of the key, or starts it, as a child of the job's run.
func (j *Jobs) begin(ctx context.Context, tx *db.Tx, req Request) (Answer, error) {
	clock, err := tx.Clock(ctx)
	if err != nil {
		return Answer{}, err
	}
	job, parent, err := j.verify(ctx, tx, req.Token, clock)
	if err != nil {
		return Answer{}, err
	}
	key := j.Vault.Blind(vault.JobCallKey, job.ID+"\x00"+req.Key)
	mac := j.Vault.MAC("job.call", []byte(req.Tool), req.Input)
	var ans Answer
	var had []byte
	err = tx.QueryRow(ctx, "SELECT run, body_mac FROM job_calls WHERE job = $1 AND key = $2", job.ID, key).Scan(&ans.Run, &had)
	switch {
	case err == nil && !bytes.Equal(had, mac):
		return Answer{}, fault.New(fault.Conflict, "another call was made with this key before").WithHint("use a new key for a new call")
	case err == nil:
		ans.Duplicate = true
		return ans, nil
	case !errors.Is(err, sql.ErrNoRows):
		return Answer{}, err
	case job.Left() == 0:
		return Answer{}, fault.New(fault.Unavailable, "the job has made its %d calls", job.body.Calls)
	}
	ans.Run, err = j.Runs.StartTx(ctx, tx, run.Spec{
		Kind: CallKind, Name: req.Tool, Definition: "jobcall.v1", Key: parent.Key, Width: parent.Width, Parent: parent.ID,
		Cause: parent.Cause, Actor: job.Subject, Input: callInput{Job: job.ID, Tool: req.Tool, Input: req.Input, Within: req.Within, Patient: req.Patient},
	})
	if err != nil {
		return Answer{}, err
	}
	if _, err := tx.Exec(ctx, "UPDATE jobs SET calls = calls + 1 WHERE id = $1", job.ID); err != nil {
		return Answer{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO job_calls (job, key, run, body_mac) VALUES ($1, $2, $3, $4)", job.ID, key, ans.Run, mac)
	return ans, err
}

// await returns when the call has come to something, or waits for a person longer
// than the request does.
func (j *Jobs) await(ctx context.Context, req Request, ans Answer) (Answer, error) {
	rec, err := j.Runs.WaitOrAsked(ctx, ans.Run, req.Wait)
	switch {
	case err != nil:
		return ans, err
	case rec.State.Ended():
		ans.Result, err = j.resultOf(ctx, rec)
	default:
		ans.Result, err = j.waiting(ctx, rec.WaitRef)
	}
	return ans, err
}

// waiting is the answer while a person has to decide.
func (j *Jobs) waiting(ctx context.Context, aprID string) (act.Result, error) {
	a, err := j.Approvals.Get(ctx, aprID)
	return act.Result{
		Status: act.Parked, Tool: a.Tool, Summary: a.Summary, Approval: aprID, Class: fault.Waiting, Label: label.Of(label.Own, label.OperatorOnly),
		Text: "not done: it waits for the operator's approval " + aprID + "; ask again with the same key to learn what became of it",
	}, err
}

// resultOf is what a call that has ended came to. One that was left to a later
// approval is looked up again: it may have been decided meanwhile.
func (j *Jobs) resultOf(ctx context.Context, rec run.Record) (act.Result, error) {
	if rec.State != run.Completed {
		return act.Result{Status: act.Failed, Tool: rec.Name, Text: rec.Error, Class: rec.ErrorClass, Label: label.Of(label.Own, label.OperatorOnly)}, nil
	}
	var res act.Result
	if err := json.Unmarshal(rec.Result, &res); err != nil {
		return res, fault.New(fault.Internal, "result of call %s: %w", rec.ID, err)
	}
	if res.Status != act.Parked {
		return res, nil
	}
	a, err := j.Approvals.Get(ctx, res.Approval)
	switch {
	case err != nil:
		return res, err
	case a.State == approval.Denied:
		res.Status, res.Class, res.Text = act.Refused, fault.Denied, a.Resolver+" refused this call"
	case a.State == approval.Expired:
		res.Status, res.Class, res.Text = act.Refused, fault.Timeout, "nobody approved this call before the question expired"
	}
	return res, nil
}

// handle is the handler of CallKind.
func (j *Jobs) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	var in callInput
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, fault.New(fault.Internal, "input of the call: %w", err)
	}
	job, working, err := j.jobOf(ctx, in.Job)
	if err != nil {
		return nil, err
	}
	if _, begun := r.Recorded(callStep); !begun && !working {
		return nil, fault.New(fault.Denied, "the job that wanted this call has ended")
	}
	auth, err := j.authority(ctx, job)
	if err != nil {
		return nil, err
	}
	res, err := j.make(ctx, r, job, auth, in)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(res)
	if err != nil {
		return nil, err
	}
	return result, r.Finish(ctx, run.StepSpec{Name: "answer", Kind: "answer"}, result, func(ctx context.Context, tx *db.Tx) error {
		return j.shownTx(ctx, tx, job.ID, res.Label)
	})
}

// make makes the call through the one door to all effects.
func (j *Jobs) make(ctx context.Context, r *run.Run, job Job, auth *act.Authority, in callInput) (act.Result, error) {
	call := act.Call{Step: callStep, Tool: in.Tool, Input: in.Input, Authority: auth, Label: job.body.Label, Within: in.Within, Patient: in.Patient}
	if in.Approval == "" {
		if d, err := j.Tools.Get(in.Tool); err == nil && !in.Within && !job.uses(d.Name) {
			call.Tool = d.Name + " (not among the tools of this job)"
		}
		return j.Act.Call(ctx, r, call)
	}
	apr, err := j.Approvals.Get(ctx, in.Approval)
	if err != nil {
		return act.Result{}, err
	}
	call.Tool, call.Input = apr.Tool, apr.Input
	return j.Act.CallApproved(ctx, r, call, apr)
}

func (j *Jobs) jobOf(ctx context.Context, jobID string) (job Job, working bool, err error) {
	err = j.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		if job, _, err = j.load(ctx, q, jobID); err != nil {
			return err
		}
		_, working, err = j.working(ctx, q, job, j.DB.Time())
		return err
	})
	return job, working, err
}

// authority is what the job may do now: what it was given, within all that bound
// its parent when it was issued, within all that binds its parent now.
func (j *Jobs) authority(ctx context.Context, job Job) (*act.Authority, error) {
	now, err := j.holder(ctx, job.body.Outer, job.body.Parent, job.Conversation, job.body.Tier)
	if err != nil {
		return nil, err
	}
	auth := &act.Authority{
		Subject: job.Subject, Agent: job.body.Agent, Conversation: job.Conversation, Readers: job.body.Readers,
		Grants:   policy.NewLayer("grants of "+job.Subject, job.body.Rules),
		Autonomy: now.Autonomy, Unattended: now.Unattended || job.body.Unattended,
	}
	for _, b := range job.body.Bounds {
		auth.Bounds = append(auth.Bounds, policy.NewLayer(b.Name, b.Rules))
	}
	parent := parentInput(now)
	auth.Bounds = append(auth.Bounds, parent.Inherit()...)
	auth.Tier = min(job.body.Tier, parent.ChildTier())
	return auth, nil
}

// AuthorityOf is what whoever makes the calls of a run may do now: a job, if the run is the
// call of one, and else subject.
func (j *Jobs) AuthorityOf(ctx context.Context, runID, subject, conversation string, tier policy.Tier) (*act.Authority, error) {
	var outer string
	err := j.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rec, err := j.Runs.RecordIn(ctx, q, runID)
		if err == nil {
			outer, err = makerOf(rec)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return j.holder(ctx, outer, subject, conversation, tier)
}

// makerOf is the job whose call a run is, "" if it is none.
func makerOf(rec run.Record) (string, error) {
	if rec.Kind != CallKind {
		return "", nil
	}
	var in callInput
	if err := json.Unmarshal(rec.Input, &in); err != nil {
		return "", fault.New(fault.Internal, "input of the call %s: %w", rec.ID, err)
	}
	return in.Job, nil
}

func (j *Jobs) holder(ctx context.Context, outer, subject, conversation string, tier policy.Tier) (*act.Authority, error) {
	if outer == "" {
		return j.Parent(ctx, subject, conversation, tier)
	}
	job, _, err := j.jobOf(ctx, outer)
	if err != nil {
		return nil, err
	}
	return j.authority(ctx, job)
}

// callEnded settles what a call leaves when it ends.
func (j *Jobs) callEnded(ctx context.Context, tx *db.Tx, rec run.Record) error {
	if err := j.Budget.SettleTx(ctx, tx, rec.ID); err != nil {
		return err
	}
	return j.Approvals.WithdrawTx(ctx, tx, rec.ID, "the call has ended")
}

// ApprovingTx refuses a yes to a question that a job waits for which has ended, though
// nobody has swept it yet, as after a crash. Nobody would hear the answer, and whoever gave
// it would take it for given.
func (j *Jobs) ApprovingTx(ctx context.Context, tx *db.Tx, apr approval.Approval) error {
	if apr.Detached {
		return nil
	}
	var jobID string
	err := tx.QueryRow(ctx, "SELECT job FROM job_calls WHERE run = $1", apr.Run).Scan(&jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	job, _, err := j.load(ctx, tx, jobID)
	if err != nil {
		return err
	}
	if _, working, err := j.working(ctx, tx, job, tx.Now()); err != nil || working {
		return err
	}
	return fault.New(fault.Conflict, "what asked %s has ended, so nobody waits for the answer", apr.ID).
		WithHint("ombud inbox shows whether it asks again")
}

// DecidedTx takes the decision about a call that a job left to a person. It reports
// whether it was one: then the call is a run of its own now, under its old key.
func (j *Jobs) DecidedTx(ctx context.Context, tx *db.Tx, apr approval.Approval) (ours bool, err error) {
	if !apr.Detached {
		return false, nil
	}
	var jobID string
	err = tx.QueryRow(ctx, "SELECT job FROM job_calls WHERE run = $1", apr.Run).Scan(&jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil || apr.State != approval.Approved {
		return true, err
	}
	var was callInput
	asked, err := j.Runs.RecordIn(ctx, tx, apr.Run)
	if err == nil {
		err = json.Unmarshal(asked.Input, &was)
	}
	if err != nil {
		return true, err
	}
	runID, err := j.Runs.StartTx(ctx, tx, run.Spec{
		ID: "run_" + apr.ID[len("apr_"):], Kind: CallKind, Name: apr.Tool, Definition: apr.ToolDigest, Cause: apr.ID, Actor: apr.Resolver,
		Parent: apr.Run, Input: callInput{Job: jobID, Approval: apr.ID, Within: was.Within},
	})
	if err != nil {
		return true, err
	}
	_, err = tx.Exec(ctx, "UPDATE job_calls SET run = $1 WHERE run = $2", runID, apr.Run)
	return true, err
}

// Offer is a tool as a job is told of it.
type Offer struct {
	Name, Description string
	Input             json.RawMessage
	ReadOnly          bool
}

// Offers are the tools the job of a token can try: those among its tools of which
// something is not denied to it from the start.
func (j *Jobs) Offers(ctx context.Context, token string) ([]Offer, error) {
	job, err := j.Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	auth, err := j.authority(ctx, job)
	if err != nil {
		return nil, err
	}
	in := parentInput(auth)
	var out []Offer
	for _, d := range j.Tools.List() {
		if d.Only != "" || d.Within || d.Lent || !job.uses(d.Name) {
			continue
		}
		if j.outOfReach(in, d) {
			continue
		}
		out = append(out, Offer{Name: d.Name, Description: d.Description, Input: d.Input, ReadOnly: d.ReadOnly})
	}
	return out, nil
}

// outOfReach reports whether something is denied of a tool whose needs do not
// depend on its input.
func (j *Jobs) outOfReach(in *policy.Input, d tool.Definition) bool {
	nothing := json.RawMessage("{}")
	if j.Tools.Validate(d.Name, nothing) != nil { // Scopes takes only what fits the schema
		return false
	}
	needs, err := d.Scopes(nothing)
	return err == nil && slices.ContainsFunc(needs, func(s scope.Scope) bool {
		most, _ := in.Reach(s)
		return most == policy.Deny
	})
}
