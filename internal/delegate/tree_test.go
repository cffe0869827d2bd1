package delegate

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/run"
)

func jobRequest(token, name string) job.Request {
	return job.Request{Token: token, Tool: name, Input: json.RawMessage(`{"harness":"claude","kind":"edit","tool":"x","what":"y"}`)}
}

// git runs git in a directory, as its owner would.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// repo makes a repository with a text, a binary file and a directory.
func repo(t testing.TB, dir string) {
	t.Helper()
	git(t, dir, "init", "-q", "-b", "main")
	write(t, dir, "a.txt", "one\ntwo\n")
	write(t, dir, "gone.txt", "away\n")
	write(t, dir, "sub/b.txt", "deep\n")
	write(t, dir, "bin", "\x00\x01\x02")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "first")
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestWhatIsWrittenComesBackAsAPatch(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := h.cfg.Workspace
	repo(t, dir)
	write(t, dir, "a.txt", "one\ntwo\nmine, not committed\n")
	write(t, dir, "untracked.txt", "mine\n")
	before := git(t, dir, "status", "--porcelain", "-z")
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		if task.Dir == dir || !task.Write {
			t.Errorf("it was let into %s", task.Dir)
		}
		if got := read(t, task.Dir, "a.txt"); got != "one\ntwo\n" {
			t.Errorf("it sees %q", got)
		}
		write(t, task.Dir, "sub/b.txt", "deep\nand changed\n")
		write(t, task.Dir, "new file.txt", "made\n")
		write(t, task.Dir, "bin", "\x00\x01\x03\x04")
		if err := os.Remove(filepath.Join(task.Dir, "gone.txt")); err != nil {
			t.Error(err)
		}
		// It points its worktree at a repository of its own making.
		if err := os.Remove(filepath.Join(task.Dir, ".git")); err != nil {
			t.Error(err)
		}
		git(t, task.Dir, "init", "-q")
		return done(task, "built", 10), nil
	})
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	x, rep := h.last()
	if res.Status != act.OK || len(rep.Files) != 4 || rep.Dirty != 2 || rep.Tree == "" {
		t.Fatalf("%+v\n%+v", res.Text, rep)
	}
	if after := git(t, dir, "status", "--porcelain", "-z"); after != before {
		t.Errorf("the repository was %q and is %q", before, after)
	}
	id, err := h.Apply(t.Context(), x.Run)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := h.Runs.Wait(t.Context(), id); err != nil || rec.State != run.Completed || !strings.Contains(string(rec.Result), `"status":"ok"`) {
		t.Fatalf("%s %s %v", rec.Result, rec.Error, err)
	}
	if read(t, dir, "sub/b.txt") != "deep\nand changed\n" || read(t, dir, "new file.txt") != "made\n" || read(t, dir, "bin") != "\x00\x01\x03\x04" {
		t.Error("what was applied is not what was written")
	}
	if read(t, dir, "a.txt") != "one\ntwo\nmine, not committed\n" {
		t.Error("what the operator had changed is gone")
	}
	if _, err := os.Stat(filepath.Join(dir, "gone.txt")); !os.IsNotExist(err) {
		t.Error("a removed file is still there")
	}
	if git(t, dir, "branch", "--list") != "* main\n" {
		t.Error("a branch was made")
	}
}

func TestAPatchThatDoesNotFitChangesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := h.cfg.Workspace
	repo(t, dir)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		write(t, task.Dir, "a.txt", "one\nits own\n")
		write(t, task.Dir, "z.txt", "new\n")
		return done(task, "built", 10), nil
	})
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	x, _ := h.last()
	write(t, dir, "a.txt", "one\nmine\n")
	id, err := h.Apply(t.Context(), x.Run)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := h.Runs.Wait(t.Context(), id)
	if err != nil || !strings.Contains(string(rec.Result), "does not fit") {
		t.Errorf("%s %v", rec.Result, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "z.txt")); !os.IsNotExist(err) || read(t, dir, "a.txt") != "one\nmine\n" {
		t.Error("a part of it was applied")
	}
}

func TestASessionGoesOnWritingWhereItWrote(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	var trees []string
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		trees = append(trees, task.Dir)
		write(t, task.Dir, "file"+string(rune('0'+len(trees))), "x\n")
		return done(task, "built", 10), nil
	})
	in := callInput{Prompt: "x", Harness: "claude", Write: true, Dir: filepath.Join(h.cfg.Workspace, "sub")}
	h.call(CallTool, in)
	x, _ := h.last()
	in.Session = x.Session
	if res := h.call(CallTool, in); res.Status != act.OK {
		t.Fatalf("%+v", res)
	}
	y, rep := h.last()
	if len(trees) != 2 || trees[0] != trees[1] || filepath.Base(trees[0]) != "sub" || len(rep.Files) != 2 {
		t.Errorf("it worked in %v, changed %v", trees, rep.Files)
	}
	if _, err := h.Drop(t.Context(), y.Session); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(trees[0])); !os.IsNotExist(err) {
		t.Error("the worktree is still there")
	}
	if list := git(t, h.cfg.Workspace, "worktree", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("the repository still knows of it:\n%s", list)
	}
	if _, kept, told, err := h.Get(t.Context(), y.Run); err != nil || !told || !strings.Contains(kept.Patch, "file2") {
		t.Errorf("the patch is gone: %v %v", told, err)
	}
}

