package job

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// CallKind is the kind of the runs that make a call of a job.
const CallKind = "jobcall"

// Kinds of event, on the stream job:<id>.
const (
	KindIssued = "job.issued"
	KindEnded  = "job.ended"
)

// Bounds of a job where its Spec names none.
const (
	defaultLife  = time.Hour
	maxLife      = 24 * time.Hour
	defaultCalls = 256
)

// ParentAuthority says what a subject may do now, in a conversation it is talked
// to from with tier.
type ParentAuthority func(ctx context.Context, subject, conversation string, tier policy.Tier) (*act.Authority, error)

// Deps are the parts jobs use.
type Deps struct {
	DB        *db.DB
	Vault     *vault.Vault
	Log       *eventlog.Log
	Runs      *run.Engine
	Act       *act.Act
	Tools     *tool.Registry
	Approvals *approval.Approvals
	Budget    *budget.Budget
	Parent    ParentAuthority
	Hide      *redact.Redactor // is told every token; nil: nothing is hidden
	Logger    *slog.Logger
}

// Jobs are the jobs of one store. It is safe for concurrent use.
type Jobs struct{ Deps }

// New returns the jobs. Add Kind to the engine's kinds before it opens.
func New(d Deps) *Jobs {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Jobs{d}
}

// Spec says what a job is to be.
type Spec struct {
	Subject string         // who the process acts as: "harness:claude"
	Parent  *act.Authority // of the run that issues it
	Rules   []policy.Rule  // what it is given; nil: what its parent was given
	Tools   []string       // names and name.* patterns; nil: every tool
	Label   label.Label    // of what the process is told when it starts
	Life    time.Duration  // default 1 h, at most 24 h
	Calls   int            // how many it can make; default 256
}

// Job is a job that was issued. Times are Unix microseconds.
type Job struct {
	ID, Subject, Run, Conversation string
	Created, Expires, Ended        int64
	Made                           int // calls so far

	fence int64
	body  body
}

// body is the sealed part of a job.
type body struct {
	Parent     string         `json:"parent"`
	Outer      string         `json:"outer,omitempty"` // the job whose call its run is
	Agent      string         `json:"agent,omitempty"`
	Role       string         `json:"role,omitempty"` // of the parent, for people: its layers are in Bounds
	Tier       policy.Tier    `json:"tier"`
	Readers    label.Audience `json:"readers,omitempty"` // of the conversation
	Rules      []policy.Rule  `json:"rules"`
	Bounds     []bound        `json:"bounds"`
	Tools      []string       `json:"tools,omitempty"`
	AllTools   bool           `json:"all_tools,omitempty"`
	Unattended bool           `json:"unattended,omitempty"`
	Calls      int            `json:"calls"`
	Label      label.Label    `json:"label"`
}

// bound is a layer as it is kept.
type bound struct {
	Name  string        `json:"name"`
	Rules []policy.Rule `json:"rules"`
}

// Tier is the tier the job acts with at most.
func (j Job) Tier() policy.Tier { return j.body.Tier }

// Role is the role of its parent, "" for none.
func (j Job) Role() string { return j.body.Role }

// Rules are what it was given.
func (j Job) Rules() []policy.Rule { return slices.Clone(j.body.Rules) }

// Label is that of all it has been shown.
func (j Job) Label() label.Label { return j.body.Label }

// Left is how many calls it can still make.
func (j Job) Left() int { return max(0, j.body.Calls-j.Made) }

// uses reports whether a tool is among those of the job.
func (j Job) uses(name string) bool {
	return j.body.AllTools || slices.ContainsFunc(j.body.Tools, func(want string) bool {
		prefix, all := strings.CutSuffix(want, "*")
		return want == name || all && strings.HasPrefix(name, prefix)
	})
}

// errToken is the answer to every token that is not good, whatever the cause.
var errToken = fault.New(fault.Denied, "this token is not that of a job that is running").
	WithHint("a token is good while the work it was given for goes on")

// Issue makes a job for a run that is being worked on, in its present execution, and
// returns it with its token, which is told only here. Errors: Denied, naming the
// rule, if it asks for more than its parent holds; Conflict if the run is not being
// worked on.
func (j *Jobs) Issue(ctx context.Context, runID string, s Spec) (job Job, token string, err error) {
	if job, err = design(runID, s); err != nil {
		return Job{}, "", err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return Job{}, "", fault.New(fault.Internal, "no system randomness: %w", err)
	}
	j.Hide.Transient("job:"+job.ID, []byte(hex.EncodeToString(secret)))
	life := s.Life
	if life <= 0 {
		life = defaultLife
	}
	err = j.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rec, err := j.Runs.RecordIn(ctx, tx, runID)
		if err == nil && rec.State != run.Running {
			err = fault.New(fault.Conflict, "run %s is %s: it can have no job", runID, rec.State)
		}
		if err == nil {
			job.body.Outer, err = makerOf(rec)
		}
		if err != nil {
			return err
		}
		clock, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		job.fence, job.Created, job.Expires = rec.Fence, tx.Now(), clock+min(life, maxLife).Microseconds()
		if err := j.insert(ctx, tx, job, j.digest(job.ID, secret)); err != nil {
			return err
		}
		return j.tell(ctx, tx, job, KindIssued, "")
	})
	if err != nil {
		return Job{}, "", err
	}
	return job, job.ID + "." + hex.EncodeToString(secret), nil
}

