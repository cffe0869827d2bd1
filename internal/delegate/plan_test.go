package delegate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
)

// noGit is a machine without git.
type noGit struct{}

func (noGit) Run(context.Context, checkpoint.Command) error { return checkpoint.ErrNoGit }

// ours is an order of the operator for claude.
func ours(dir string, write bool, checks ...string) Order {
	return Order{Want: Want{Harness: "claude"}, Task: Task{Prompt: "x", Subject: Operator, Tier: policy.Trusted, Dir: dir, Write: write, Checks: checks}}
}

// TestWhatWouldEndATaskIsSaidBeforeItBegins, with the way out.
func TestWhatWouldEndATaskIsSaidBeforeItBegins(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d, func(c *Config) { c.Shell, c.Path = "/bin/sh", "/usr/bin:/bin" })
		place := func(name string) string {
			dir := filepath.Join(h.cfg.Workspace, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		outside, empty, whole := t.TempDir(), place("empty"), place("whole")
		git(t, empty, "init", "-q")
		repo(t, whole)
		if err := os.Mkdir(filepath.Join(whole, "new"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			order Order
			class fault.Class
			says  string
		}{
			"reading":           {ours(outside, false), "", ""},
			"writing":           {ours(whole, true, "git diff", "X=1 nothing", "cd /; nothing"), "", ""},
			"writing below":     {ours(filepath.Join(whole, "sub"), true), "", ""},
			"no repository":     {ours(outside, true), fault.Invalid, "no git repository"},
			"an empty one":      {ours(empty, true), fault.Invalid, "no commit"},
			"a new directory":   {ours(filepath.Join(whole, "new"), true), fault.NotFound, "in no commit"},
			"no directory":      {ours(filepath.Join(outside, "gone"), false), fault.NotFound, "gone"},
			"an unknown check":  {ours(whole, true, "no-such-program --all"), fault.NotFound, "no-such-program"},
			"an unheard of one": {Order{Want: Want{Harness: "clod"}, Task: Task{Prompt: "x", Subject: Operator}}, fault.NotFound, "clod"},
		} {
			_, err := h.Plan(t.Context(), c.order)
			if fault.ClassOf(err) != c.class || err != nil && (!strings.Contains(err.Error(), c.says) || fault.HintOf(err) == "") {
				t.Errorf("%s: %v (hint %q)", name, err, fault.HintOf(err))
			}
		}
		h.deps.Git = noGit{}
		if _, err := h.Plan(t.Context(), ours(whole, true)); fault.ClassOf(err) != fault.Unavailable || !strings.Contains(fault.HintOf(err), "install git") {
			t.Errorf("without git: %v", err)
		}
		spend := func(ctx context.Context, tx *db.Tx) error {
			return h.budget.SpendTx(ctx, tx, budget.Reserve{Run: "r", Agent: "main"}, 10_000_000, true)
		}
		if err := d.InTx(t.Context(), spend); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Plan(t.Context(), ours(outside, false)); fault.ClassOf(err) != fault.Denied || !strings.Contains(err.Error(), "$10.00 a day") {
			t.Errorf("over budget: %v", err)
		}
		if n := len(h.stage.started()); n != 0 {
			t.Errorf("%d programs were started", n)
		}
	})
}

// TestADenyBelowADirectoryKeepsATaskOut, whoever gives it, and also of a worktree, in which
// is more than the directory.
func TestADenyBelowADirectoryKeepsATaskOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		top := h.cfg.Workspace
		write(t, top, "secret/key.txt", "k")
		repo(t, top)
		allowed := []policy.Rule{rule(policy.Allow, "harness"), rule(policy.Allow, "fs.read:"+top+"/**"), rule(policy.Allow, "fs.write:"+top+"/**")}
		for name, c := range map[string]struct {
			deny  string
			order Order
			kept  bool
		}{
			"below":                  {"fs.read:" + top + "/secret/**", ours(top, false), true},
			"one file, by a pattern": {"fs.read:/**/key.txt", ours(top, false), true},
			"beside":                 {"fs.read:" + top + "/secret/**", ours(filepath.Join(top, "sub"), false), false},
			"beside, in a worktree":  {"fs.read:" + top + "/secret/**", ours(filepath.Join(top, "sub"), true), true},
			"to write alone":         {"fs.write:" + top + "/secret/**", ours(top, false), false},
			"to write":               {"fs.write:" + top + "/secret/**", ours(top, true), true},
			"what is not there":      {"fs.read:" + top + "/nothing/**", ours(top, true), false},
		} {
			h.mayUse(append(allowed, rule(policy.Deny, c.deny))...)
			_, err := h.Plan(t.Context(), c.order)
			if c.kept != fault.Is(err, fault.Denied) || !c.kept && err != nil || c.kept && !strings.Contains(err.Error(), c.deny) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What is decided later is looked at again where the program is started.
		h.mayUse(append(allowed, rule(policy.Deny, "fs.read:"+top+"/secret/**"))...)
		res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Dir: top, Write: true})
		if res.Status == act.OK || res.Class != fault.Denied || !strings.Contains(res.Text, "secret") {
			t.Errorf("the call came to %+v", res)
		}
		if n := len(h.stage.started()); n != 0 {
			t.Errorf("%d programs were started", n)
		}
		if spent, reserved, possible, unknown := h.spent(); spent+reserved+possible+unknown != 0 {
			t.Errorf("booked are %d, %d, %d, %d", spent, reserved, possible, unknown)
		}
	})
}
