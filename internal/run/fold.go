package run

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// The payloads of a run's events. MACs stand for contents, which are sealed in
// the rows and may be erased there.
type (
	createdData struct {
		Kind       string `json:"kind"`
		Name       string `json:"name,omitempty"`
		Definition string `json:"definition,omitempty"`
		Key        string `json:"key,omitempty"`
		Width      int    `json:"width,omitempty"`
		Parent     string `json:"parent,omitempty"`
		Seq        int64  `json:"seq"`
		InputMAC   []byte `json:"input_mac"`
	}
	startedData struct {
		Owner string `json:"owner"`
		Fence int64  `json:"fence"`
	}
	waitingData struct {
		For   Wait        `json:"for"`
		Ref   string      `json:"ref,omitempty"`
		Until int64       `json:"until"`
		Asked int64       `json:"asked_us,omitempty"` // of what was worked on since the last wait, a person was asked for
		Class fault.Class `json:"class,omitempty"`
		Error string      `json:"error,omitempty"`
	}
	requeuedData struct {
		Why   string `json:"why"`
		Crash bool   `json:"crash,omitempty"`
		Asked int64  `json:"asked_us,omitempty"`
	}
	endedData struct {
		ResultMAC []byte      `json:"result_mac,omitempty"`
		Class     fault.Class `json:"class,omitempty"`
		Error     string      `json:"error,omitempty"`
		By        string      `json:"by,omitempty"`
	}
	resolvedData struct {
		Step     string   `json:"step"`
		Decision Decision `json:"decision"`
		By       string   `json:"by"`
		Note     string   `json:"note,omitempty"`
	}
	replayedData struct {
		By     string   `json:"by"`
		Letter string   `json:"dead_letter,omitempty"`
		Steps  []string `json:"steps,omitempty"` // those that failed: they are begun again
	}
	stepData struct {
		Name      string      `json:"name"`
		Kind      string      `json:"kind,omitempty"`
		Policy    PolicyKind  `json:"policy,omitempty"`
		Seq       int64       `json:"seq,omitempty"`
		TimeoutUS int64       `json:"timeout_us,omitempty"`
		InputMAC  []byte      `json:"input_mac,omitempty"`
		State     StepState   `json:"state,omitempty"`
		ResultMAC []byte      `json:"result_mac,omitempty"`
		Class     fault.Class `json:"class,omitempty"`
		Error     string      `json:"error,omitempty"`
		Cost      int64       `json:"cost,omitempty"`
		CostKnown bool        `json:"cost_known,omitempty"`
		Audit     AuditRef    `json:"audit,omitzero"`
	}
)

// view is a run with its steps, as events say.
type view struct {
	Record
	steps map[string]*Step
}

// fold applies one event. It is the only code that says what an event means: the
// write path projects with it and Verify folds with it, so they cannot differ.
func (v *view) fold(e eventlog.Event) error {
	to, ok := next(v.State, e.Kind)
	if !ok {
		return fault.New(fault.Conflict, "run %s is %s: %s is not possible", e.Stream, orNone(v.State), e.Kind)
	}
	from := v.State
	v.State, v.Version = to, e.Version
	v.Head = foldHead(v.Head, e)
	if from == Running && to != Running && to != Cancelling && e.Kind != evRequeued && e.Kind != evWaiting {
		v.Spent += max(0, e.At-v.Resumed)
	}
	switch e.Kind {
	case evCreated:
		return v.created(e)
	case evStarted:
		return v.started(e)
	case evWaiting:
		return v.waiting(e)
	case evRequeued:
		return v.requeued(e)
	case evCompleted, evFailed, evCancelled:
		return v.ended(e)
	case evUncertain:
		return v.uncertain(e)
	case evCancelling:
		return v.cancelling(e)
	case evResolved:
		return v.resolved(e)
	case evReplayed:
		return v.replayed(e)
	case evStepOpened:
		return v.stepOpened(e)
	case evStepReopened:
		return v.stepReopened(e)
	case evStepClosed:
		return v.stepClosed(e)
	}
	return fault.New(fault.Internal, "run %s: the event %s is in the table of edges and means nothing", e.Stream, e.Kind)
}

func orNone(s State) State {
	if s == None {
		return "not there"
	}
	return s
}

// foldHead binds every event of a run, in order, to one value.
func foldHead(head [32]byte, e eventlog.Event) [32]byte {
	return foldLeaf(head, e.Position, e.Kind, e.Leaf)
}

func foldLeaf(head [32]byte, position int64, kind string, leaf [32]byte) [32]byte {
	h := sha256.New()
	h.Write(head[:])
	var pos [8]byte
	binary.BigEndian.PutUint64(pos[:], uint64(position))
	h.Write(pos[:])
	fmt.Fprintf(h, "%d:%s", len(kind), kind)
	h.Write(leaf[:])
	return [32]byte(h.Sum(nil))
}

func decode[T any](e eventlog.Event) (T, error) {
	var d T
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return d, fault.New(fault.Verification, "event %s of %s: %w", e.Kind, e.Stream, err)
	}
	return d, nil
}

