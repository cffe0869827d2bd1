package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

	MicroUSD int64         `json:"micro_usd"`                    // of this run
	Priced   bool          `json:"priced"`                       // that is known, and not the least it may be
	Possible int64         `json:"possible_micro_usd,omitempty"` // it may have cost beside that
	Usage    harness.Usage `json:"usage"`                        // of this run
	Total    Total         `json:"total"`                        // of the session, as its program told it

	Files  []Changed `json:"files,omitempty"`
	More   int       `json:"more_files,omitempty"`
	Tree   string    `json:"worktree,omitempty"`
	Dirty  int       `json:"dirty,omitempty"` // files of the repository whose changes it did not see
	Checks []Check   `json:"checks,omitempty"`
	Notes  []string  `json:"notes,omitempty"`
	Tries  int       `json:"tries"` // how often its program was started

	CutOff  bool `json:"cut_off,omitempty"` // its program was ended before it told all
	Bounded bool `json:"bounded,omitempty"` // Possible is the most there may be
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
	Possible int64  `json:"possible_micro_usd,omitempty"`
}

const maxTold = 500 // bytes of a task in its event

// endedTx is part of the commit that ends a run, however it ended: what it cost and used
// is the session's from now on, the event is there, and whoever is to hear of it is told.
// Where that cannot be done now, Settle does it at the next start.
func (s *Service) endedTx(ctx context.Context, tx *db.Tx, rec run.Record) error {
	var t Task
	if err := json.Unmarshal(rec.Input, &t); err != nil {
		return fault.New(fault.Internal, "input of %s: %w", rec.ID, err)
	}
	if x, err := s.get(ctx, tx, rec.ID); err != nil || x.Ended > 0 {
		return err
	}
	rep, err := s.settleTx(ctx, tx, rec, t)
	if err != nil {
		return err
	}
	ev := completed{
		Job: rec.ID, Tool: CallTool, Task: fault.Cut(t.Prompt, maxTold), Status: "completed", Output: rep.Answer, Session: t.Session, Error: rep.Error,
		Outcome: string(rep.Outcome), Harness: t.Harness, Model: t.Model, MicroUSD: rep.MicroUSD, Priced: rep.Priced, Possible: rep.Possible,
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
	why := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return s.wakeTx(ctx, tx, rec, t, rep, told[0].ID) })
	if why == nil || fault.Is(why, fault.Unavailable) {
		return why
	}
	s.Logger.Error("tell a conversation of the end of a task", "run", rec.ID, "error", why)
	return s.Agents.NoticeTx(ctx, tx, rec.ID, "Whoever gave this task could not be told of its end: "+fault.Cut(why.Error(), 500)+"\n\n"+rep.Text)
}

// Settle does what could not be done when runs ended. Call it at each start, before runs go on.
func (s *Service) Settle(ctx context.Context) error {
	var open []string
	err := s.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		open, err = db.All(ctx, q, db.Column[string], "SELECT run FROM delegations WHERE ended = 0 ORDER BY run")
		return err
	})
	for _, id := range open {
		rec, _, unread := s.Runs.Get(ctx, id)
		if unread == nil && !rec.State.Ended() {
			continue
		}
		if unread == nil {
			unread = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return s.endedTx(ctx, tx, rec) })
		}
		if unread != nil { // the others all the same
			err = errors.Join(err, fault.New(fault.ClassOf(unread), "the end of the task %s: %w", id, unread))
		}
	}
	return err
}

// settleTx books what is left to book and closes the row of the run.
func (s *Service) settleTx(ctx context.Context, tx *db.Tx, rec run.Record, t Task) (Report, error) {
	rep := Report{Outcome: harness.Outcome(rec.State), Error: rec.Error, Harness: t.Harness, Model: t.Model, Session: t.Session}
	rep.Label = label.Join(t.Label, label.Of(label.Untrusted("harness:"+t.Harness), label.OperatorOnly))
	if rec.State == run.Completed && len(rec.Result) > 0 {
		if err := json.Unmarshal(rec.Result, &rep); err != nil {
			rep.Outcome, rep.Error = harness.Failed, "its report cannot be read: "+err.Error()
		}
	}
	x, err := s.session(ctx, tx, t.Session)
	if fault.Is(err, fault.Verification) { // its row is damaged, and the run has ended all the same
		s.Logger.Error("the session of a task that has ended", "run", rec.ID, "session", t.Session, "error", err)
		err = fault.New(fault.NotFound, "session %s cannot be read: %w", t.Session, err)
	}
	if err == nil && rec.State != run.Completed {
		err = s.costOfEnded(ctx, tx, rec.ID, x, t, &rep)
	}
	lost := fault.Is(err, fault.NotFound) // dropped meanwhile
	if err != nil && !lost {
		return rep, err
	}
	if err := s.letGoTx(ctx, tx, rec, &rep); err != nil {
		return rep, err
	}
	if rep.Text == "" {
		rep.Text = tell(rep)
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
	_, err = tx.Exec(ctx, "UPDATE delegations SET outcome = $1, cost = $2, priced = $3, possible = $4, ended = $5 WHERE run = $6",
		string(rep.Outcome), rep.MicroUSD, priced, rep.Possible, tx.Now(), rec.ID)
	return rep, err
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
	switch {
	case r.Priced:
		fmt.Fprintf(&b, ", %s", budget.USD(r.MicroUSD))
	case r.MicroUSD > 0 && r.Possible > 0:
		fmt.Fprintf(&b, ", at least %s, perhaps %s more", budget.USD(r.MicroUSD), budget.USD(r.Possible))
	case r.MicroUSD > 0:
		fmt.Fprintf(&b, ", at least %s", budget.USD(r.MicroUSD))
	case r.Possible > 0:
		fmt.Fprintf(&b, ", cost unknown, perhaps %s", budget.USD(r.Possible))
	default:
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
