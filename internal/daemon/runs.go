package daemon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

func (d *Daemon) runsList(ctx context.Context, req wire.RunsListRequest) (wire.RunsListResult, error) {
	f := run.Filter{State: run.State(req.State), Kind: req.Kind, Limit: req.Limit}
	if req.Before != "" {
		rec, _, err := d.runs.Get(ctx, req.Before)
		if err != nil {
			return wire.RunsListResult{}, err
		}
		f.Before = rec.Seq
	}
	if req.State == "live" {
		f.State, f.Live = "", true
	}
	list, err := d.runs.List(ctx, f)
	if err != nil {
		return wire.RunsListResult{}, err
	}
	counts, err := d.runs.StepCounts(ctx, list)
	var out wire.RunsListResult
	for _, rec := range list {
		shown, err := d.shownRun(ctx, rec, nil)
		if err != nil {
			return out, err
		}
		shown.Steps = counts[rec.ID]
		out.Runs = append(out.Runs, shown)
	}
	return out, err
}

// shownRun is a run with what keeps it.
func (d *Daemon) shownRun(ctx context.Context, rec run.Record, steps []*run.Step) (out wire.Run, err error) {
	out = wireRun(rec, steps)
	out.Conversation = d.title(ctx, out.Conversation)
	out.WaitsFor, out.KeptBack, err = d.runs.WaitsFor(ctx, rec)
	return out, err
}

func (d *Daemon) runsGet(ctx context.Context, req wire.RunsGetRequest) (wire.RunsGetResult, error) {
	id, err := d.runs.Find(ctx, req.ID)
	if err != nil {
		return wire.RunsGetResult{}, err
	}
	return d.runNow(ctx, id)
}

func (d *Daemon) runNow(ctx context.Context, id string) (out wire.RunsGetResult, err error) {
	rec, steps, err := d.runs.Get(ctx, id)
	if err != nil {
		return out, err
	}
	if out.Run, err = d.shownRun(ctx, rec, steps); err != nil {
		return out, err
	}
	out.Steps, err = d.keptSteps(ctx, id, steps)
	return out, err
}

// runsWatch follows a run to its end. What wakes it are hints; what it tells is read
// from the store.
func (d *Daemon) runsWatch(ctx context.Context, req wire.RunsWatchRequest, send func(wire.RunNote) error) (wire.RunsGetResult, error) {
	id, err := d.runs.Find(ctx, req.ID)
	if err != nil {
		return wire.RunsGetResult{}, err
	}
	woken, stop := d.runs.Watch()
	defer stop()
	told, stopTold := d.runs.WatchRun(id)
	defer stopTold()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w := runWatcher{send: send, steps: map[string]wire.RunStep{}}
	for {
		now, err := d.runNow(ctx, id)
		if err == nil {
			err = w.tell(now)
		}
		if err != nil || now.Run.EndedAt > 0 {
			return now, err
		}
		select {
		case <-woken:
		case <-told:
		case <-tick.C:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// runWatcher remembers what one watch has told.
type runWatcher struct {
	send  func(wire.RunNote) error
	told  bool
	run   wire.Run
	steps map[string]wire.RunStep
}

// tell sends what is new: steps first, since they are what moved the run.
func (w *runWatcher) tell(now wire.RunsGetResult) error {
	for _, s := range now.Steps {
		before, known := w.steps[s.Name]
		if known && before.State == s.State && before.Attempts == s.Attempts {
			continue
		}
		w.steps[s.Name] = s
		if err := w.send(wire.RunStepped{Step: s}); err != nil {
			return err
		}
	}
	was, is := w.run, now.Run
	same := w.told && was.State == is.State && was.WaitsFor == is.WaitsFor && (was.Progress == nil) == (is.Progress == nil) &&
		(is.Progress == nil || *was.Progress == *is.Progress)
	if w.told, w.run = true, is; same {
		return nil
	}
	return w.send(wire.RunMoved{Run: is})
}

func (d *Daemon) runsSignal(ctx context.Context, req wire.RunsSignalRequest) (wire.RunsSignalResult, error) {
	id, err := d.runs.Find(ctx, req.ID)
	if err == nil {
		err = d.runs.Signal(ctx, id, req.Name, req.Payload, "operator")
	}
	if err != nil {
		return wire.RunsSignalResult{}, err
	}
	now, err := d.runNow(ctx, id)
	return wire.RunsSignalResult{Run: now.Run}, err
}

func (d *Daemon) runsReceipt(ctx context.Context, req wire.RunsReceiptRequest) (wire.RunsReceiptResult, error) {
	id, err := d.runs.Find(ctx, req.ID)
	if err != nil {
		return wire.RunsReceiptResult{}, err
	}
	receipt, err := d.runs.Receipt(ctx, id)
	if err != nil {
		return wire.RunsReceiptResult{}, err
	}
	raw, err := json.Marshal(receipt)
	return wire.RunsReceiptResult{Receipt: raw}, err
}

func (d *Daemon) runsResolve(ctx context.Context, req wire.RunsResolveRequest) (wire.RunsResolveResult, error) {
	decision := run.Decision(req.Decision)
	if err := decision.Check(); err != nil { // whatever run it is meant for
		return wire.RunsResolveResult{}, err
	}
	id, err := d.runs.Find(ctx, req.ID)
	if err == nil {
		err = d.runs.Resolve(ctx, id, decision, "operator", req.Note)
	}
	if err != nil {
		return wire.RunsResolveResult{}, err
	}
	now, err := d.runNow(ctx, id)
	return wire.RunsResolveResult{Run: now.Run}, err
}

func (d *Daemon) runsVerify(ctx context.Context, _ wire.Empty) (wire.RunsVerifyResult, error) {
	begun := d.db.Time()
	rep, err := d.runs.Verify(ctx)
	out := wire.RunsVerifyResult{Runs: int64(rep.Runs), Steps: int64(rep.Steps), DurationUS: d.db.Time() - begun}
	if fault.Is(err, fault.Verification) {
		out.Mismatches, err = []wire.RunMismatch{{What: err.Error()}}, nil
	}
	return out, err
}
