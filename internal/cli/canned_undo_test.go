//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedUndo answers for three checkpoints: chk_1, after which somebody changed a file;
// chk_2, which is as it was; chk_3, of which nothing was kept.
func cannedUndo(m *ipc.Mux) {
	one := wire.Checkpoint{
		ID: "chk_1", RunID: "run_1", Step: "tool/1.1", Tool: "shell.exec", Subject: "agent:main", Summary: "run make clean", Repository: "/w/repo",
		State: "kept", Files: 3, ChangedSince: 1, At: noon, EndedAt: noon + 1000, NotKept: []wire.CheckpointFile{{Path: "big.bin", Why: "it is over the limit of 32 MiB"}},
	}
	two := wire.Checkpoint{
		ID: "chk_2", RunID: "run_2", Step: "tool/1.1", Tool: "fs.write", Subject: "agent:main", Summary: "replace a.txt (3 bytes by 4)", Repository: "/w/repo",
		State: "kept", Files: 1, At: noon + 5000, EndedAt: noon + 6000,
	}
	three := wire.Checkpoint{
		ID: "chk_3", RunID: "run_3", Step: "tool/1.1", Tool: "shell.exec", Subject: "agent:main", Summary: "run make", Repository: "/w/big",
		State: "none", Why: "the work tree has over 200000 files", At: noon,
	}
	ipc.Handle(m, wire.UndoList, func(_ context.Context, req wire.UndoListRequest) (wire.UndoListResult, error) {
		out := wire.UndoListResult{Checkpoints: []wire.Checkpoint{two, one}}
		if req.All {
			out.Checkpoints = append(out.Checkpoints, three)
		}
		return out, nil
	})
	ipc.Handle(m, wire.UndoShow, func(_ context.Context, req wire.UndoShowRequest) (wire.UndoShowResult, error) {
		switch req.ID {
		case "chk_1":
			out := wire.UndoShowResult{Checkpoint: one, Also: []wire.Checkpoint{two}, Others: 2, Changes: []wire.UndoChange{
				{Path: "Makefile", What: "change", Added: 10, Removed: 2},
				{Path: "src/main.c", What: "restore", Added: 120, Conflict: "somebody else changed it since"},
				{Path: "sub", What: "change", Never: "it is a repository of its own: its commit is noted, its files are not kept"},
			}}
			if len(req.Paths) > 0 {
				out.Changes = out.Changes[:1]
			}
			return out, nil
		case "chk_2":
			return wire.UndoShowResult{Checkpoint: two, Changes: []wire.UndoChange{{Path: "a.txt", What: "change", Added: 1, Removed: 1}, {Path: "new.bin", What: "remove", Binary: true}}}, nil
		}
		return wire.UndoShowResult{}, fault.New(fault.NotFound, "no checkpoint %q", req.ID).WithHint("ombud undo lists them")
	})
	ipc.Handle(m, wire.UndoRestore, func(_ context.Context, req wire.UndoRestoreRequest) (wire.UndoRestoreResult, error) {
		out := wire.UndoRestoreResult{RunID: "run_u", CheckpointID: "chk_u", Restored: 1, Removed: 1, Undoes: []string{req.ID}}
		if req.Force {
			out.Left = []string{"sub: it is a repository of its own"}
		}
		return out, nil
	})
}
