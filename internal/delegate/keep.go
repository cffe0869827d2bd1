package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// KindApply is the kind of run in which the operator puts a patch into the repository.
const KindApply = "delegation.apply"

// applyInput is the input of delegate.apply.
type applyInput struct {
	Run  string `json:"run"`
	Repo string `json:"repository"`
}

const applySchema = `{"type":"object","additionalProperties":false,"required":["run","repository"],"properties":{
"run":{"type":"string","minLength":1,"maxLength":64,"description":"id of the delegation"},
"repository":{"type":"string","minLength":1,"maxLength":4096,"description":"the work tree it was made from"}}}`

// applyDefinition is delegate.apply, which the operator alone calls: what a coding agent
// wrote becomes the operator's.
func (s *Service) applyDefinition() tool.Definition {
	return tool.Definition{
		Name: ApplyTool, Only: Operator, Description: "Puts what a delegation changed into the repository it worked from.", Input: json.RawMessage(applySchema),
		Kind: tool.Effect, Timeout: 2 * time.Minute, MaxOutput: 4 << 10, Source: label.Own,
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		Touches: func(raw json.RawMessage) []string {
			in, _ := tool.Decode[applyInput](raw) // validated
			return []string{in.Repo}
		},
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[applyInput](raw)
			if err != nil {
				return nil, err
			}
			w, err := scope.Of("git.write", in.Repo)
			return []scope.Scope{w}, err
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[applyInput](raw) // validated
			return "apply the patch of " + tool.Show(in.Run) + " to " + tool.Show(in.Repo)
		},
	}
}

// applied is the handler of delegate.apply.
func (s *Service) applied(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[applyInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	k, err := s.patchOf(ctx, in.Run)
	if err != nil {
		return tool.Output{}, err
	}
	if k.Tree.Repo != in.Repo {
		return tool.Output{}, fault.New(fault.Conflict, "%s worked from %s and not from %s", in.Run, k.Tree.Repo, in.Repo)
	}
	owner := confine.Owner{Subject: inv.Subject, Tool: ApplyTool, Run: inv.Run, Step: inv.Step}
	if err := s.apply(ctx, owner, k.Tree, k.Patch); err != nil {
		return tool.Output{}, err
	}
	// What comes next in its session is told as what is new since.
	_, err = s.change(context.WithoutCancel(ctx), k.session, func(x *Session) { x.Body.Tree.Applied = k.Tree.State })
	if err != nil && !fault.Is(err, fault.NotFound) { // it was forgotten
		s.Logger.Error("keep what was applied of a session", "session", k.session, "error", err)
	}
	return tool.Output{Text: "applied to " + in.Repo + "; ombud undo takes it back"}, nil
}

// patchOf is the patch of a delegation, if it has a whole one.
func (s *Service) patchOf(ctx context.Context, runID string) (Kept, error) {
	x, k, told, err := s.Get(ctx, runID)
	k.session = x.Session
	switch {
	case err != nil:
		return k, err
	case !told || !k.Tree.There():
		return k, fault.New(fault.NotFound, "%s has written nothing", runID)
	case k.Cut:
		return k, fault.New(fault.Invalid, "the patch of %s is over %d bytes", runID, maxPatch).WithHint("git -C %s diff, and git apply it by hand", k.Tree.Path)
	case k.Patch == "":
		return k, fault.New(fault.NotFound, "%s has changed nothing", runID)
	}
	return k, nil
}

// ApplyKind is the kind of run in which the operator applies a patch: one call, through
// the one door.
func (s *Service) ApplyKind(operator func(repo string) (*act.Authority, error)) run.Kind {
	return run.Kind{Name: KindApply, TellUnknown: true, Heard: true, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var in applyInput
		if err := json.Unmarshal(r.Input(), &in); err != nil {
			return nil, fault.New(fault.Internal, "input of %s: %w", r.ID(), err)
		}
		auth, err := operator(in.Repo)
		if err != nil {
			return nil, err
		}
		res, err := s.Act.Call(ctx, r, act.Call{
			Step: "apply", Tool: ApplyTool, Input: r.Input(), Authority: auth, Label: label.Of(label.Operator, label.OperatorOnly),
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}}
}

// Apply begins the run that puts the patch of a delegation into its repository.
func (s *Service) Apply(ctx context.Context, runID string) (string, error) {
	k, err := s.patchOf(ctx, runID)
	if err != nil {
		return "", err
	}
	return s.Runs.Start(ctx, run.Spec{
		Kind: KindApply, Name: runID, Actor: Operator, Key: "apply:" + k.Tree.Repo, Definition: "delegation.apply.v1", Input: applyInput{Run: runID, Repo: k.Tree.Repo},
	})
}

// Drop forgets a session: its worktree and its row are removed. What its runs told stays.
// Conflict while one of them works. The row goes last, so that what a daemon that dies
// meanwhile leaves is listed, and can be dropped again.
func (s *Service) Drop(ctx context.Context, sessionID string) (Session, error) {
	x, err := s.SessionOf(ctx, sessionID)
	if err != nil {
		return x, err
	}
	return s.drop(ctx, x, nil)
}

// drop is Drop, if still holds of the session in the commit after which nobody goes on with it.
func (s *Service) drop(ctx context.Context, x Session, still func(Session) error) (Session, error) {
	if x.Body.Home != s.cfg.Home {
		return x, fault.New(fault.Conflict, "session %s is kept by another machine or another home", x.ID)
	}
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		busy, err := busyIn(ctx, tx, x.ID)
		if err == nil && busy {
			err = fault.New(fault.Conflict, "session %s is worked in", x.ID).WithHint("wait for its run, or stop it: ombud runs cancel")
		}
		if err == nil {
			x, err = s.session(ctx, tx, x.ID)
		}
		if err == nil && still != nil {
			err = still(x)
		}
		if err != nil {
			return err
		}
		x.Body.Dropped = true
		return s.saveSession(ctx, tx, x)
	})
	if err != nil {
		return x, err
	}
	release, err := s.alone(ctx, x.Body.Tree.Common)
	if err != nil {
		return x, err
	}
	defer release()
	err = s.fell(x.Body.Tree)
	if h, unknown := s.Harness(x.Harness); unknown == nil {
		err = errors.Join(err, removeAll(s.checksOf(h, x.ID)))
	}
	if err != nil {
		return x, err
	}
	return x, s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM delegation_sessions WHERE id = $1", x.ID)
		return err
	})
}
