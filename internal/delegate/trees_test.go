package delegate

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
)

// TestOldWorktreesGoUnlessTheyHoldSomething that was never applied, or are worked in.
func TestOldWorktreesGoUnlessTheyHoldSomething(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		repo(t, h.cfg.Workspace)
		working, release := make(chan struct{}), make(chan struct{})
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			name, _, _ := strings.Cut(task.Prompt, " ")
			switch name {
			case "empty":
			case "busy":
				close(working)
				<-release
			default:
				write(t, task.Dir, name+".txt", "made\n")
			}
			return done(task, "built", 10), nil
		})
		session := func(prompt string) Delegation {
			h.call(CallTool, callInput{Prompt: prompt, Harness: "claude", Write: true})
			x, _ := h.last()
			return x
		}
		empty, open, applied, gone := session("empty"), session("open"), session("applied"), session("gone")
		run, err := h.Apply(t.Context(), applied.Run)
		if err == nil {
			_, err = h.Runs.Wait(t.Context(), run)
		}
		if err != nil {
			t.Fatal(err)
		}
		x, err := h.SessionOf(t.Context(), gone.Session)
		if err == nil {
			err = os.RemoveAll(x.Body.Tree.Path)
		}
		if err != nil {
			t.Fatal(err)
		}
		busy := h.begin(CallTool, callInput{Prompt: "busy", Harness: "claude", Write: true})
		<-working
		list, err := h.List(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		atWork := list[0].Session
		now := d.Time() + 1
		drop := func(before int64, force, dry bool) map[string]string {
			t.Helper()
			got, err := h.DropOlder(t.Context(), before, force, dry)
			if err != nil {
				t.Fatal(err)
			}
			kept := map[string]string{}
			for _, w := range got {
				kept[w.Session] = w.Kept
			}
			return kept
		}
		if got := drop(1, false, false); len(got) != 0 {
			t.Errorf("before the first there are %v", got)
		}
		for _, dry := range []bool{true, false} {
			got := drop(now, false, dry)
			if len(got) != 5 || got[empty.Session] != "" || got[applied.Session] != "" || got[gone.Session] != "" ||
				!strings.Contains(got[open.Session], "not applied") || !strings.Contains(got[atWork], "worked in") {
				t.Errorf("dry %v: %v", dry, got)
			}
			trees, err := h.Worktrees(t.Context())
			if want := map[bool]int{true: 5, false: 2}[dry]; err != nil || len(trees) != want || trees[0].Bytes == 0 {
				t.Errorf("dry %v: %d are left, %+v, %v", dry, len(trees), trees, err)
			}
		}
		if got := drop(now, true, false); len(got) != 2 || got[open.Session] != "" || got[atWork] == "" {
			t.Errorf("by force: %v", got)
		}
		for _, x := range []Delegation{empty, open, applied, gone} {
			if _, err := h.SessionOf(t.Context(), x.Session); !fault.Is(err, fault.NotFound) {
				t.Errorf("session %s: %v", x.Session, err)
			}
		}
		close(release)
		h.end(busy)
		if got := git(t, h.cfg.Workspace, "worktree", "list"); strings.Count(got, "\n") != 2 {
			t.Errorf("git knows of\n%s", got)
		}
	})
}

// TestASessionThatIsHalfForgottenIsThereToBeForgotten: a daemon that dies on the way leaves
// no worktree that nobody knows of, and nobody works in what is left.
func TestASessionThatIsHalfForgottenIsThereToBeForgotten(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		repo(t, h.cfg.Workspace)
		h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
			write(t, task.Dir, "new.txt", "made\n")
			return done(task, "built", 10), nil
		})
		in := callInput{Prompt: "x", Harness: "claude", Write: true}
		h.call(CallTool, in)
		row, _ := h.last()
		x, err := h.SessionOf(t.Context(), row.Session)
		if err != nil {
			t.Fatal(err)
		}
		release, err := h.alone(t.Context(), x.Body.Tree.Common)
		if err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		defer die()
		dropped := make(chan error, 1)
		go func() {
			_, err := h.Drop(ctx, x.ID)
			dropped <- err
		}()
		for begun := false; !begun; { // until it has begun and waits for the repository
			now, err := h.SessionOf(t.Context(), x.ID)
			if begun = err != nil || now.Body.Dropped; begun {
				die()
			}
		}
		if err := <-dropped; err == nil {
			t.Fatal("it was forgotten at once")
		}
		release()
		if list, err := h.Worktrees(t.Context()); err != nil || len(list) != 1 {
			t.Fatalf("listed are %+v, %v", list, err)
		}
		in.Session = x.ID
		if res := h.call(CallTool, in); !strings.Contains(res.Text, "being forgotten") {
			t.Errorf("it goes on: %+v", res)
		}
		got, err := h.DropOlder(t.Context(), d.Time()+1, false, false)
		if err != nil || len(got) != 1 || got[0].Kept != "" {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := os.Stat(x.Body.Tree.Path); !os.IsNotExist(err) {
			t.Errorf("the worktree is there: %v", err)
		}
		if _, err := h.SessionOf(t.Context(), x.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("the session is there: %v", err)
		}
	})
}

// TestAWorktreeThatIsWorkedInMeanwhileStays: a task comes and goes between the look at what is
// in it and its end.
func TestAWorktreeThatIsWorkedInMeanwhileStays(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	in := callInput{Prompt: "x", Harness: "claude", Write: true}
	h.call(CallTool, in)
	row, _ := h.last()
	seen, err := h.SessionOf(t.Context(), row.Session)
	if err != nil {
		t.Fatal(err)
	}
	in.Session = seen.ID
	h.call(CallTool, in)
	h.last()
	if _, err := h.drop(t.Context(), seen, unusedSince(seen)); !fault.Is(err, fault.Conflict) {
		t.Errorf("it is dropped: %v", err)
	}
	now, err := h.SessionOf(t.Context(), seen.ID)
	if err != nil || now.Body.Dropped || now.Used <= seen.Used {
		t.Fatalf("the session is %+v, %v", now, err)
	}
	if _, err := os.Stat(now.Body.Tree.Path); err != nil {
		t.Error(err)
	}
	if _, err := h.drop(t.Context(), now, unusedSince(now)); err != nil {
		t.Error(err)
	}
}
