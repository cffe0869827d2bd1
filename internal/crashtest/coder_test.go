package crashtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/wire"
)

// codedLine is what the coding agent writes, into codedFile.
const (
	codedLine = "a line of the agent"
	codedFile = "notes.txt"
)

const coderConfig = `models:
  main: scripted/%s
harnesses:
  fake: {acp: [%q, coding-agent, %q]}
delegate:
  default: fake
roles:
  crash:
    allow: ["harness:fake", %q]
    ask: ["harness:fake/edit"]
agents:
  main:
    role: crash
`

// coderScript gives a task to the coding agent, and hears of its end.
const coderScript = `log: %s
turns:
  - match: has ended
    steps: [{text: I was told}]
  - match: hand it on
    steps:
      - calls: [{tool: delegate.call, input: {prompt: write the line, dir: %q, write: true, background: true}}]
      - text: reply to hand it on
`

// newCoder is a life with a coding agent and a repository it works from.
func newCoder(t *testing.T, kills ...string) *coding {
	t.Helper()
	l := newLife(t, dbtest.KindSQLite, kills...)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &coding{life: l, repo: l.path("repo")}
	if c.repo, err = filepath.EvalSymlinks(c.repo); err != nil {
		c.repo = filepath.Join(l.path(""), "repo")
	}
	l.write(l.in.ConfigFile(), fmt.Sprintf(coderConfig, l.path("script.yaml"), own, "of="+l.dir, "fs.write:"+c.repo+"/**"))
	l.write(l.path("script.yaml"), fmt.Sprintf(coderScript, l.path("asked"), c.repo))
	if err := os.Mkdir(c.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(c.repo, "README"), "a repository\n")
	c.git("init", "--quiet")
	c.git("add", "README")
	c.git("commit", "--quiet", "-m", "first")
	c.before = c.state()
	l.died = c.left
	return c
}

// coding is a life with a coding agent.
type coding struct {
	*life
	repo, before string
	booted       int      // passes that starting took
	passed       []string // those of a life in which nobody died
	told         []wire.Delegation
}

// git asks git about the repository, and sets nothing of ours or of the operator's.
func (c *coding) git(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = c.repo
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: git %s: %v\n%s", c.name, args, err, out)
	}
	return string(out)
}

// state is all of the repository that a delegation may not change.
func (c *coding) state() string {
	c.t.Helper()
	var b strings.Builder
	for _, args := range [][]string{
		{"rev-parse", "HEAD"}, {"symbolic-ref", "HEAD"}, {"for-each-ref"}, {"status", "--porcelain", "--ignored"}, {"ls-files", "--stage"}, {"config", "--local", "--list"},
		{"stash", "list"}, {"fsck", "--no-dangling", "--no-progress"},
	} {
		b.WriteString(c.git(args...))
	}
	for _, name := range []string{"README", ".git/index", ".git/HEAD", ".git/config"} {
		text, err := os.ReadFile(filepath.Join(c.repo, name))
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s: %q\n", name, text)
	}
	return b.String()
}

// programs are the processes of this life beside its daemons, with the ids they go by.
func (c *coding) programs() (out []string) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range all {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.Contains(string(line), "of="+c.dir) {
			out = append(out, filepath.Base(dir))
		}
	}
	return out
}

// left looks, after a death, for programs that live on.
func (c *coding) left() {
	c.t.Helper()
	killed := time.Now()
	had := c.programs()
	c.until("nothing of a killed daemon is left", func(context.Context) bool {
		now := c.programs()
		return !slices.ContainsFunc(had, func(pid string) bool { return slices.Contains(now, pid) })
	})
	if took := time.Since(killed); took > heldWithin {
		c.t.Errorf("%s: a coding agent lived for %v", c.name, took)
	}
}

// The tasks the operator gives. One is done without a question.
const (
	askedTask   = "write the line, operator"
	unaskedTask = "write the line unasked"
)

// begun gives a task as the operator, once.
func (c *coding) begun(prompt string, checks ...string) {
	c.t.Helper()
	insist(c.life, "give the task", func(ctx context.Context) (bool, error) {
		list, err := c.client.DelegateList(ctx, wire.DelegateListRequest{})
		if err != nil {
			return false, err
		}
		for _, d := range list.Delegations {
			got, err := c.client.DelegateShow(ctx, wire.DelegateShowRequest{RunID: d.RunID})
			if err != nil || got.Task == prompt {
				return true, err // it was begun, though we were not told
			}
		}
		_, err = c.client.DelegateStart(ctx, wire.DelegateRequest{Prompt: prompt, Harness: "fake", Dir: c.repo, Write: true, Background: true, Checks: checks})
		return true, err
	})
}