func TestAWorktreeThatWasBegunIsBegunAnew(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	owner := confined("claude")
	first, err := h.plant(t.Context(), owner, "ses_1", h.cfg.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	write(t, first.Path, "a.txt", "half of what was to be there")
	if again, err := h.plant(t.Context(), owner, "ses_1", h.cfg.Workspace); err != nil || again != first || read(t, first.Path, "a.txt") != "one\ntwo\n" {
		t.Errorf("what no row tells of is kept: %v", err)
	}
	if err := os.RemoveAll(first.own()); err != nil { // killed before git knew of it
		t.Fatal(err)
	}
	if again, err := h.plant(t.Context(), owner, "ses_1", h.cfg.Workspace); err != nil || read(t, again.Path, "a.txt") != "one\ntwo\n" {
		t.Errorf("it was not made anew: %v", err)
	}
}

func TestWritingNeedsACommit(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	in := callInput{Prompt: "x", Harness: "claude", Write: true}
	if res := h.call(CallTool, in); res.Class != fault.Invalid || !strings.Contains(res.Text, "no git repository") {
		t.Errorf("%+v", res)
	}
	git(t, h.cfg.Workspace, "init", "-q")
	if res := h.call(CallTool, in); res.Class != fault.Invalid || !strings.Contains(res.Text, "no commit") {
		t.Errorf("%+v", res)
	}
}

func TestWhatIsForgottenIsGone(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	other := filepath.Join(h.cfg.State, "claude", "projects", "p", "another-session-of-it.jsonl")
	var mine string
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		mine = filepath.Join(task.State, "projects", "p", task.NewSession+".jsonl")
		write(t, filepath.Dir(mine), filepath.Base(mine), "all of it")
		write(t, filepath.Dir(other), filepath.Base(other), "not mine")
		return done(task, "42", 10), nil
	})
	if res := h.call(ClaudeTool, callInput{Prompt: "x", Ephemeral: true}); res.Status != act.OK {
		t.Fatalf("%+v", res)
	}
	if _, err := os.Stat(mine); !os.IsNotExist(err) {
		t.Error("what it remembers is still there")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("what another session remembers is gone")
	}
}

func confined(name string) confine.Owner { return confine.Owner{Subject: "harness:" + name} }

// Git looks at all worktrees of a repository when it makes one, and gives up on one that is
// being made.
func TestManyWriteInOneRepositoryAtOnce(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t), func(c *Config) { c.Budget = budget.At(10_000) })
	repo(t, h.cfg.Workspace)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		write(t, task.Dir, "a.txt", "changed\n")
		return done(task, "built", 10), nil
	})
	var turns []string
	for range 12 {
		turns = append(turns, h.begin(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true}))
	}
	for _, turn := range turns {
		if res := h.end(turn); res.Status != act.OK {
			t.Errorf("%s", res.Text)
		}
	}
}

// A daemon that dies while git makes a worktree leaves what git gives up on, in this session
// and in all others.
func TestAHalfMadeWorktreeIsInNobodysWay(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := h.cfg.Workspace
	repo(t, dir)
	half := func(home string) (Session, Tree) {
		x := Session{ID: id.New("ses"), Harness: "claude", Body: SessionBody{Home: home, Dir: dir}}
		if err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return h.saveSession(ctx, tx, x) }); err != nil {
			t.Fatal(err)
		}
		tree, err := h.plant(t.Context(), confine.Owner{}, x.ID, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(tree.Path, "a.txt")); err != nil { // not checked out yet
			t.Fatal(err)
		}
		write(t, tree.own(), "locked", "initializing")
		return x, tree
	}
	x, tree := half(h.cfg.Home)
	write(t, tree.own(), "commondir", "")
	_, others := half("home_other")
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	if _, rep := h.last(); res.Status != act.OK || len(rep.Files) != 0 {
		t.Errorf("%s %+v", res.Text, rep.Files)
	}
	if _, err := os.Stat(tree.own()); !os.IsNotExist(err) {
		t.Errorf("what was half made is there: %v", err)
	}
	if _, err := os.Stat(others.own()); err != nil {
		t.Errorf("the worktree of another home is gone: %v", err)
	}
	for range 2 {
		again, err := h.plant(t.Context(), confine.Owner{}, x.ID, dir)
		if err != nil || read(t, again.Path, "a.txt") != "one\ntwo\n" {
			t.Fatalf("%+v %v", again, err)
		}
		if err := os.Remove(filepath.Join(again.Path, "a.txt")); err != nil {
			t.Fatal(err)
		}
	}
}

// What a run that died had begun to reckon is taken away by the next.
func TestAnIndexOfBeforeIsRemoved(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		left := filepath.Join(h.cfg.Trees, ".index-"+filepath.Base(task.Dir))
		write(t, left, "index", "half of an index")
		write(t, left, "index.lock", "")
		write(t, task.Dir, "a.txt", "changed\n")
		return done(task, "built", 10), nil
	})
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	_, rep := h.last()
	if left, err := os.ReadDir(h.cfg.Trees); res.Status != act.OK || len(rep.Files) != 1 || err != nil || len(left) != 1 {
		t.Errorf("%s %+v, left are %v %v", res.Text, rep.Files, left, err)
	}
}