// design checks what is asked for against what the parent holds.
func design(runID string, s Spec) (Job, error) {
	p := s.Parent
	if p == nil || s.Subject == "" {
		return Job{}, fault.New(fault.Internal, "a job needs a subject and the authority of its parent")
	}
	parent := parentInput(p)
	rules := s.Rules
	if rules == nil {
		rules = p.Grants.Rules()
	}
	for _, r := range rules {
		if r.Effect == policy.Deny {
			continue
		}
		if most, why := parent.Holds(r.Scope); s.Rules != nil && most < r.Effect {
			return Job{}, fault.New(fault.Denied, "a job of %s cannot be given %q: %s", p.Subject, r, why.Text)
		}
	}
	job := Job{ID: id.New("job"), Subject: s.Subject, Run: runID, Conversation: p.Conversation, body: body{
		Parent: p.Subject, Agent: p.Agent, Tier: parent.ChildTier(), Readers: p.Readers, Rules: rules, Tools: s.Tools, AllTools: s.Tools == nil,
		Unattended: p.Unattended, Calls: s.Calls, Label: s.Label,
	}}
	if job.body.Calls <= 0 {
		job.body.Calls = defaultCalls
	}
	if p.Role != nil {
		job.body.Role = p.Role.Name()
	}
	for _, l := range parent.Inherit() {
		job.body.Bounds = append(job.body.Bounds, bound{l.Name(), l.Rules()})
	}
	return job, nil
}

func parentInput(p *act.Authority) *policy.Input {
	return &policy.Input{Subject: p.Subject, Grants: p.Grants, Role: p.Role, Bounds: p.Bounds, Tier: p.Tier}
}

// digest is what is kept of a token.
func (j *Jobs) digest(jobID string, secret []byte) []byte {
	return j.Vault.MAC("job.token", []byte(jobID), secret)
}

// Verify returns the job of a token while it is good.
func (j *Jobs) Verify(ctx context.Context, token string) (job Job, err error) {
	err = j.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		job, _, err = j.verify(ctx, q, token, j.DB.Time())
		return err
	})
	return job, err
}

// verify looks a token up. The secret is compared in constant time, and also when
// there is no such job.
func (j *Jobs) verify(ctx context.Context, q db.Q, token string, now int64) (Job, run.Record, error) {
	jobID, text, _ := strings.Cut(token, ".")
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != 32 || !id.Valid("job", jobID) {
		return Job{}, run.Record{}, errToken
	}
	job, kept, err := j.load(ctx, q, jobID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return Job{}, run.Record{}, err
	}
	if missing := err != nil; !hmac.Equal(j.digest(jobID, secret), kept) || missing {
		return Job{}, run.Record{}, errToken
	}
	rec, working, err := j.working(ctx, q, job, now)
	if err == nil && !working {
		err = errToken
	}
	return job, rec, err
}

// working reports whether a job is still at work.
func (j *Jobs) working(ctx context.Context, q db.Q, job Job, now int64) (run.Record, bool, error) {
	rec, working, err := j.Runs.WorkedOn(ctx, q, job.Run, job.fence)
	return rec, working && job.Ended == 0 && now < job.Expires, err
}

// End ends a job: its process is gone. Ending it twice is fine.
func (j *Jobs) End(ctx context.Context, jobID, why string) error {
	return j.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return j.EndTx(ctx, tx, jobID, why) })
}

// EndTx is End in the caller's transaction.
func (j *Jobs) EndTx(ctx context.Context, tx *db.Tx, jobID, why string) error {
	n, err := tx.Exec(ctx, "UPDATE jobs SET ended = $1 WHERE id = $2 AND ended = 0", tx.Now(), jobID)
	if err != nil || n == 0 {
		return err
	}
	job, _, err := j.load(ctx, tx, jobID)
	if err != nil {
		return err
	}
	calls, err := db.All(ctx, tx, db.Column[string], "SELECT run FROM job_calls WHERE job = $1 ORDER BY run", jobID)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if err := j.stopCall(ctx, tx, c, why); err != nil {
			return err
		}
	}
	return j.tell(ctx, tx, job, KindEnded, why)
}

// EndOf ends every job of a run: the execution they were issued for is over.
func (j *Jobs) EndOf(ctx context.Context, runID, why string) error {
	return j.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		open, err := db.All(ctx, tx, db.Column[string], "SELECT id FROM jobs WHERE run = $1 AND ended = 0 ORDER BY id", runID)
		for _, id := range open {
			if err == nil {
				err = j.EndTx(ctx, tx, id, why)
			}
		}
		return err
	})
}

