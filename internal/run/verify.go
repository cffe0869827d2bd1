package run

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// page is how many rows a long scan reads at a time.
const page = 256

// Report is what Verify looked at.
type Report struct {
	Runs, Steps, Events int
}

// Verify folds the events of every run anew and compares the result with the
// rows. The first difference is an error of class Verification that names the run
// and the field.
func (e *Engine) Verify(ctx context.Context) (Report, error) {
	var rep Report
	for after := int64(0); ; {
		var runs []Record
		err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			runs, err = db.All(ctx, q, func(r *db.Rows) (Record, error) { return e.scanRun(r.Scan) },
				"SELECT "+runColumns+" FROM runs WHERE seq > $1 ORDER BY seq LIMIT $2", after, page)
			return err
		})
		if err != nil || len(runs) == 0 {
			return rep, err
		}
		for _, rec := range runs {
			after = rec.Seq
			if err := e.verifyOne(ctx, rec.ID, &rep); err != nil {
				return rep, err
			}
		}
	}
}

func (e *Engine) verifyOne(ctx context.Context, id string, rep *Report) error {
	rec, steps, err := e.Get(ctx, id)
	if err != nil {
		return err
	}
	v, err := e.replay(ctx, id, rec.Version)
	if err != nil {
		return err
	}
	if err := compareRun(v.Record, rec); err != nil {
		return err
	}
	if len(v.steps) != len(steps) {
		return differs(id, "number of steps", len(v.steps), len(steps))
	}
	for _, s := range steps {
		if err := e.compareStep(id, v.steps[s.Name], s); err != nil {
			return err
		}
	}
	rep.Runs++
	rep.Steps += len(steps)
	rep.Events += int(rec.Version)
	return nil
}

// replay folds the run's events up to a version.
func (e *Engine) replay(ctx context.Context, id string, version int64) (*view, error) {
	v := &view{steps: map[string]*Step{}}
	for v.Version < version {
		evs, err := e.log.Stream(ctx, streamOf(id), v.Version, page)
		if err != nil {
			return nil, err
		}
		if len(evs) == 0 {
			return nil, fault.New(fault.Verification, "run %s: its row is at version %d, its events end at %d", id, version, v.Version)
		}
		for _, ev := range evs {
			if v.Version == version {
				break
			}
			if err := v.fold(ev); err != nil {
				return nil, fault.New(fault.Verification, "run %s, version %d: %w", id, ev.Version, err)
			}
		}
	}
	return v, nil
}

func differs(id, field string, events, row any) error {
	return fault.New(fault.Verification, "run %s: %s is %v by its events and %v in its row", id, field, events, row)
}

func compareRun(want, have Record) error {
	for _, f := range []struct {
		name       string
		want, have any
	}{
		{"kind", want.Kind, have.Kind}, {"name", want.Name, have.Name}, {"definition", want.Definition, have.Definition},
		{"key", want.Key, have.Key}, {"state", want.State, have.State}, {"wait", want.Wait, have.Wait},
		{"wait_ref", want.WaitRef, have.WaitRef}, {"owner", want.Owner, have.Owner}, {"fence", want.Fence, have.Fence},
		{"attempt", want.Attempt, have.Attempt}, {"crashes", want.Crashes, have.Crashes}, {"seq", want.Seq, have.Seq},
		{"parent", want.Parent, have.Parent}, {"cause", want.Cause, have.Cause}, {"created", want.Created, have.Created},
		{"started", want.Started, have.Started}, {"ended", want.Ended, have.Ended}, {"spent", want.Spent, have.Spent},
		{"cost", want.Cost, have.Cost}, {"cost_known", want.CostKnown, have.CostKnown},
		{"error_class", want.ErrorClass, have.ErrorClass}, {"error", want.Error, have.Error},
		{"head", fmt.Sprintf("%x", want.Head), fmt.Sprintf("%x", have.Head)},
	} {
		if f.want != f.have {
			return differs(want.ID, f.name, f.want, f.have)
		}
	}
	return nil
}

func (e *Engine) compareStep(id string, want, have *Step) error {
	if want == nil {
		return differs(id, "step "+have.Name, "not there", have.State)
	}
	for _, f := range []struct {
		name       string
		want, have any
	}{
		{"kind", want.Kind, have.Kind}, {"policy", want.Policy, have.Policy}, {"state", want.State, have.State},
		{"repeats", want.Repeats, have.Repeats}, {"seq", want.Seq, have.Seq}, {"cost", want.Cost, have.Cost},
		{"opened", want.Opened, have.Opened}, {"closed", want.Closed, have.Closed}, {"error", want.Error, have.Error},
		{"error_class", want.ErrorClass, have.ErrorClass}, {"audit_seq", want.Audit.Seq, have.Audit.Seq},
		{"audit_hash", string(want.Audit.Hash), string(have.Audit.Hash)},
		{"input_mac", string(want.InputMAC), string(have.InputMAC)},
	} {
		if f.want != f.have {
			return differs(id, "step "+have.Name+" "+f.name, f.want, f.have)
		}
	}
	if want.resultMAC != nil && !bytes.Equal(want.resultMAC, e.contentMAC(id, have.Name, have.Result)) {
		return differs(id, "step "+have.Name+" result", "another one", "not the one recorded")
	}
	return nil
}
