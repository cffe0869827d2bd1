//go:build harness

package real

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

// user is somebody with ombud, a repository and one coding agent.
type user struct {
	t     testing.TB
	ombud string
	home  string
	repo  string
	key   string // for the API, in their environment
	up    *exec.Cmd
}

func newUser(t testing.TB, cli harness.Name, run *fakeapi.Run) *user {
	t.Helper()
	path, _, _ := program(t, cli)
	u := &user{t: t, ombud: filepath.Join(t.TempDir(), "ombud"), home: room(t), repo: room(t)}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", u.ombud, "github.com/ombud-run/ombud/cmd/ombud")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	base := run.URL
	if cli == harness.Codex {
		base += "/v1"
	}
	config := fmt.Sprintf("models: {main: builtin}\nlisten: {address: 'off'}\nharnesses:\n  %s: {program: %q, base_url: %q}\n", cli, path, base)
	if err := os.MkdirAll(filepath.Join(u.home, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.home, "config", "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.repo, "note.txt"), []byte("seven boilers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=u", "-c", "user.email=u@example.com", "commit", "-qm", "first"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = u.repo, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	u.key = run.Key
	u.start()
	t.Cleanup(func() {
		if out, err := u.run("stop"); err != nil {
			t.Errorf("stop: %v\n%s", err, out)
		}
	})
	return u
}

func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.ombud, args...)
	cmd.Dir, cmd.Env = u.repo, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "OMBUD_HOME=" + u.home, "LANG=C.UTF-8", "ANTHROPIC_API_KEY=" + u.key}
	return cmd
}

// run runs a command as the user would, and returns what it printed.
func (u *user) run(args ...string) (string, error) {
	u.t.Helper()
	out, err := u.command(args...).CombinedOutput()
	return string(out), err
}

func (u *user) must(args ...string) string {
	u.t.Helper()
	out, err := u.run(args...)
	if err != nil {
		u.t.Fatalf("ombud %v: %v\n%s", args, err, out)
	}
	return out
}

// start starts the daemon and waits until it answers.
func (u *user) start() {
	u.t.Helper()
	u.up = u.command("up")
	if err := u.up.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.wait("a daemon that answers", func() bool { _, err := u.run("status"); return err == nil })
}

func (u *user) wait(what string, there func() bool) {
	u.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for !there() {
		if time.Now().After(end) {
			u.t.Fatalf("no %s within %s", what, patience)
		}
		<-tick.C
	}
}

// question waits for a question that is not one of those, and returns its id.
func (u *user) question(known ...string) (id string) {
	u.t.Helper()
	ids := regexp.MustCompile(`apr_[0-9a-z]+`)
	u.wait("question", func() bool {
		out, err := u.run("inbox", "--json")
		if err != nil {
			return false
		}
		for _, id = range ids.FindAllString(out, -1) {
			if !strings.Contains(strings.Join(known, " "), id) {
				return true
			}
		}
		return false
	})
	return id
}

// TestATaskIsDoneByARealProgram is what a person does: a task that writes, its question
// answered, the daemon killed in the middle, the patch looked at and applied.
func TestATaskIsDoneByARealProgram(t *testing.T) {
	t.Parallel()
	where := regexp.MustCompile(`(?m)^\s*-?\s*(?:Primary w|W)orking directory: (\S+)`)
	scenario := fakeapi.Scenario{Answer: func(turn fakeapi.Turn) fakeapi.Answer {
		dir := where.FindStringSubmatch(turn.System + "\n" + turn.Said("user"))
		switch {
		case len(turn.Tools) == 0 || dir == nil:
			return fakeapi.Answer{}
		case turn.Done == 0:
			return fakeapi.Answer{Text: "I make it.", Call: fakeapi.CallOf("^Write$", map[string]string{
				"file_path": filepath.Join(dir[1], "made.txt"), "content": "made by a real program\n",
			})}
		}
		return fakeapi.Answer{Text: "It is made: " + strings.Join(turn.Results, " ")}
	}}
	api := fakeapi.New(t)
	run := api.Run(scenario)
	u := newUser(t, harness.Claude, run)

	plan := u.must("delegate", "--dry-run", "--write", "claude", "make a file")
	for _, want := range []string{"harness:claude", "writes in a git worktree", "2.1.332"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan does not tell %q:\n%s", want, plan)
		}
	}
	var said bytes.Buffer
	cmd := u.command("delegate", "--write", "--check", "cat made.txt", "claude", "make a file")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := u.question()
	if err := u.up.Process.Kill(); err != nil { // the question is open, and the program at work
		t.Fatal(err)
	}
	_ = u.up.Wait() // killed; the command that waits for it starts another
	u.must("approve", u.question(first))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	out := said.String()
	id := regexp.MustCompile(`run_[0-9a-z]+`).FindString(out)
	for _, want := range []string{"completed", "started       2 times", "asked         Write: allowed", "changed       made.txt (+1 -0)", "check         cat made.txt: passed", "It is made"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if list := strings.TrimSpace(u.must("inbox")); strings.Contains(list, "apr_") {
		t.Errorf("a question is left:\n%s", list)
	}
	explained := u.must("explain", id)
	for _, want := range []string{"run claude in", "claude wants to change", "approved by operator", "$0.00"} {
		if !strings.Contains(explained, want) {
			t.Errorf("explain does not tell %q:\n%s", want, explained)
		}
	}
	if _, err := os.Stat(filepath.Join(u.repo, "made.txt")); !os.IsNotExist(err) {
		t.Error("the repository was written to")
	}
	if patch := u.must("delegate", "diff", id); !strings.Contains(patch, "+made by a real program") {
		t.Errorf("the patch is\n%s", patch)
	}
	u.must("delegate", "apply", id)
	if raw, err := os.ReadFile(filepath.Join(u.repo, "made.txt")); err != nil || string(raw) != "made by a real program\n" {
		t.Errorf("applied is %q, %v", raw, err)
	}
	u.must("audit", "verify")
	// What the start that was killed had used is written down nowhere, and that is told.
	var shown struct {
		Delegation struct {
			MicroUSD int64 `json:"micro_usd"`
			Priced   bool  `json:"priced"`
			Possible int64 `json:"possible_micro_usd"`
		} `json:"delegation"`
	}
	raw := u.must("delegate", "show", "--json", id)
	if err := json.Unmarshal([]byte(raw), &shown); err != nil {
		t.Fatal(err)
	}
	if d := shown.Delegation; d.MicroUSD == 0 || d.Priced || d.Possible == 0 {
		t.Errorf("its cost is not told as what it was at least, and may have been beside:\n%s", raw)
	}
}
