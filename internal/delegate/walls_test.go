package delegate

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
)

// TestALinkInAWorktreeOpensNothing plays a program that puts a link where its session
// works: the walls of the next run would be opened for what it points to.
func TestALinkInAWorktreeOpensNothing(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	victim := t.TempDir()
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		if err := os.RemoveAll(task.Dir); err != nil {
			t.Error(err)
		}
		if err := os.Symlink(victim, task.Dir); err != nil {
			t.Error(err)
		}
		return done(task, "built", 10), nil
	})
	in := callInput{Prompt: "x", Harness: "claude", Write: true, Dir: filepath.Join(h.cfg.Workspace, "sub")}
	if res := h.call(CallTool, in); res.Status != act.OK {
		t.Fatalf("%+v", res)
	}
	_, rep := h.last()
	in.Session = rep.Session
	if res := h.call(CallTool, in); res.Status == act.OK || !strings.Contains(res.Text, "link to elsewhere") {
		t.Errorf("it went on with %+v", res.Text)
	}
	if n := len(h.stage.started()); n != 1 {
		t.Errorf("%d programs were started, the last in %s", n, h.stage.started()[n-1].Dir)
	}
}

// TestADirectoryThatBecameALinkIsNotReadOn is the same for what is read: what was decided
// on is the directory of the session, not what a link there leads to later.
func TestADirectoryThatBecameALinkIsNotReadOn(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := filepath.Join(h.cfg.Workspace, "sub")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Dir: dir}); res.Status != act.OK {
		t.Fatalf("%+v", res)
	}
	_, rep := h.last()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Session: rep.Session}); res.Status == act.OK {
		t.Errorf("it went on with %+v", res.Text)
	}
}

// TestAWorktreeStaysTiedToItsRepository plays a program that puts a repository of its own
// into its worktree: whoever looks at the worktree with git later is not to run that one's.
func TestAWorktreeStaysTiedToItsRepository(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		if err := os.Remove(filepath.Join(task.Dir, ".git")); err != nil {
			t.Error(err)
		}
		git(t, task.Dir, "init", "-q")
		git(t, task.Dir, "config", "core.fsmonitor", "touch pwned")
		write(t, task.Dir, "a.txt", "changed\n")
		return done(task, "built", 10), nil
	})
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true}); res.Status != act.OK || !strings.Contains(res.Text, ".git") {
		t.Fatalf("%+v", res)
	}
	_, rep := h.last()
	if got := git(t, rep.Tree, "status", "--porcelain"); got != " M a.txt\n" {
		t.Errorf("git says there: %q", got)
	}
	if got := git(t, rep.Tree, "config", "--default", "none", "core.fsmonitor"); got != "none\n" {
		t.Errorf("git would run %q there", got)
	}
}

// TestAPatchKeepsEveryByte: what a program writes need not be UTF-8.
func TestAPatchKeepsEveryByte(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := h.cfg.Workspace
	repo(t, dir)
	const latin = "caf\xe9\n"
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		write(t, task.Dir, "latin.txt", latin)
		write(t, task.Dir, "n\xe9.txt", latin)
		return done(task, "built", 10), nil
	})
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true}); res.Status != act.OK {
		t.Fatalf("%+v", res)
	}
	x, _ := h.last()
	id, err := h.Apply(t.Context(), x.Run)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := h.Runs.Wait(t.Context(), id); err != nil || rec.State != run.Completed || !strings.Contains(string(rec.Result), `"status":"ok"`) {
		t.Fatalf("%+v %v", string(rec.Result), err)
	}
	for _, name := range []string{"latin.txt", "n\xe9.txt"} {
		if got := read(t, dir, name); got != latin {
			t.Errorf("%q holds %q", name, got)
		}
	}
}

// TestALongReportIsShortened: work whose report would be cut in the middle had failed.
func TestALongReportIsShortened(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	answer := strings.Repeat("<", maxAnswer) // six times as long in JSON
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		for i := range maxFiles + 5 {
			write(t, task.Dir, filepath.Join(strings.Repeat("d", 200), strings.Repeat("f", 200)+strconv.Itoa(i)), "x")
		}
		return done(task, answer, 10), nil
	})
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true}); res.Status != act.OK || !strings.Contains(res.Text, "shortened") {
		t.Fatalf("%+v", res)
	}
	x, rep := h.last()
	if len(rep.Files)+rep.More != maxFiles+5 || len(rep.Files) == 0 || !strings.HasPrefix(rep.Answer, "<<<<") {
		t.Errorf("%d files, %d more, an answer of %d bytes", len(rep.Files), rep.More, len(rep.Answer))
	}
	if _, kept, _, err := h.Get(t.Context(), x.Run); err != nil || kept.Record.Text != answer || strings.Count(kept.Patch, "diff --git") != maxFiles+5 {
		t.Errorf("kept are %d bytes of answer, %v", len(kept.Record.Text), err)
	}
}

