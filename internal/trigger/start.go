package trigger

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
)

// actor is who starts what nobody starts by hand.
const actor = "ombud"

// maxPayload bounds what a run is started with.
const maxPayload = 16 << 20

// withheld is the payload of trigger.withheld, .refused and .dropped.
type withheld struct {
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
	Event string `json:"event,omitempty"`
	Why   string `json:"why"`
}

// StartTx starts a target in the transaction of what causes it. The run is "" if none was
// started: the target is paused (which is counted and told), or its policy for arrivals
// while it is busy says so. Errors: NotFound, Conflict for a chain of runs that is too
// long, Invalid for a payload that is no object.
func (t *Triggers) StartTx(ctx context.Context, tx *db.Tx, target string, tr Trigger) (string, error) {
	s, err := t.GetIn(ctx, tx, target)
	if err != nil {
		return "", err
	}
	return t.start(ctx, tx, s, tr, origin{run: tr.Parent, refuse: true})
}

// start starts a target, if it may be. A paused one takes note.
func (t *Triggers) start(ctx context.Context, tx *db.Tx, s Standing, tr Trigger, from origin) (string, error) {
	if s.Problem != nil {
		return "", s.Problem
	}
	if len(tr.Payload) > maxPayload || len(tr.Payload) > 0 && tr.Payload[0] != '{' {
		return "", fault.New(fault.Invalid, "what %s is started with is no object, or over %d bytes", s.Name, maxPayload)
	}
	if s.Stopped() {
		return "", t.withhold(ctx, tx, s, tr)
	}
	if tr.At == 0 {
		tr.At = tx.Now()
	}
	if tr.Label.Sources == nil {
		tr.Label = label.Of(label.Untrusted("trigger:"+tr.Kind), label.OperatorOnly)
	}
	tr.Target = s.Name
	if err := t.place(ctx, tx, &tr, from); err != nil {
		return "", t.refused(ctx, tx, tr, from, err)
	}
	by := actor
	if tr.By != "" {
		by = tr.By
	}
	id, err := t.runs.StartTx(ctx, tx, run.Spec{
		Kind: s.RunKind, Name: s.Name, Definition: s.Definition, Key: s.Name, Width: 1, Busy: s.Busy,
		Parent: tr.Parent, Cause: tr.Event, Actor: by, Input: tr,
	})
	if err != nil || id == "" {
		return "", err
	}
	failpoint.Hit("trigger.started")
	_, err = tx.Exec(ctx, "UPDATE targets SET started = started + 1, last_run = $1, last_at = $2 WHERE name = $3", id, tx.Now(), s.Name)
	return id, err
}

// withhold counts a trigger of a paused target. The first since it was paused is an event.
func (t *Triggers) withhold(ctx context.Context, tx *db.Tx, s Standing, tr Trigger) error {
	var n int64
	err := tx.QueryRow(ctx, "UPDATE targets SET withheld = withheld + 1, withheld_at = $1 WHERE name = $2 RETURNING withheld", tx.Now(), s.Name).Scan(&n)
	if err != nil || n > 1 {
		return err
	}
	_, err = t.tell(ctx, tx, "withheld", actor, s.Name, tr.Event, withheld{Kind: tr.Kind, Name: tr.Name, Event: tr.Event, Why: "it is paused"})
	return err
}

// Manual starts a target because somebody asks for it. Errors: NotFound, Conflict while it
// is paused, Unavailable while the instance is held.
func (t *Triggers) Manual(ctx context.Context, target string, payload json.RawMessage, by string) (string, error) {
	return t.byHand(ctx, target, payload, by, false)
}

// Force is Manual also of a target that is paused.
func (t *Triggers) Force(ctx context.Context, target string, payload json.RawMessage, by string) (string, error) {
	return t.byHand(ctx, target, payload, by, true)
}

func (t *Triggers) byHand(ctx context.Context, target string, payload json.RawMessage, by string, force bool) (id string, err error) {
	if err := t.opt.Held(); err != nil {
		return "", err
	}
	err = t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		s, err := t.GetIn(ctx, tx, target)
		if err != nil {
			return err
		}
		if s.Stopped() && !force {
			return paused(s)
		}
		s.Paused, s.PausedBy = false, ""
		cause, err := t.tell(ctx, tx, "manual", by, s.Name, "", byHandData{Payload: payload})
		if err != nil {
			return err
		}
		id, err = t.start(ctx, tx, s, Trigger{
			Kind: ByHand, Event: cause, EventKind: kindPrefix + "manual", Payload: payload, By: by, Label: label.Of(label.Operator, label.OperatorOnly),
		}, origin{replay: true})
		return err
	})
	return id, err
}

// byHandData is the payload of trigger.manual.
type byHandData struct {
	Payload json.RawMessage `json:"payload,omitempty"`
}

func paused(s Standing) error {
	err := fault.New(fault.Conflict, "%s is paused", s.Name)
	if s.PausedBy != "" {
		owner, name, _ := strings.Cut(s.Name, ":")
		return err.WithHint("ombud %s enable %s", owner, name)
	}
	return err.WithHint("its definition says so")
}

// job is the payload a schedule starts a target with; its keys are those of scheduler.job.
type job struct {
	JobID   string `json:"job_id"`
	JobName string `json:"job_name"`
	At      string `json:"at"` // the nominal instant, with the offset of the zone
	Firing  string `json:"firing"`
}

// Fire is a firing of a schedule that starts a target; it fits schedule.Fire. The run is
// "" if the target is paused.
func (t *Triggers) Fire(ctx context.Context, tx *db.Tx, f schedule.Firing) (string, error) {
	s, err := t.GetIn(ctx, tx, f.Schedule.Starts.Target)
	if err != nil {
		return "", err
	}
	if s.Stopped() && f.Kind == schedule.Manual {
		return "", paused(s)
	}
	raw, err := json.Marshal(job{f.Schedule.ID, f.Schedule.Name, f.At.Format(time.RFC3339), f.Kind})
	if err != nil {
		return "", err
	}
	return t.start(ctx, tx, s, Trigger{
		Kind: BySchedule, Name: f.Schedule.Name, At: f.At.UnixMicro(), Event: f.Event, EventKind: schedule.KindJob, Payload: raw,
		Label: label.Of(label.Own, label.OperatorOnly),
	}, origin{replay: true})
}
