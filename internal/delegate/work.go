package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

// RunKind is the kind of run that is a delegation. Whoever waits for it hears how it
// ended, and whoever does not is told.
func (s *Service) RunKind() run.Kind {
	return run.Kind{Name: Kind, TellUnknown: true, Heard: true, Handle: s.handle, Ended: s.endedTx}
}

// Report is the result of a run: what its first two fields say is for a model.
type Report struct {
	act.Awaited
	Outcome harness.Outcome `json:"outcome"`
	Harness string          `json:"harness"`
	Model   string          `json:"model,omitempty"`
	Session string          `json:"session"`
	Answer  string          `json:"answer"` // what it said last, cut
	Error   string          `json:"error,omitempty"`

	MicroUSD int64         `json:"micro_usd"` // of this run
	Priced   bool          `json:"priced"`    // that is known
	Usage    harness.Usage `json:"usage"`     // of this run
	Total    Total         `json:"total"`     // of the session, as its program told it

	Files  []Changed `json:"files,omitempty"`
	More   int       `json:"more_files,omitempty"`
	Tree   string    `json:"worktree,omitempty"`
	Dirty  int       `json:"dirty,omitempty"` // files of the repository whose changes it did not see
	Checks []Check   `json:"checks,omitempty"`
	Notes  []string  `json:"notes,omitempty"`
	Tries  int       `json:"tries"` // how often its program was started
}

// Total is what a program tells of a whole session.
type Total struct {
	MicroUSD int64         `json:"micro_usd,omitempty"`
	Usage    harness.Usage `json:"usage,omitzero"`
}

// Check is a command that was run where a delegation wrote.
type Check struct {
	Command string `json:"command"`
	OK      bool   `json:"ok"`
	How     string `json:"how"`
	Output  string `json:"output,omitempty"` // its end
}

func (s *Service) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	var t Task
	if err := json.Unmarshal(r.Input(), &t); err != nil {
		return nil, fault.New(fault.Internal, "input of the delegation: %w", err)
	}
	auth, err := s.authority(ctx, t)
	if err != nil {
		return nil, err
	}
	most, err := s.reserve(ctx, r, t, auth)
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(runInput{Use: t.Use, Harness: t.Harness, Model: t.Model, Session: t.Session, Dir: t.Dir, Write: t.Write, Limit: most})
	if err != nil {
		return nil, err
	}
	use, err := scope.Parse(t.Use)
	if err != nil {
		return nil, err
	}
	auth.Standing = append(auth.Standing, use) // that it may be given was decided when it was asked for
	res, err := s.Act.Call(ctx, r, act.Call{Step: runStep, Tool: RunTool, Input: input, Authority: auth, Label: t.Label, Within: true})
	switch {
	case err != nil:
		return nil, err
	case res.Status != act.OK:
		return nil, res.Err()
	}
	var rep Report
	if err := json.Unmarshal([]byte(res.Text), &rep); err != nil {
		return nil, fault.New(fault.Verification, "the report of %s: %w", r.ID(), err)
	}
	rep.Label = label.Join(t.Label, res.Label)
	rep.Text = tell(rep)
	return json.Marshal(rep)
}

// The steps of a run.
const (
	runStep     = "run"
	reserveStep = "reserve"
)

// reserve holds what the delegation may cost while it works, and returns it: its limit, or
// what is left of the budgets above it. 0 is no limit.
func (s *Service) reserve(ctx context.Context, r *run.Run, t Task, auth *act.Authority) (most int64, err error) {
	out, err := r.DoTx(ctx, run.StepSpec{Name: reserveStep, Kind: "budget"}, func(ctx context.Context, tx *db.Tx) run.Outcome {
		left, err := s.Budget.Left(ctx, tx, auth.Agent, r.ID())
		if err != nil {
			return run.Fail(err)
		}
		most := t.Limit
		if left.Limited && left.Left > 0 && (most == 0 || left.Left < most) {
			most = left.Left
		}
		_, err = s.Budget.ReserveTx(ctx, tx, budget.Reserve{
			Run: r.ID(), Step: reserveStep, Agent: auth.Agent, Provider: t.Harness, Model: t.Model, Amount: most, Known: most > 0,
		})
		if err != nil {
			return run.Fail(err)
		}
		held, err := json.Marshal(most)
		if err != nil {
			return run.Fail(err)
		}
		return run.Succeed(held)
	})
	if err == nil {
		err = out.Err
	}
	if err == nil {
		err = json.Unmarshal(out.Result, &most)
	}
	return most, err
}