// TestASessionItsProgramNeverBeganIsBegun: the id is ours, and known before the program is
// started. What was ended at once is gone on with all the same, and counted from nothing.
func TestASessionItsProgramNeverBeganIsBegun(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		if task.Session != "" {
			return harness.Record{Outcome: harness.NotStarted, Error: "No conversation found"}, nil
		}
		if len(h.stage.started()) == 1 {
			return harness.Record{Outcome: harness.Killed}, nil
		}
		return done(task, "begun", 100), nil
	})
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	first, _ := h.last()
	res := h.call(CallTool, callInput{Prompt: "y", Harness: "claude", Session: first.Session})
	if x, rep := h.last(); res.Status != act.OK || rep.Answer != "begun" || x.MicroUSD != 100 || len(h.stage.started()) != 3 {
		t.Errorf("%s\n%+v", res.Text, rep)
	}
}

// TestACountThatBeginsAnewIsBooked: a session that is lost takes with it what was counted.
func TestACountThatBeginsAnewIsBooked(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	began := make(chan struct{}, 1)
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		switch n := len(h.stage.started()); {
		case n == 1:
			return done(task, "first", 1000), nil
		case n == 2:
			began <- struct{}{}
			<-ctx.Done()
			return harness.Record{Outcome: harness.Killed}, nil
		case task.Session != "" && n == 3:
			return harness.Record{Outcome: harness.NotStarted, Error: "No conversation found"}, nil
		}
		return done(task, "anew", int64(100*len(h.stage.started()))), nil
	})
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	x, _ := h.last()
	in := callInput{Prompt: "y", Harness: "claude", Session: x.Session}
	id := h.begin(CallTool, in)
	<-began
	h.halt()
	h.boot()
	h.end(id)
	if x, _ := h.last(); x.MicroUSD != 400 {
		t.Errorf("the session that was begun anew cost %d", x.MicroUSD)
	}
	h.call(CallTool, in)
	if x, _ := h.last(); x.MicroUSD != 100 { // the fifth start: 500 in all
		t.Errorf("what came after it cost %d", x.MicroUSD)
	}
}

// TestTokensOfBeforeAreSwept: a daemon that was killed leaves the token of each job.
func TestTokensOfBeforeAreSwept(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	state := filepath.Join(h.cfg.State, "claude")
	write(t, state, tokenFile+"1", "token")
	write(t, state, "kept", "x")
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Tools: []string{"codex.*"}})
	left, err := os.ReadDir(state)
	if err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestWhatAProgramLockedIsRemoved: a build of Go leaves directories that nothing can be
// removed from. It says something only where the tests are not root's.
func TestWhatAProgramLockedIsRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tree")
	write(t, dir, "mod/x.go", "")
	if err := os.Chmod(filepath.Join(dir, "mod"), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := removeAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}

// TestAQuestionHidesNothing: what a command does at its end is in the question.
func TestAQuestionHidesNothing(t *testing.T) {
	t.Parallel()
	ask := func(command string) string {
		raw, err := json.Marshal(permitInput{Harness: "claude", Kind: child.KindCommand, Tool: "Bash", What: command})
		if err != nil {
			t.Fatal(err)
		}
		return permitDefinition().Summary(raw)
	}
	if got := ask("echo " + strings.Repeat("x", 1000) + "; rm -rf /"); !strings.Contains(got, "rm -rf /") || strings.Contains(got, "NOT shown") {
		t.Errorf("asked is %q", got)
	}
	if got := ask(strings.Repeat("x", 2*maxAsked) + "; rm -rf /"); !strings.Contains(got, "NOT shown") {
		t.Errorf("asked is %q", got)
	}
}

