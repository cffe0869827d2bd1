package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/wire"
)

// undoKind is the kind of run in which the operator takes a call back.
const undoKind = "undo"

// openCheckpoints constructs what keeps work trees. The launcher is there.
func (d *Daemon) openCheckpoints() {
	d.checkpoints = checkpoint.New(checkpoint.Deps{
		DB: d.db, Vault: d.vault, Git: checkpoint.NewProgram(d.confined.launcher), Logger: d.log,
	}, checkpoint.Options{Dir: d.o.Instance.CheckpointDir(), Home: config.Home()})
}

// undoRuns is the kind of run that makes an undo: one call, through the one door.
func (d *Daemon) undoRuns() run.Kind {
	return run.Kind{Name: undoKind, TellUnknown: true, Heard: true, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		auth, err := d.operatorAuthority()
		if err != nil {
			return nil, err
		}
		res, err := d.act.Call(ctx, r, act.Call{
			Step: "restore", Tool: checkpoint.RestoreTool, Input: r.Input(), Authority: auth, Label: label.Of(label.Operator, label.OperatorOnly),
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}}
}

// operatorAuthority is what the operator's own changes of a work tree are made with. There is nobody to
// ask: the operator has said so.
func (d *Daemon) operatorAuthority() (*act.Authority, error) {
	level, err := policy.NewAutonomy(d.grants.Usual(), nil)
	write := scope.Must("git.write")
	return &act.Authority{
		Subject: checkpoint.Operator, Tier: policy.Trusted, Autonomy: level, Standing: []scope.Scope{write},
		Grants: policy.NewLayer("what the operator does to a work tree", []policy.Rule{{Scope: write, Effect: policy.Allow}}),
	}, err
}

// undoMethods are the operator's methods about checkpoints.
func (d *Daemon) undoMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.UndoList, func(ctx context.Context, req wire.UndoListRequest) (out wire.UndoListResult, err error) {
		limit := req.Limit
		if limit <= 0 {
			limit = 20
		}
		items, err := d.checkpoints.List(ctx, limit, req.All)
		for _, it := range items {
			w := wireCheckpoint(it.Row)
			w.Undone, w.ChangedSince = it.Undone, it.Since
			if it.Gone != "" {
				w.Why = it.Gone
			}
			out.Checkpoints = append(out.Checkpoints, w)
		}
		return out, err
	})
	ipc.Handle(m, wire.UndoShow, d.undoShow)
	ipc.Handle(m, wire.UndoRestore, d.undoRestore)
}

func wireCheckpoint(x checkpoint.Row) wire.Checkpoint {
	out := wire.Checkpoint{
		ID: x.ID, RunID: x.Run, Step: x.Step, Tool: x.Tool, Subject: x.Subject, Summary: x.Summary, Repository: x.Top, At: x.At, EndedAt: x.Ended,
		State: string(x.State), Files: x.Changed, Why: x.Why, With: x.With, Undoes: x.Undoes, Ref: x.BeforeRef,
	}
	for path, why := range x.Skipped {
		out.NotKept = append(out.NotKept, wire.CheckpointFile{Path: path, Why: why})
	}
	slices.SortFunc(out.NotKept, func(a, b wire.CheckpointFile) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func (d *Daemon) choice(ctx context.Context, id string, paths []string, only, force bool) (ch checkpoint.Choice, err error) {
	x, err := d.checkpoints.Find(ctx, id)
	if err != nil {
		return ch, err
	}
	ch = checkpoint.Choice{Checkpoint: x.ID, Only: only, Force: force}
	ch.Paths, err = x.PathsIn(paths)
	return ch, err
}

func (d *Daemon) undoShow(ctx context.Context, req wire.UndoShowRequest) (out wire.UndoShowResult, err error) {
	ctx, done := whileConnected(ctx)
	defer done()
	ch, err := d.choice(ctx, req.ID, req.Paths, req.Only, false)
	if err != nil {
		return out, err
	}
	p, err := d.checkpoints.Preview(ctx, ch)
	if err != nil {
		return out, err
	}
	out = wire.UndoShowResult{Checkpoint: wireCheckpoint(p.Row), Others: p.Others, Busy: p.Busy}
	for _, x := range p.Also {
		out.Also = append(out.Also, wireCheckpoint(x))
	}
	for _, c := range p.Changes {
		out.Changes = append(out.Changes, wire.UndoChange(c))
	}
	return out, nil
}

func (d *Daemon) undoRestore(ctx context.Context, req wire.UndoRestoreRequest) (out wire.UndoRestoreResult, err error) {
	if err := d.hold.Refuse(); err != nil {
		return out, err
	}
	ch, err := d.choice(ctx, req.ID, req.Paths, req.Only, req.Force)
	if err != nil {
		return out, err
	}
	in, err := d.checkpoints.InputOf(ctx, ch)
	if err != nil {
		return out, err
	}
	out.RunID, err = d.runs.Start(ctx, run.Spec{
		Kind: undoKind, Name: ch.Checkpoint, Definition: "undo.v1", Key: "undo", Actor: checkpoint.Operator, Input: in,
	})
	if err != nil {
		return out, err
	}
	ctx, done := whileConnected(ctx) // the undo goes on without its client
	defer done()
	rec, err := d.runs.Wait(ctx, out.RunID)
	if err != nil {
		return out, err
	}
	if rec.State != run.Completed {
		return out, fault.New(rec.ErrorClass, "%s", rec.Error).WithHint("ombud explain %s", out.RunID)
	}
	var res act.Result
	if err := json.Unmarshal(rec.Result, &res); err != nil {
		return out, fault.New(fault.Internal, "result of %s: %w", out.RunID, err)
	}
	if err := res.Err(); err != nil {
		return out, undoFault(res)
	}
	var did checkpoint.Restored
	if err := json.Unmarshal([]byte(res.Text), &did); err != nil {
		return out, fault.New(fault.Internal, "result of %s: %w", out.RunID, err)
	}
	out.Restored, out.Removed, out.Already, out.Left, out.Undoes = did.Restored, did.Removed, did.Already, did.Left, did.Undoes
	own, err := d.checkpoints.OfRun(ctx, out.RunID)
	if err == nil && len(own) == 1 {
		out.CheckpointID = own[0].ID
	}
	return out, err
}

// undoFault is why nothing was undone, or not all of it.
func undoFault(res act.Result) error {
	e := fault.New(res.Class, "%s", res.Text)
	if res.Class == fault.Conflict {
		return e.WithHint("ombud undo ID --dry-run shows all of it; name the files to undo, or use --force")
	}
	return e
}

// keptSteps is the steps of a run, each with the checkpoints of its call.
func (d *Daemon) keptSteps(ctx context.Context, id string, steps []*run.Step) ([]wire.RunStep, error) {
	out, err := d.wireSteps(ctx, steps)
	if err != nil {
		return nil, err
	}
	rows, err := d.checkpoints.OfRun(ctx, id)
	for _, x := range rows {
		for i := range out {
			if out[i].Name == x.Step {
				out[i].Kept = append(out[i].Kept, wireCheckpoint(x))
			}
		}
	}
	return out, err
}
