//go:build unix

package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// asLife makes the test binary live one life of TestKilledAnywhere; killAt is the
// point, counted from 1, at which it ends.
const asLife, killAt = "CHECKPOINT_LIFE", "CHECKPOINT_KILL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asLife); dir != "" {
		at, _ := strconv.Atoi(os.Getenv(killAt)) // none
		if err := live(dir, at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// live makes a call that changes a work tree and then undoes it, both through act,
// going on from wherever a life before it ended.
func live(dir string, at int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	d, err := db.Open(ctx, db.Options{
		DSN: "sqlite:" + filepath.Join(dir, "store.db"), LockFile: filepath.Join(dir, "lock"), BackupDir: filepath.Join(dir, "backups"), Logger: quiet,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	v, err := vault.OpenKeyFile(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	points, err := os.OpenFile(filepath.Join(dir, "points"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer points.Close()
	passed := 0
	point := func(name string) {
		if passed++; passed == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		fmt.Fprintln(points, name)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	c := New(Deps{DB: d, Vault: v, Git: plainGit{path: git}}, Options{Dir: filepath.Join(dir, "cache"), at: point})
	log := eventlog.NewLog(d, v, quiet, eventlog.Options{})
	au := audit.New(d, v, "test", quiet)
	if err := au.Start(ctx); err != nil {
		return err
	}
	tools, invoker := tool.NewRegistry(quiet)
	work := filepath.Join(dir, "work")
	if err := errors.Join(c.Register(tools), tools.Add(changing(work, point))); err != nil {
		return err
	}
	a := act.New(act.Deps{
		DB: d, Vault: v, Log: log, Audit: au, Tools: tools, Invoker: invoker, Approvals: approval.New(d, v, log, approval.Options{}),
		Budget: budget.New(d, budget.Config{}), Blobs: blob.New(d, v), Keeper: c,
	})
	kinds := run.NewKinds()
	err = kinds.Add(run.Kind{Name: "call", TellUnknown: true, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var call act.Call
		if err := json.Unmarshal(r.Input(), &call); err != nil {
			return nil, err
		}
		call.Authority = &act.Authority{
			Subject: r.Record().Actor, Tier: policy.Trusted, Standing: []scope.Scope{scope.Must("git.write")},
			Grants: policy.NewLayer("test", []policy.Rule{{Effect: policy.Allow, Scope: scope.Must("git.write")}, {Effect: policy.Allow, Scope: scope.Must("tool")}}),
		}
		level, err := policy.NewAutonomy(policy.Assisted, nil)
		if err != nil {
			return nil, err
		}
		call.Authority.Autonomy = level
		call.Label = label.Of(label.Operator, label.OperatorOnly)
		res, err := a.Call(ctx, r, call)
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}})
	if err != nil {
		return err
	}
	e := run.New(d, v, log, kinds, run.Options{Poll: 20 * time.Millisecond, Home: "test"})
	if err := e.Open(ctx); err != nil {
		return err
	}
	make := func(id, actor string, call act.Call) (act.Result, error) {
		var res act.Result
		_, _, err := e.Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			_, err = e.Start(ctx, run.Spec{ID: id, Kind: "call", Actor: actor, Input: call})
		}
		if err != nil {
			return res, err
		}
		rec, err := e.Wait(ctx, id)
		if err != nil || rec.State != run.Completed {
			return res, fmt.Errorf("%s is %s: %s: %w", id, rec.State, rec.Error, err)
		}
		return res, json.Unmarshal(rec.Result, &res)
	}
	did, err := make("run_call", "agent:main", act.Call{Step: "call", Tool: "t.change", Input: json.RawMessage("{}")})
	if err != nil {
		return err
	}
	rows, err := c.Of(ctx, "run_call", "call")
	if err != nil || len(rows) != 1 {
		return fmt.Errorf("%d checkpoints: %w", len(rows), err)
	}
	in, err := c.InputOf(ctx, Choice{Checkpoint: rows[0].ID})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	undid, err := make("run_undo", Operator, act.Call{Step: "restore", Tool: RestoreTool, Input: raw})
	if err != nil {
		return err
	}
	at = 0
	if _, err := c.Sweep(ctx); err != nil {
		return err
	}
	if err := errors.Join(e.Stop(ctx), a.Stop(ctx), au.Stop(ctx)); err != nil {
		return err
	}
	outcome, err := json.Marshal(map[string]string{"call": string(did.Status), "undo": string(undid.Status), "said": undid.Text, "row": string(rows[0].State)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "outcome"), outcome, 0o600)
}

// changing is a tool that changes a work tree in several steps.
func changing(work string, point func(string)) (tool.Definition, tool.Handler) {
	def := tool.Definition{
		Name: "t.change", Description: "for tests", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 10, Source: label.Own,
		Input:   json.RawMessage(`{"type":"object"}`),
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:change")}, nil },
		Summary: func(json.RawMessage) string { return "change it" }, Touches: func(json.RawMessage) []string { return []string{work} },
	}
	return def, func(context.Context, tool.Invocation) (tool.Output, error) {
		point("effect")
		err := errors.Join(
			os.WriteFile(filepath.Join(work, "a"), []byte("2"), 0o644), os.Remove(filepath.Join(work, "b/c")),
			os.MkdirAll(filepath.Join(work, "new"), 0o755), os.WriteFile(filepath.Join(work, "new/n"), []byte("n"), 0o644),
			os.WriteFile(filepath.Join(work, "m"), []byte("m"), 0o755))
		point("effect")
		return tool.Output{Text: "changed"}, err
	}
}

// TestKilledAnywhere ends the process at every point of a checkpoint and of an undo.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	git := gitPath(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	prepare := func() (dir string, before map[string]string) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, dir: filepath.Join(dir, "work")}
		if err := os.Mkdir(b.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b.git("init", "-q", ".")
		b.put("a", "1")
		b.put("b/c", "1")
		b.put("keep", "1")
		return dir, b.files()
	}
	life := func(dir string, at int) error {
		cmd := exec.Command(exe)
		cmd.Env = append(userEnv(), asLife+"="+dir, killAt+"="+strconv.Itoa(at), "PATH="+filepath.Dir(git)+":/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	told := func(dir string) (out map[string]string) {
		raw, err := os.ReadFile(filepath.Join(dir, "outcome"))
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	dir, before := prepare()
	if err := life(dir, 0); err != nil {
		t.Fatal(err)
	}
	if got := files(t, filepath.Join(dir, "work")); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Fatalf("undisturbed: %v", got)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "points"))
	if err != nil {
		t.Fatal(err)
	}
	points := strings.Fields(string(raw))
	if len(points) < 14 {
		t.Fatalf("only %d points: %v", len(points), points)
	}
	for n, name := range points {
		t.Run(fmt.Sprintf("%d-%s", n+1, name), func(t *testing.T) {
			t.Parallel()
			dir, before := prepare()
			work := filepath.Join(dir, "work")
			if err := life(dir, n+1); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("it lived: %v", err)
			}
			if err := life(dir, 0); err != nil {
				t.Fatal(err)
			}
			got, out := files(t, work), told(dir)
			switch {
			case out["call"] == string(act.Unclear):
				// Begun and not recorded: where it did something undo says that it cannot tell,
				// and does nothing.
				same := fmt.Sprint(got) == fmt.Sprint(before)
				if refused := out["undo"] == string(act.Failed) && strings.Contains(out["said"], whyUnsure); refused == same {
					t.Errorf("%v, with %v", out, got)
				}
			case out["undo"] != string(act.OK):
				t.Errorf("%v", out)
			case fmt.Sprint(got) != fmt.Sprint(before):
				t.Errorf("the tree is %v, want %v", got, before)
			}
			b := &bench{t: t, dir: work}
			for p := range got {
				if strings.Contains(p, workName) {
					t.Errorf("%s is left", p)
				}
			}
			b.git("fsck", "--strict")
			if refs := b.refs(); len(refs) > 4 {
				t.Errorf("refs: %v", refs)
			}
		})
	}
}