// story has three delegations, and says yes to whatever is asked, through any death, until
// all have ended and those who are to hear of it have.
func (c *coding) story() {
	c.t.Helper()
	c.begun(askedTask, "test -s "+codedFile)
	handed := c.say("a", "hand it on")
	c.begun(unaskedTask)
	c.turn(handed)
	insist(c.life, "the end of all", func(ctx context.Context) (bool, error) {
		if err := c.sayYes(ctx); err != nil {
			return false, err
		}
		list, err := c.client.DelegateList(ctx, wire.DelegateListRequest{})
		if err != nil {
			return false, err
		}
		if len(list.Delegations) != 3 || slices.ContainsFunc(list.Delegations, func(d wire.Delegation) bool { return d.EndedAt == 0 }) {
			return false, errNotYet
		}
		c.told = list.Delegations
		live, err := c.client.RunsList(ctx, wire.RunsListRequest{State: "live"})
		if err == nil && (len(live.Runs) > 0 || len(c.heard(c.events("comms.sent"))) < 4) {
			err = errNotYet
		}
		return true, err
	})
}

// heard are the answers of the model and the notices to the operator.
func (c *coding) heard(sent []wire.Event) (out []string) {
	for _, e := range sent {
		for _, text := range []string{"reply to hand it on", "I was told", "session ses_"} {
			if strings.Contains(string(e.Data), text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// sayYes allows what is asked. Nobody is asked twice at once.
func (c *coding) sayYes(ctx context.Context) error {
	c.t.Helper()
	open, err := c.client.ApprovalsList(ctx, wire.ApprovalsListRequest{})
	if err != nil {
		return err
	}
	asked := map[string]int{}
	for _, a := range open.Approvals {
		if asked[a.Summary]++; a.Tool != "harness.permit" || asked[a.Summary] > 1 {
			c.t.Errorf("%s: %d open questions %q of %s", c.name, asked[a.Summary], a.Summary, a.Tool)
		}
		_, err := c.client.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: a.ID, Decision: wire.Approve})
		if now, got := c.client.ApprovalsList(ctx, wire.ApprovalsListRequest{}); err != nil && (got != nil || slices.ContainsFunc(now.Approvals, func(b wire.Approval) bool { return a.ID == b.ID })) {
			return err // it was neither answered nor withdrawn meanwhile
		}
	}
	return nil
}

// inspect checks that each delegation ended once, was told of once, and wrote once. It
// returns how often programs were started again.
func (c *coding) inspect() (again int) {
	c.t.Helper()
	bad := func(format string, args ...any) {
		c.t.Helper()
		c.t.Errorf("%s: "+format, append([]any{c.name}, args...)...)
	}
	ctx := c.t.Context()
	ended := c.events("delegation.completed")
	for _, d := range c.told {
		times := len(slices.DeleteFunc(slices.Clone(ended), func(e wire.Event) bool { return !strings.Contains(string(e.Data), d.RunID) }))
		got, err := c.client.DelegateShow(ctx, wire.DelegateShowRequest{RunID: d.RunID})
		if err != nil || d.Outcome != "completed" || times != 1 || d.Tries < 1 || d.Tries > 1+c.deaths {
			bad("%q is %q and has %d ends, in %d tries: %s %v", got.Task, d.Outcome, times, d.Tries, got.Error, err)
		}
		if n := strings.Count(got.Patch, "+"+codedLine+"\n"); n != 1 || len(got.Files) != 1 {
			bad("%q wrote the line %d times, in %d files", got.Task, n, len(got.Files))
		}
		if slices.ContainsFunc(got.Checks, func(k wire.DelegateCheck) bool { return !k.OK }) || (got.Task == askedTask) != (len(got.Checks) == 1) {
			bad("%q was checked: %+v", got.Task, got.Checks)
		}
		again += d.Tries - 1
		c.outside(got, d, bad)
	}
	heard := c.heard(c.events("comms.sent"))
	if slices.Sort(heard); !slices.Equal(heard, []string{"I was told", "reply to hand it on", "session ses_", "session ses_"}) || len(ended) != 3 {
		bad("%d ends, and heard was %q", len(ended), heard)
	}
	c.nothingOpen(bad)
	if now := c.state(); now != c.before {
		bad("the repository was changed: %s\nbefore: %s", now, c.before)
	}
	for _, d := range c.told {
		if _, err := c.client.DelegateDrop(ctx, wire.DelegateDropRequest{SessionID: d.SessionID}); err != nil {
			bad("drop: %v", err)
		}
	}
	if trees := strings.Count(c.git("worktree", "list"), "\n"); trees != 1 {
		bad("%d worktrees are left", trees-1)
	}
	for _, dir := range []string{"worktrees", filepath.Join("harness", "fake", "run")} {
		if left, err := os.ReadDir(filepath.Join(c.in.DataDir, dir)); err != nil || len(left) > 0 {
			bad("left in %s: %v %v", dir, left, err)
		}
	}
	return again
}

// outside looks at what the agent noted of a delegation.
func (c *coding) outside(got wire.DelegateShowResult, d wire.Delegation, bad func(string, ...any)) {
	c.t.Helper()
	tree := filepath.Base(got.Worktree)
	times := map[string]int{}
	for _, line := range c.linesOf(filepath.Join(c.in.DataDir, "harness", "fake", "home", "log")) {
		if what, of, _ := strings.Cut(line, " "); of == tree {
			times[what]++
		}
	}
	asks := 0
	if got.Task != unaskedTask {
		asks = 1
	}
	switch {
	case times["twice"] != 0:
		bad("%q had two programs at once", got.Task)
	case times["wrote"] > 1, times["started"] > d.Tries, times["asked"] > asks*times["started"]:
		bad("%q, in %d tries: %v", got.Task, d.Tries, times)
	case c.deaths == 0 && (times["wrote"] != 1 || times["started"] != 1 || times["asked"] != asks):
		bad("%q, undisturbed: %v", got.Task, times)
	}
}

// nothingOpen checks that nothing is left to be done or to be answered, and that the store
// holds together.
func (c *coding) nothingOpen(bad func(string, ...any)) {
	c.t.Helper()
	ctx := c.t.Context()
	if open, err := c.client.ApprovalsList(ctx, wire.ApprovalsListRequest{}); err != nil || len(open.Approvals) != 0 {
		bad("open questions: %+v %v", open.Approvals, err)
	}
	runs, err := c.client.RunsList(ctx, wire.RunsListRequest{Limit: 1000})
	for _, r := range runs.Runs {
		if r.State != "completed" && (r.Kind != "jobcall" || r.State != "cancelled" && r.State != "failed") {
			bad("%s %s is %s: %v", r.Kind, r.Name, r.State, r.Error)
		}
	}
	if err != nil {
		bad("%v", err)
	}
	if _, err := c.client.AuditVerify(ctx, wire.AuditVerifyRequest{}); err != nil {
		bad("audit verify: %v", err)
	}
	if v, err := c.client.RunsVerify(ctx); err != nil || len(v.Mismatches) > 0 {
		bad("runs verify: %v %v", v.Mismatches, err)
	}
	if dead, err := c.client.DLQList(ctx, wire.DLQListRequest{}); err != nil || len(dead.Letters) > 0 {
		bad("dead letters: %+v %v", dead, err)
	}
}

// rows looks into the store of a life that has ended: nothing is held against a budget, and
// no job has a token that is good.
func (c *coding) rows() {
	c.t.Helper()
	d, err := db.Open(c.t.Context(), db.Options{DSN: "sqlite:" + c.in.StateDB()})
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			c.t.Error(err)
		}
	}()
	for _, q := range []string{
		"SELECT count(*) FROM budget_reservations WHERE state = 'open'", "SELECT count(*) FROM budget_totals WHERE reserved <> 0", "SELECT count(*) FROM jobs WHERE ended = 0",
	} {
		var n int
		err := d.Read(c.t.Context(), func(ctx context.Context, tx db.Q) error { return tx.QueryRow(ctx, q).Scan(&n) })
		if err != nil || n != 0 {
			c.t.Errorf("%s: %s is %d: %v", c.name, q, n, err)
		}
	}
}