// completed is the payload of delegation.completed, with KARMAX's keys and ours.
type completed struct {
	Job     string `json:"job_id"` // the run
	Tool    string `json:"tool"`
	Task    string `json:"task"`
	Status  string `json:"status"` // completed or failed
	Output  string `json:"output,omitempty"`
	Session string `json:"session_id,omitempty"`
	Error   string `json:"error,omitempty"`

	Outcome  string `json:"outcome"`
	Harness  string `json:"harness"`
	Model    string `json:"model,omitempty"`
	MicroUSD int64  `json:"micro_usd"`
	Priced   bool   `json:"priced"`
}

const maxTold = 500 // bytes of a task in its event

// endedTx is part of the commit that ends a run, however it ended: what it cost and used
// is the session's from now on, the event is there, and whoever is to hear of it is told.
func (s *Service) endedTx(ctx context.Context, tx *db.Tx, rec run.Record) error {
	var t Task
	if err := json.Unmarshal(rec.Input, &t); err != nil {
		return fault.New(fault.Internal, "input of %s: %w", rec.ID, err)
	}
	rep, err := s.settleTx(ctx, tx, rec, t)
	if err != nil {
		return err
	}
	ev := completed{
		Job: rec.ID, Tool: CallTool, Task: fault.Cut(t.Prompt, maxTold), Status: "completed", Output: rep.Answer, Session: t.Session, Error: rep.Error,
		Outcome: string(rep.Outcome), Harness: t.Harness, Model: t.Model, MicroUSD: rep.MicroUSD, Priced: rep.Priced,
	}
	if rep.Outcome != harness.Completed {
		ev.Status = "failed"
	}
	told, err := s.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "delegation:" + rec.ID, Kind: KindCompleted, Actor: "harness:" + t.Harness, Cause: rec.Cause, Trace: rec.ID, Expect: eventlog.Any, Data: ev,
	})
	if err != nil || !t.Background {
		return err
	}
	return s.wakeTx(ctx, tx, rec, t, rep, told[0].ID)
}

// settleTx books what is left to book and closes the row of the run.
func (s *Service) settleTx(ctx context.Context, tx *db.Tx, rec run.Record, t Task) (Report, error) {
	rep := Report{Outcome: harness.Outcome(rec.State), Error: rec.Error, Harness: t.Harness, Model: t.Model, Session: t.Session}
	rep.Label = label.Join(t.Label, label.Of(label.Untrusted("harness:"+t.Harness), label.OperatorOnly))
	if rec.State == run.Completed && len(rec.Result) > 0 {
		if err := json.Unmarshal(rec.Result, &rep); err != nil {
			return rep, fault.New(fault.Verification, "the report of %s: %w", rec.ID, err)
		}
	}
	x, err := s.session(ctx, tx, t.Session)
	if err == nil && rec.State != run.Completed {
		err = s.costOfEnded(ctx, tx, rec.ID, x, t, &rep)
	}
	lost := fault.Is(err, fault.NotFound) // dropped meanwhile
	if err != nil && !lost {
		return rep, err
	}
	if rep.Text == "" {
		rep.Text = tell(rep)
	}
	if err := s.letGoTx(ctx, tx, rec, rep); err != nil {
		return rep, err
	}
	if !lost {
		x.Body.MicroUSD = max(x.Body.MicroUSD, rep.Total.MicroUSD)
		if rep.Total.Usage.Known {
			x.Body.Usage = rep.Total.Usage
		}
		x.Used = tx.Now()
		if err := s.saveSession(ctx, tx, x); err != nil {
			return rep, err
		}
	}
	priced := 0
	if rep.Priced {
		priced = 1
	}
	_, err = tx.Exec(ctx, "UPDATE delegations SET outcome = $1, cost = $2, priced = $3, ended = $4 WHERE run = $5",
		string(rep.Outcome), rep.MicroUSD, priced, tx.Now(), rec.ID)
	return rep, err
}

// costOfEnded fills in what a run cost that did not come to its end, if its program told it
// when it was ended.
func (s *Service) costOfEnded(ctx context.Context, tx *db.Tx, runID string, x Session, t Task, rep *Report) error {
	row, err := s.get(ctx, tx, runID)
	if err != nil {
		return err
	}
	k, told, err := s.kept(ctx, tx, runID)
	if err != nil || !told || k.Try != row.Tries || !k.Record.Cost.Known {
		return err
	}
	s.price(rep, &work{t: t, x: x, try: 1}, k.Record)
	return nil
}

