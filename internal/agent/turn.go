package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

// Outcome says how a turn ended.
type Outcome string

// The ways a turn can end.
const (
	Completed  Outcome = "completed"
	Cancelled  Outcome = "cancelled"
	TimedOut   Outcome = "timed_out"
	StepLimit  Outcome = "step_limit"
	Looping    Outcome = "looping"
	Escalated  Outcome = "escalated" // the answer is for the operator and not for the conversation
	ParkedTurn Outcome = "parked"
	OverBudget Outcome = "over_budget"
	FailedTurn Outcome = "failed"
)

// Answer is the recorded result of a turn.
type Answer struct {
	Outcome   Outcome  `json:"outcome"`
	Reply     string   `json:"reply"`
	Calls     int      `json:"calls"`               // made, refused ones included
	Approvals []string `json:"approvals,omitempty"` // parked calls it left behind
	Provider  string   `json:"provider,omitempty"`
	Model     string   `json:"model,omitempty"`

	Label    label.Label `json:"label"`              // of the whole turn
	Withheld string      `json:"withheld,omitempty"` // the answer that was kept from the conversation
	Why      string      `json:"why,omitempty"`      // it was
}

// errDeadline is the cause of a turn's context when its time is over.
var errDeadline = errors.New("the turn's time is over")

// turn is one turn being worked on. All of it but the record is rebuilt from the
// record when the handler is called again.
type turn struct {
	a        *Agents
	r        *run.Run
	in       TurnInput
	identity Identity
	auth     *act.Authority
	snap     Snapshot
	specs    []model.ToolSpec
	messages []model.Message
	label    label.Label
	breaker  breaker
	ran      []act.Result // in order
	parked   []string
	last     model.Response
	reminded bool // the one re-prompt for a claim was used
}

// turn is the handler of TurnKind.
func (a *Agents) turn(ctx context.Context, r *run.Run) ([]byte, error) {
	t := &turn{a: a, r: r}
	if err := json.Unmarshal(r.Input(), &t.in); err != nil {
		return nil, fault.New(fault.Internal, "input of the turn: %w", err)
	}
	t.identity = a.identity(t.in.Agent)
	t.specs = a.specs(t.identity, t.in)
	var err error
	if t.auth, err = a.authority(ctx, t.in); err != nil {
		return nil, brief(err)
	}
	ctx, cancel := r.Bound(ctx, a.cfg.Timeout, errDeadline)
	defer cancel()
	err = t.work(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errDeadline) && !run.Unwinding(err) {
		err = fault.New(fault.Timeout, "the turn did not end within %s", a.cfg.Timeout)
	}
	return nil, brief(err)
}

// maxError is how much of an error is recorded and told, in bytes.
const maxError = 4 << 10

// brief makes an error fit to be recorded and told: with what to do about it, and
// cut where somebody else made it long, such as the page a proxy answers with.
// What unwinds the handler is left as it is.
func brief(err error) error {
	if err == nil || run.Unwinding(err) {
		return err
	}
	text, cut := guard.CutText(guard.CleanText(err.Error()), maxError)
	if cut {
		text += " …"
	}
	hint, _ := guard.CutText(guard.CleanText(fault.HintOf(err)), maxError)
	switch {
	case hint != "":
		text += " (" + hint + ")"
	case !cut:
		return err
	}
	return fault.New(fault.ClassOf(err), "%s", text)
}

// work takes the turn's steps until it has an answer, and records that.
func (t *turn) work(ctx context.Context) error {
	if err := t.remember(ctx); err != nil {
		return err
	}
	for n := range t.a.cfg.Steps {
		resp, err := t.think(ctx, n)
		if over, ok := errors.AsType[*overBudgetError](err); ok {
			return t.finish(ctx, OverBudget, "I stopped: "+over.Error()+".")
		}
		if err != nil {
			return err
		}
		if len(resp.Calls) == 0 {
			if again := t.unbacked(resp.Text); again != "" && !t.reminded && n+1 < t.a.cfg.Steps {
				t.reminded = true
				t.messages = append(t.messages, resp.Message(), model.Text(model.User, again))
				continue
			}
			return t.finish(ctx, Completed, t.final(resp))
		}
		if why := t.breaker.calls(resp.Calls); why != "" {
			return t.finish(ctx, Looping, "I stopped because "+why+".")
		}
		t.messages = append(t.messages, resp.Message())
		results, err := t.act(ctx, n, resp.Calls)
		if err != nil {
			return err
		}
		t.messages = append(t.messages, model.Results(results...))
		if len(t.parked) > 0 && !t.auth.Unattended { // work nobody waits for goes on, told what was not done
			return t.finish(ctx, ParkedTurn, t.parkedText())
		}
		if why := t.breaker.results(results); why != "" {
			return t.finish(ctx, Looping, "I stopped because "+why+".")
		}
	}
	return t.finish(ctx, StepLimit, fmt.Sprintf("I stopped after %d steps without reaching an answer.", t.a.cfg.Steps))
}

func (t *turn) parkedText() string {
	var text strings.Builder
	text.WriteString("This waits for your review and was not done:")
	for _, res := range t.ran {
		if res.Status == act.Parked {
			fmt.Fprintf(&text, "\n- %s (approve it with: ombud approve %s)", res.Summary, res.Approval)
		}
	}
	return text.String()
}

// maxReply is how long a reply can be, in bytes: cleaning may make it longer.
const maxReply = 256 << 10

// final is the text of the answer: what the model said, with a note where it
// claims what no tool did, and something to say where it said nothing.
func (t *turn) final(resp model.Response) string {
	text := resp.Text
	switch {
	case resp.Stop == model.StopRefusal && text == "":
		text = "The model declined to answer this."
	case text == "":
		text = "The model gave no answer."
	case resp.Stop == model.StopMaxTokens:
		text += "\n\n(The answer was cut at the model's limit.)"
	}
	if short, cut := guard.CutText(text, maxReply); cut {
		text = short + "\n\n(The answer was cut: it was too long to be sent.)"
	}
	if t.unbacked(resp.Text) != "" {
		text += "\n\n(Note by ombud: no tool that does this was run in this turn.)"
	}
	return text
}
