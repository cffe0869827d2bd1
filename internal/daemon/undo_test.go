package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// repository makes the workspace of a daemon a git repository with one file.
func repository(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "."}, {"add", "a.txt"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := confine.Start(cmd) // as a child of ours, or a daemon of this process buries it as an orphan
		if err == nil {
			err = confine.Wait(cmd)
		}
		if err != nil {
			t.Fatalf("git is needed: git %v: %v\n%s", args, err, out.String())
		}
	}
}

func TestTheOperatorTakesACallBack(t *testing.T) {
	t.Parallel()
	write := `{tool: fs.write, input: {path: a.txt, content: "its\n"}}`
	made := `{tool: fs.write, input: {path: made/b.txt, content: "b\n"}}`
	sneaks := `{tool: git.restore, input: {checkpoint: chk_1, repository: /}}`
	eachStore(t, obeys(t, write, made, sneaks), func(t *testing.T, c *wire.Client, o Options) {
		dir := o.Instance.Workspace()
		repository(t, dir)
		if _, err := c.CapsGrant(t.Context(), wire.CapsGrantRequest{Subject: "agent:main", Scope: "fs.write", Effect: "standing"}); err != nil {
			t.Fatal(err)
		}
		turn := ask(t, c, "write")
		if turn.Outcome != "completed" {
			t.Fatalf("%+v", turn)
		}
		list, err := c.UndoList(t.Context(), wire.UndoListRequest{})
		if err != nil || len(list.Checkpoints) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		first := list.Checkpoints[1]
		if first.Why != "" || first.State != "kept" || first.Files != 1 || first.Tool != "fs.write" || first.RunID != turn.RunID || first.Ref == "" {
			t.Fatalf("%+v", first)
		}
		ex, err := c.Explain(t.Context(), wire.ExplainRequest{ID: first.ID})
		if err != nil || ex.Run == nil || ex.Run.ID != turn.RunID {
			t.Fatalf("%+v, %v", ex, err)
		}
		kept := 0
		for _, s := range ex.Steps {
			kept += len(s.Kept)
			if s.Call != nil && s.Call.Tool == "git.restore" && (s.State != "refused" || !strings.Contains(s.Error.Message, "operator only")) {
				t.Errorf("an agent calls git.restore: %+v", s)
			}
		}
		if kept != 2 {
			t.Errorf("%d checkpoints are explained", kept)
		}
		show, err := c.UndoShow(t.Context(), wire.UndoShowRequest{ID: first.ID})
		if err != nil || len(show.Also) != 1 || len(show.Changes) != 2 || show.Changes[0].Added != 1 || show.Changes[0].Removed != 1 {
			t.Fatalf("%+v, %v", show, err)
		}
		did, err := c.UndoRestore(t.Context(), wire.UndoRestoreRequest{ID: first.ID})
		if err != nil || did.Restored != 1 || did.Removed != 1 || did.CheckpointID == "" {
			t.Fatalf("%+v, %v", did, err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(raw) != "mine\n" {
			t.Errorf("undone is %q, %v", raw, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
			t.Error("what it made is left")
		}
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("mine again\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err = c.UndoRestore(t.Context(), wire.UndoRestoreRequest{ID: did.CheckpointID}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "a.txt") {
			t.Errorf("over what the operator wrote: %v", err)
		}
		again, err := c.UndoRestore(t.Context(), wire.UndoRestoreRequest{ID: did.CheckpointID, Paths: []string{filepath.Join(dir, "made")}})
		if err != nil || again.Restored != 1 {
			t.Errorf("the undo of a part: %+v, %v", again, err)
		}
		undo, err := c.RunsGet(t.Context(), wire.RunsGetRequest{ID: did.RunID})
		if err != nil || len(undo.Steps) != 1 || undo.Steps[0].Call == nil || undo.Steps[0].Call.Subject != "operator" || len(undo.Steps[0].Audit) == 0 {
			raw, _ := json.Marshal(undo)
			t.Errorf("the undo's run: %s, %v", raw, err)
		}
		if got, err := c.AuditVerify(context.Background(), wire.AuditVerifyRequest{}); err != nil {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := c.UndoShow(t.Context(), wire.UndoShowRequest{ID: first.ID, Paths: []string{"/etc/passwd"}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a path elsewhere: %v", err)
		}
	})
}