// letGoTx books what was held against the budget as what it came to: the cost, if that is
// known; one that nobody knows, for a program that came to its end; what it may have cost,
// for one that did not; and nothing for one that was never started.
func (s *Service) letGoTx(ctx context.Context, tx *db.Tx, rec run.Record, rep Report) error {
	rid, err := s.Budget.OpenOf(ctx, tx, rec.ID, reserveStep)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	started, err := s.triedTx(ctx, tx, rec.ID)
	switch {
	case err != nil:
		return err
	case !started:
		return s.Budget.ReleaseTx(ctx, tx, rid)
	case rec.State != run.Completed && !rep.Priced:
		return s.Budget.PossibleTx(ctx, tx, rid)
	}
	u := rep.Usage
	tokens := budget.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
	if err := s.Budget.TokensTx(ctx, tx, rid, tokens); err != nil {
		return err
	}
	return s.Budget.CommitTx(ctx, tx, rid, rep.MicroUSD, rep.Priced)
}

// triedTx reports whether the program of a run was ever started.
func (s *Service) triedTx(ctx context.Context, tx *db.Tx, runID string) (bool, error) {
	x, err := s.get(ctx, tx, runID)
	return x.Tries > 0, err
}

// wakeTx tells of the end of what went on in the background: whoever began it goes on with
// it, in the conversation it was begun in; what the operator began is told to them.
func (s *Service) wakeTx(ctx context.Context, tx *db.Tx, rec run.Record, t Task, rep Report, event string) error {
	if !strings.HasPrefix(t.Subject, "agent:") || t.Conversation == "" {
		return s.Agents.NoticeTx(ctx, tx, rec.ID, rep.Text)
	}
	conv, err := s.Agents.ConversationIn(ctx, tx, t.Conversation)
	if err != nil {
		return err
	}
	_, err = s.Agents.IntakeTx(ctx, tx, agent.Inbound{
		Address: conv.Address, Agent: strings.TrimPrefix(t.Subject, "agent:"), Sender: "harness:" + t.Harness, SenderName: t.Harness,
		Text: "The task you gave to " + t.Harness + " in the background (" + rec.ID + ") has ended. The task was: " + fault.Cut(t.Prompt, maxTold) + "\n\n" + rep.Text,
		Key:  "delegation:" + rec.ID, Source: label.Untrusted("harness:" + t.Harness), Audience: t.Readers, Tier: min(t.Tier, policy.Trusted), Unattended: t.Unattended,
		Cause: event, Within: agent.Within{Label: rep.Label},
	})
	return err
}

// tell is a report for a model or a person.
func tell(r Report) string {
	var b strings.Builder
	who := r.Harness
	if r.Model != "" {
		who += "/" + r.Model
	}
	fmt.Fprintf(&b, "%s: %s", who, cmp.Or(string(r.Outcome), "no outcome"))
	if r.Priced {
		fmt.Fprintf(&b, ", %s", budget.USD(r.MicroUSD))
	} else {
		b.WriteString(", cost unknown")
	}
	fmt.Fprintf(&b, ", session %s\n", r.Session)
	if r.Error != "" {
		fmt.Fprintf(&b, "error: %s\n", r.Error)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if r.Tree != "" {
		fmt.Fprintf(&b, "changed files: %d, in the worktree %s and not in the repository\n", len(r.Files)+r.More, r.Tree)
		for i, f := range r.Files {
			if i == 20 {
				fmt.Fprintf(&b, "  and %d more\n", len(r.Files)+r.More-i)
				break
			}
			fmt.Fprintf(&b, "  %s (%s)\n", f.Path, lines(f))
		}
	}
	for _, c := range r.Checks {
		verdict := "passed"
		if !c.OK {
			verdict = "failed, " + c.How + ": " + c.Output
		}
		fmt.Fprintf(&b, "check %q: %s\n", c.Command, verdict)
	}
	if r.Answer != "" {
		fmt.Fprintf(&b, "\n%s\n", r.Answer)
	}
	return strings.TrimRight(b.String(), "\n")
}

func lines(c Changed) string {
	if c.Added < 0 {
		return "binary"
	}
	return fmt.Sprintf("+%d -%d", c.Added, c.Removed)
}

// outlive is what a call of harness.run may take beside the work of its program.
const outlive = 10 * time.Minute
