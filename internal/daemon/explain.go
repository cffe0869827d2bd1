package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/channel/local"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// maxRelated is how many further events an explanation carries.
const maxRelated = 200

// explain tells the life of anything that has an id.
func (d *Daemon) explain(ctx context.Context, req wire.ExplainRequest) (wire.Explanation, error) {
	event, runID, err := d.subjectOf(ctx, req.ID)
	if err != nil {
		return wire.Explanation{}, err
	}
	out := wire.Explanation{Asked: firstOf(event, runID), CostKnown: true}
	if event != "" {
		e, err := d.events.ByID(ctx, event)
		if err != nil {
			return out, err
		}
		shown := wireEvent(e)
		out.Event, out.DurationUS = &shown, d.db.Time()-e.At
		if id, ok := strings.CutPrefix(e.Stream, "conversation:"); ok {
			if err := d.explainConversation(ctx, id, &out); err != nil {
				return out, err
			}
		}
	}
	cause := event
	if runID != "" {
		if err := d.explainRun(ctx, runID, &out); err != nil {
			return out, err
		}
		cause = runID
	}
	if err := d.explainDelivery(ctx, cause, &out); err != nil {
		return out, err
	}
	return out, d.explainRest(ctx, runID, &out)
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// subjectOf finds the event and the run an id is about; either may be "".
func (d *Daemon) subjectOf(ctx context.Context, id string) (event, runID string, err error) {
	switch prefix, _, _ := strings.Cut(id, "_"); {
	case id == "last" || id == "":
		return d.lastOfAll(ctx)
	case prefix == "conv":
		return d.lastMessage(ctx, id)
	case prefix == "run":
		runID, err = d.runs.Find(ctx, id)
	case prefix == "sch":
		return d.lastFiring(ctx, id)
	case prefix == "dead":
		l, err := d.letters.Get(ctx, id)
		if err != nil {
			return "", "", err
		}
		return d.subjectOf(ctx, l.Ref)
	case prefix == "chk":
		var x checkpoint.Row
		x, err = d.checkpoints.Find(ctx, id)
		runID = x.Run
	case prefix == "apr":
		var a approval.Approval
		a, err = d.approvals.Find(ctx, id)
		runID = a.Run
	case prefix == "obx":
		var it outbox.Item
		it, err = d.outbox.Get(ctx, id)
		if runID = it.Run; strings.HasPrefix(runID, "evt_") {
			return runID, "", err
		}
	default:
		return d.eventAndRun(ctx, id)
	}
	if err != nil {
		return "", "", err
	}
	rec, _, err := d.runs.Get(ctx, runID)
	if !strings.HasPrefix(rec.Cause, "evt_") {
		return "", runID, err
	}
	return rec.Cause, runID, err
}

// maxCaused is how many runs of one cause are looked at.
const maxCaused = 1000

func (d *Daemon) eventAndRun(ctx context.Context, id string) (event, runID string, err error) {
	if _, err := d.events.ByID(ctx, id); err != nil {
		return "", "", err
	}
	list, err := d.runs.List(ctx, run.Filter{Cause: id, Limit: maxCaused})
	for _, rec := range list { // newest first; the calls of those who work for it have its cause as well
		if runID == "" || rec.Parent == "" {
			runID = rec.ID
		}
	}
	return id, runID, err
}

// lastMessage is the newest message of a conversation.
// lastOfAll is the last message anybody sent, wherever that was. What loops and recipes say to
// an agent is not meant.
func (d *Daemon) lastOfAll(ctx context.Context) (event, runID string, err error) {
	const looked = 50
	list, err := d.agents.Conversations(ctx, looked)
	if err != nil {
		return "", "", err
	}
	var last eventlog.Event
	for _, c := range list {
		if c.Address.Channel == local.Name && strings.Contains(c.Address.Chat, ":") {
			continue
		}
		e, err := d.events.Last(ctx, "conversation:"+c.ID, "comms.message")
		if err != nil && !fault.Is(err, fault.NotFound) {
			return "", "", err
		}
		if err == nil && e.Position > last.Position {
			last = e
		}
	}
	if last.ID == "" {
		return "", "", fault.New(fault.NotFound, "nothing was said yet").WithHint(`say something: ombud ask "help"`)
	}
	return d.eventAndRun(ctx, last.ID)
}

func (d *Daemon) lastMessage(ctx context.Context, idOrName string) (event, runID string, err error) {
	c, err := d.conversation(ctx, idOrName)
	if err != nil {
		return "", "", err
	}
	e, err := d.events.Last(ctx, "conversation:"+c.ID, "comms.message")
	if err != nil {
		return "", "", err
	}
	return d.eventAndRun(ctx, e.ID)
}

func (d *Daemon) explainConversation(ctx context.Context, id string, out *wire.Explanation) error {
	c, err := d.conversation(ctx, id)
	if err != nil {
		return err
	}
	shown, err := d.wireConversation(ctx, c)
	out.Conversation = &shown
	return err
}

func (d *Daemon) explainRun(ctx context.Context, id string, out *wire.Explanation) error {
	rec, steps, err := d.runs.Get(ctx, id)
	if err != nil {
		return err
	}
	shown, err := d.shownRun(ctx, rec, steps)
	if err != nil {
		return err
	}
	out.Run, out.CostMicroUSD, out.CostKnown = &shown, rec.Cost, rec.CostKnown
	if out.Steps, err = d.keptSteps(ctx, id, steps); err != nil {
		return err
	}
	if rec.Kind == delegate.Kind && rec.State.Ended() {
		x, _, _, err := d.delegations.Get(ctx, id)
		if err != nil {
			return err
		}
		out.CostMicroUSD, out.CostKnown, out.PossibleMicroUSD = x.MicroUSD, x.Priced, x.Possible
	}
	if answer, ok := agent.OutcomeOf(rec); ok {
		addAnswer(answer, id, out)
	}
	switch {
	case rec.Ended > 0 && out.Event != nil:
		out.DurationUS = rec.Ended - out.Event.At
	case out.Event == nil:
		out.DurationUS = cmp.Or(rec.Ended, d.db.Time()) - rec.Created
	}
	list, err := d.questionsAbout(ctx, rec)
	for _, a := range list {
		out.Approvals = append(out.Approvals, wireApproval(a))
		if a.State == approval.Pending {
			out.Left = append(out.Left, fmt.Sprintf("a decision: ombud approve %s (%s)", a.ID, a.Summary))
		}
	}
	switch {
	case rec.State == run.Uncertain:
		out.Left = append(out.Left, fmt.Sprintf("say what became of the step in doubt: ombud runs resolve %s retry|done|failed|cancel", id))
	case !rec.State.Ended() && rec.State != run.Waiting:
		out.Left = append(out.Left, "the turn is "+string(rec.State))
	}
	return err
}

// questionsAbout are what was asked for a run: by itself, and by the program that works for
// it, whose every question is a run of its own.
func (d *Daemon) questionsAbout(ctx context.Context, rec run.Record) ([]approval.Approval, error) {
	list, err := d.approvals.List(ctx, approval.Filter{Run: rec.ID})
	if err != nil {
		return nil, err
	}
	calls, err := d.runs.List(ctx, run.Filter{Parent: rec.ID, Kind: job.CallKind, Limit: maxRelated})
	if err != nil {
		return nil, err
	}
	for _, call := range calls {
		asked, err := d.approvals.List(ctx, approval.Filter{Run: call.ID})
		if err != nil {
			return nil, err
		}
		list = append(list, asked...)
	}
	return list, nil
}

func (d *Daemon) explainDelivery(ctx context.Context, cause string, out *wire.Explanation) error {
	items, err := d.outbox.List(ctx, outbox.Filter{Run: cause})
	for _, it := range slices.Backward(items) {
		out.Deliveries = append(out.Deliveries, wireDelivery(it))
		if out.Reply == "" {
			out.Reply = it.Text
		}
		if it.State != outbox.Delivered {
			out.Left = append(out.Left, fmt.Sprintf("the message %s is %s", it.ID, it.State))
		}
	}
	return err
}

// explainRest adds the moves of the run and of its approvals, which are no steps.
func (d *Daemon) explainRest(ctx context.Context, runID string, out *wire.Explanation) error {
	if runID == "" {
		return nil
	}
	streams := []string{"run:" + runID}
	for _, a := range out.Approvals {
		streams = append(streams, "approval:"+a.ID)
	}
	for _, stream := range streams {
		evs, err := d.events.Stream(ctx, stream, 0, maxRelated)
		if err != nil {
			return err
		}
		for _, e := range evs {
			if !strings.HasPrefix(e.Kind, "run.step.") {
				out.Related = append(out.Related, wireEvent(e))
			}
		}
	}
	slices.SortFunc(out.Related, func(a, b wire.Event) int { return cmp.Compare(a.Position, b.Position) })
	return nil
}