// stopCall stops what a job that has ended still waits for.
func (j *Jobs) stopCall(ctx context.Context, tx *db.Tx, runID, why string) error {
	rec, err := j.Runs.RecordIn(ctx, tx, runID)
	if err != nil || rec.State == run.Completed || rec.State == run.Failed || rec.State == run.Cancelled {
		return err
	}
	err = j.Runs.CancelTx(ctx, tx, runID, "ombud", why)
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// kept is how long a job that has ended is remembered.
const kept = 30 * 24 * time.Hour

// Forget removes jobs that ended long ago, with the keys of their calls, which no token can
// ask for any more. One with a call that still goes on, or that a person can still decide
// about, stays: a decision has to find out that its job is over. What each call was and came
// to is its run's, and that stays.
func (j *Jobs) Forget(ctx context.Context) error {
	for more := true; more; {
		err := j.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			over, err := db.All(ctx, tx, db.Column[string], `SELECT id FROM jobs WHERE ended > 0 AND ended < $1
				AND NOT EXISTS (SELECT 1 FROM job_calls c JOIN runs r ON r.id = c.run WHERE c.job = jobs.id AND r.ended = 0)
				AND NOT EXISTS (SELECT 1 FROM job_calls c JOIN approvals a ON a.run = c.run WHERE c.job = jobs.id AND a.state IN ('pending', 'approved'))
				ORDER BY ended LIMIT $2`, tx.Now()-kept.Microseconds(), forgetBatch)
			for _, jobID := range over {
				if err == nil {
					_, err = tx.Exec(ctx, "DELETE FROM job_calls WHERE job = $1", jobID)
				}
				if err == nil {
					_, err = tx.Exec(ctx, "DELETE FROM jobs WHERE id = $1", jobID)
				}
			}
			more = len(over) == forgetBatch
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetBatch is how many jobs are forgotten in one commit: each has hundreds of calls at most.
const forgetBatch = 16

// sweepBatch is how many jobs are looked at together.
const sweepBatch = 256

// Sweep ends the jobs whose run went on without them or whose time is over, and
// returns how many. Their tokens were no good before: it only cleans up.
func (j *Jobs) Sweep(ctx context.Context) (n int, err error) {
	for after := ""; ; {
		over, last, err := j.over(ctx, after)
		if err != nil {
			return n, err
		}
		for _, jobID := range over {
			if err := j.End(ctx, jobID, "its run went on without it"); err != nil {
				return n, err
			}
			n++
		}
		if last == "" {
			return n, nil
		}
		after = last
	}
}

// over looks at the open jobs behind one and returns those that are at work no
// more, and where to go on, "" at the end.
func (j *Jobs) over(ctx context.Context, after string) (ids []string, last string, err error) {
	err = j.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		ids, last = nil, ""
		open, err := db.All(ctx, q, func(r *db.Rows) (Job, error) {
			job, _, err := j.scan(r.Scan)
			return job, err
		}, "SELECT "+columns+" FROM jobs WHERE ended = 0 AND id > $1 ORDER BY id LIMIT $2", after, sweepBatch)
		if err != nil {
			return err
		}
		for _, job := range open {
			_, working, err := j.working(ctx, q, job, j.DB.Time())
			if err != nil {
				return err
			}
			if !working {
				ids = append(ids, job.ID)
			}
		}
		if len(open) == sweepBatch {
			last = open[len(open)-1].ID
		}
		return nil
	})
	return ids, last, err
}

// jobData is the payload of job.issued and job.ended.
type jobData struct {
	Job     string `json:"job_id"`
	Subject string `json:"subject"`
	Parent  string `json:"parent"`
	Run     string `json:"run_id"`
	Expires int64  `json:"expires_at,omitempty"`
	Why     string `json:"why,omitempty"`
}

func (j *Jobs) tell(ctx context.Context, tx *db.Tx, job Job, kind, why string) error {
	_, err := j.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "job:" + job.ID, Kind: kind, Actor: job.body.Parent, Cause: job.Run, Trace: job.Run, Expect: eventlog.Any,
		Data: jobData{Job: job.ID, Subject: job.Subject, Parent: job.body.Parent, Run: job.Run, Expires: job.Expires, Why: why},
	})
	return err
}

func (j *Jobs) insert(ctx context.Context, tx *db.Tx, job Job, digest []byte) error {
	raw, err := json.Marshal(job.body)
	if err != nil {
		return fault.New(fault.Internal, "body of %s: %w", job.ID, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO jobs (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, 0)`,
		job.ID, digest, job.Subject, job.Run, job.fence, job.Conversation, j.Vault.Seal(vault.JobBody, job.ID, raw), job.Created, job.Expires)
	return err
}