func (v *view) created(e eventlog.Event) error {
	d, err := decode[createdData](e)
	v.ID, _ = idOfStream(e.Stream)
	v.Kind, v.Name, v.Definition = d.Kind, d.Name, d.Definition
	v.Key, v.Width, v.Parent, v.Cause, v.Actor = d.Key, d.Width, d.Parent, e.Cause, e.Actor
	v.Seq, v.Created, v.CostKnown = d.Seq, e.At, true
	v.steps = map[string]*Step{}
	return err
}

func (v *view) started(e eventlog.Event) error {
	d, err := decode[startedData](e)
	v.Owner, v.Fence, v.Resumed = d.Owner, d.Fence, e.At
	v.Wait, v.WaitRef = "", ""
	if v.Started == 0 {
		v.Started = e.At
	}
	return err
}

func (v *view) waiting(e eventlog.Event) error {
	d, err := decode[waitingData](e)
	v.Spent += max(0, e.At-v.Resumed-d.Asked)
	v.Owner, v.Wait, v.WaitRef = "", d.For, d.Ref
	if d.For == ForRetry {
		v.Attempt++
		v.ErrorClass, v.Error = d.Class, d.Error
	}
	return err
}

func (v *view) requeued(e eventlog.Event) error {
	d, err := decode[requeuedData](e)
	v.Owner = ""
	if d.Crash { // nobody knows when its node died: that stretch is not counted as work
		v.Crashes++
	} else {
		v.Spent += max(0, e.At-v.Resumed-d.Asked)
	}
	return err
}

func (v *view) ended(e eventlog.Event) error {
	d, err := decode[endedData](e)
	v.Owner, v.Wait, v.WaitRef, v.Ended = "", "", "", e.At
	v.ErrorClass, v.Error = d.Class, d.Error
	return err
}

func (v *view) uncertain(e eventlog.Event) error {
	d, err := decode[endedData](e)
	v.Owner = ""
	v.ErrorClass, v.Error = d.Class, d.Error
	return err
}

func (v *view) cancelling(eventlog.Event) error {
	v.Wait, v.WaitRef = "", ""
	return nil
}

// resolved turns the step in doubt into what a person said of it.
func (v *view) resolved(e eventlog.Event) error {
	d, err := decode[resolvedData](e)
	if err != nil {
		return err
	}
	s, ok := v.steps[d.Step]
	if !ok {
		return fault.New(fault.Verification, "run %s: resolves a step that is not there: %s", v.ID, d.Step)
	}
	v.ErrorClass, v.Error = "", ""
	switch d.Decision {
	case Retry:
		delete(v.steps, d.Step)
	case MarkDone:
		s.State, s.ErrorClass, s.Error = Done, "", ""
		s.resultMAC = nil
	case MarkFailed:
		s.State = Errored
	default:
		return fault.New(fault.Verification, "run %s: unknown decision %q", v.ID, d.Decision)
	}
	return nil
}

// replayed lets a failed run begin anew what failed.
func (v *view) replayed(e eventlog.Event) error {
	d, err := decode[replayedData](e)
	for _, name := range d.Steps {
		delete(v.steps, name)
	}
	v.Ended, v.Attempt, v.Crashes, v.ErrorClass, v.Error = 0, 0, 0, "", ""
	return err
}

func (v *view) stepOpened(e eventlog.Event) error {
	d, err := decode[stepData](e)
	if _, there := v.steps[d.Name]; there && err == nil {
		err = fault.New(fault.Conflict, "run %s: step %s is opened twice", v.ID, d.Name)
	}
	v.steps[d.Name] = &Step{
		Name: d.Name, Kind: d.Kind, Seq: d.Seq, Policy: d.Policy, State: Open, InputMAC: d.InputMAC,
		Timeout: time.Duration(d.TimeoutUS) * time.Microsecond, Opened: e.At, CostKnown: true,
	}
	return err
}

func (v *view) stepReopened(e eventlog.Event) error {
	d, err := decode[stepData](e)
	s, ok := v.steps[d.Name]
	if !ok || s.State != Open {
		return fault.New(fault.Conflict, "run %s: step %s is not open", v.ID, d.Name)
	}
	s.Repeats++
	return err
}

func (v *view) stepClosed(e eventlog.Event) error {
	d, err := decode[stepData](e)
	if err != nil {
		return err
	}
	s, ok := v.steps[d.Name]
	switch {
	case !ok:
		s = &Step{Name: d.Name, Kind: d.Kind, Seq: d.Seq, Policy: d.Policy, InputMAC: d.InputMAC}
		v.steps[d.Name] = s
	case s.State != Open:
		return fault.New(fault.Conflict, "run %s: step %s is closed twice", v.ID, d.Name)
	}
	s.State, s.Closed, s.ErrorClass, s.Error = d.State, e.At, d.Class, d.Error
	s.Cost, s.CostKnown, s.Audit, s.resultMAC = d.Cost, d.CostKnown, d.Audit, d.ResultMAC
	v.Cost += d.Cost
	v.CostKnown = v.CostKnown && d.CostKnown
	return nil
}