// TestASessionGoesOnAfterItsPatchWasApplied: what is applied is not told, nor applied, again.
func TestASessionGoesOnAfterItsPatchWasApplied(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	dir := h.cfg.Workspace
	repo(t, dir)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		n := len(h.stage.started())
		write(t, task.Dir, "a.txt", strings.Repeat("line\n", n))
		write(t, task.Dir, "new"+strconv.Itoa(n)+".txt", "x\n")
		return done(task, "built", 10), nil
	})
	in := callInput{Prompt: "x", Harness: "claude", Write: true}
	for n := range 3 {
		if res := h.call(CallTool, in); res.Status != act.OK {
			t.Fatalf("%+v", res)
		}
		x, rep := h.last()
		if in.Session = x.Session; len(rep.Files) != 2 {
			t.Errorf("told are %+v", rep.Files)
		}
		id, err := h.Apply(t.Context(), x.Run)
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := h.Runs.Wait(t.Context(), id); err != nil || !strings.Contains(string(rec.Result), `"status":"ok"`) {
			t.Fatalf("%s %v", rec.Result, err)
		}
		if got := read(t, dir, "a.txt"); got != strings.Repeat("line\n", n+1) {
			t.Errorf("there is %q", got)
		}
	}
}

// TestARepositoryInAWorktreeIsTold: git takes in nothing of a repository in another, and
// nothing at all where one has no commit.
func TestARepositoryInAWorktreeIsTold(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		for _, name := range []string{"empty", "full"} {
			write(t, task.Dir, name+"/x.txt", "x")
			git(t, filepath.Join(task.Dir, name), "init", "-q")
		}
		git(t, filepath.Join(task.Dir, "full"), "add", ".")
		git(t, filepath.Join(task.Dir, "full"), "commit", "-qm", "x")
		write(t, task.Dir, "a.txt", "changed\n")
		return done(task, "built", 10), nil
	})
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	_, rep := h.last()
	if res.Status != act.OK || len(rep.Files) != 1 || !strings.Contains(res.Text, "1 directories") || !strings.Contains(res.Text, "'empty/'") {
		t.Errorf("%s\n%+v", res.Text, rep.Files)
	}
}

// TestChecksAreCommandsOfWhoeverWantsThem: a check is a command like those the program asks
// leave for, and a person who is asked sees it.
func TestChecksAreCommandsOfWhoeverWantsThem(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t), func(c *Config) { c.Shell = "/bin/sh" })
	repo(t, h.cfg.Workspace)
	in := callInput{Prompt: "x", Harness: "claude", Write: true, Checks: []string{"rm -rf /"}, Tools: []string{"codex.*"}}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.callDefinition("").Summary(raw); !strings.Contains(got, "rm -rf /") || !strings.Contains(got, "codex.*") {
		t.Errorf("a person is shown %q", got)
	}
	h.mayUse(rule(policy.Allow, "harness"), rule(policy.Deny, "harness:claude/command"), rule(policy.Allow, "fs.write:"+h.cfg.Workspace+"/**"))
	if res := h.call(CallTool, in); res.Status != act.Refused || !strings.Contains(res.Text, "harness:claude/command") {
		t.Errorf("%+v", res)
	}
	if n := len(h.stage.started()); n != 0 {
		t.Errorf("%d programs were started", n)
	}
}

// TestWhatAnEndedProgramSaysItCostIsBooked: what it may have cost is held only where it
// does not say.
func TestWhatAnEndedProgramSaysItCostIsBooked(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	began := make(chan struct{})
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		if task.Session != "" {
			return done(task, "42", 1000), nil
		}
		close(began)
		<-ctx.Done()
		rec := done(task, "", 700)
		rec.Outcome = harness.Killed
		return rec, nil
	})
	h.call(CallTool, callInput{Prompt: "x", Background: true})
	<-began
	list, err := h.List(t.Context(), 1)
	if err == nil {
		err = h.Runs.Cancel(t.Context(), list[0].Run, "operator", "enough")
	}
	if err != nil {
		t.Fatal(err)
	}
	x, _ := h.last()
	if x.Outcome != "cancelled" || x.MicroUSD != 700 || !x.Priced {
		t.Errorf("%+v", x)
	}
	if spent, reserved, possible, unknown := h.spent(); spent != 700 || reserved+possible+unknown != 0 {
		t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
	}
	h.call(CallTool, callInput{Prompt: "y", Session: x.Session})
	if x, _ := h.last(); x.MicroUSD != 300 {
		t.Errorf("what came after it cost %d", x.MicroUSD)
	}
}
