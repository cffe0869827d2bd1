package child

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

var update = flag.Bool("update", false, "write the golden command lines; read each against what the programs take before you believe it")

// full is a task with all that can be said of one.
func full(cli harness.Name) Task {
	t := Task{
		CLI: cli, Program: "/opt/" + string(cli), Version: "1.6.0", Prompt: "-what is\nthe answer?", System: "-be \"brief\"\n\x7f", Dir: "/work/dir", State: "/state",
		Model: "lab-1", BaseURL: "https://api.example/v1", Env: []string{"LAB_API_KEY=secret-1", "OTHER=x"}, Turns: 7, BudgetMicroUSD: 1_250_000,
		MCP: &MCP{Command: "/opt/ombud", Args: []string{"mcp", "serve"}, Env: []string{"OMBUD_TOKEN=secret-2"}, Tools: []string{"memory.recall", "now"}},
	}
	switch cli {
	case harness.OpenCode, harness.Pi:
		t.Model = "anthropic/lab-1"
	case harness.Gemini:
		t.Env = []string{"GEMINI_API_KEY=secret-1"}
	case harness.ACP:
		t.Model = ""
	}
	return t
}

// modes are what a task can be.
var modes = map[string]func(*Task){
	"plain": func(t *Task) {
		*t = Task{CLI: t.CLI, Program: t.Program, Prompt: "hi", Dir: t.Dir, State: t.State}
	},
	"read":   func(*Task) {},
	"resume": func(t *Task) { t.Session = "01a2280f-2052-75f2-8905-5fc675098f37" },
	"new":    func(t *Task) { t.NewSession = "11111111-2222-4333-8444-555555555555" },
	"write":  func(t *Task) { t.Write = true },
	"brain":  func(t *Task) { t.Brain, t.Write = true, true },
	"held":   func(t *Task) { t.Write, t.Held, t.Stands, t.BaseURL = true, true, true, "http://127.0.0.1:4711/v1" },
}

func planned(t *Task, confined bool) (*plan, *room) {
	r := &room{state: "/state", home: "/state/run/1/home", dir: "/state/run/1", tmp: "/state/run/1/tmp"}
	return planOf(t, r, confined), r
}

// TestCommandLines shows what each program is started with, in each mode.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	for _, cli := range []harness.Name{harness.Claude, harness.Codex, harness.Gemini, harness.OpenCode, harness.Pi, harness.ACP} {
		for mode, change := range modes {
			t.Run(string(cli)+"/"+mode, func(t *testing.T) {
				t.Parallel()
				task := full(cli)
				if change(&task); task.NewSession != "" && !TakesSession(task) {
					return
				}
				if err := task.check(); err != nil {
					t.Fatal(err)
				}
				p, r := planned(&task, false)
				var b strings.Builder
				for _, arg := range p.args {
					fmt.Fprintf(&b, "%q\n", arg)
				}
				b.WriteString("-- environment\n")
				for _, entry := range environment([]string{"PATH=/bin", "HOME=/root", "LC_ALL=C", "TZ=UTC", "X=y"}, r, p, task.Env) {
					fmt.Fprintln(&b, entry)
				}
				fmt.Fprintf(&b, "-- standard input, dialogue %v\n%s\n", p.talk != nil, p.stdin)
				for _, f := range p.files {
					fmt.Fprintf(&b, "-- %s\n%s\n", f.name, f.content)
				}
				golden(t, filepath.Join("testdata", "plans", string(cli)+"-"+mode+".txt"), b.String())
				if line := strings.Join(p.args, " "); strings.Contains(line, "secret-") || strings.Contains(line, "answer?") {
					t.Errorf("everybody on this machine can read it: %s", line)
				}
			})
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s changed:\n%s\nwant:\n%s", file, got, want)
	}
}

// TestWallsAreCodexsSandbox: it cannot make one of its own inside of ours.
func TestWallsAreCodexsSandbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		write, confined bool
		want            string
	}{{false, false, "read-only"}, {true, false, "workspace-write"}, {false, true, "danger-full-access"}, {true, true, "danger-full-access"}} {
		task := full(harness.Codex)
		task.Write = c.write
		if got := codexSandbox(&task, c.confined); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if task.Brain = true; codexSandbox(&task, c.confined) != "read-only" {
			t.Errorf("%+v, a brain: it could patch files", c)
		}
	}
}

func TestWordsAreNoFlags(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*Task){
		"session that is a flag":     func(t *Task) { t.Session = "--dangerously-skip-permissions" },
		"session of two words":       func(t *Task) { t.Session = "a b" },
		"model that is a flag":       func(t *Task) { t.Model = "-m" },
		"model with an end of line":  func(t *Task) { t.Model = "a\n-x" },
		"new session that is none":   func(t *Task) { t.NewSession = "--x" },
		"two sessions":               func(t *Task) { t.Session, t.NewSession = "a", "11111111-2222-4333-8444-555555555555" },
		"no prompt":                  func(t *Task) { t.Prompt = " \n" },
		"prompt with a NUL":          func(t *Task) { t.Prompt = "a\x00b" },
		"prompt that is no text":     func(t *Task) { t.Prompt = "a\xff" },
		"prompt beyond bounds":       func(t *Task) { t.Prompt = strings.Repeat("a", maxPrompt+1) },
		"system text beyond bounds":  func(t *Task) { t.System = strings.Repeat("a", maxSystem+1) },
		"program without a path":     func(t *Task) { t.Program = "claude" },
		"directory without a path":   func(t *Task) { t.Dir = "." },
		"no state":                   func(t *Task) { t.State = "" },
		"state where it works":       func(t *Task) { t.State = t.Dir + "/state" },
		"environment without a name": func(t *Task) { t.Env = []string{"just a secret"} },
		"environment with a NUL":     func(t *Task) { t.Env = []string{"A=b\x00C=d"} },
		"address with a password":    func(t *Task) { t.BaseURL = "https://user:secret@api.example" },
		"address of a file":          func(t *Task) { t.BaseURL = "file:///etc/passwd" },
		"server without a path":      func(t *Task) { t.MCP.Command = "ombud" },
		"tool that is a flag":        func(t *Task) { t.MCP.Tools = []string{"-x"} },
		"server's environment":       func(t *Task) { t.MCP.Env = []string{"a secret"} },
		"limit below zero":           func(t *Task) { t.Wall = -1 },
	} {
		for _, cli := range []harness.Name{harness.Claude, harness.Codex, harness.Gemini, harness.OpenCode, harness.Pi, harness.ACP} {
			task := full(cli)
			spoil(&task)
			err := task.check()
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %s: %v", cli, what, err)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %s: the error shows a secret: %v", cli, what, err)
			}
		}
	}
	old := full(harness.Pi)
	old.Version = "0.73.1"
	if err := old.check(); !fault.Is(err, fault.Invalid) {
		t.Errorf("an old pi is given a server: %v", err)
	}
	task := full(harness.Codex)
	task.NewSession = "11111111-2222-4333-8444-555555555555"
	if err := task.check(); !fault.Is(err, fault.Invalid) {
		t.Errorf("codex takes an id: %v", err)
	}
}

func TestWhoCanAsk(t *testing.T) {
	t.Parallel()
	for _, cli := range []harness.Name{harness.Claude, harness.Codex, harness.Gemini, harness.OpenCode, harness.ACP, harness.Pi} {
		task := Task{CLI: cli, Write: true}
		if want := cli != harness.Pi; Asks(cli) != want || task.twoWay() != want {
			t.Errorf("%s asks: %v, in a dialogue: %v", cli, Asks(cli), task.twoWay())
		}
	}
}

// TestProfiles: a directory is for reading unless the task writes, and the program's
// own files are read.
func TestProfiles(t *testing.T) {
	t.Parallel()
	packages := filepath.Join(t.TempDir(), "node_modules")
	script := filepath.Join(packages, "@x", "cli", "bin", "x.js")
	if err := os.MkdirAll(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	task := full(harness.Pi)
	task.Program, task.Args0 = "/usr/bin/env", []string{script}
	_, r := planned(&task, false)
	p := profileOf(&task, r)
	if has(p.Write, task.Dir) || !has(p.Read, task.Dir) || !has(p.Write, "/state/sessions") || !has(p.Write, "/state/run/1") || has(p.Write, "/state") || !has(p.Read, "/opt/ombud") || p.Network != confine.NetProxy {
		t.Errorf("reading: %+v", p)
	}
	if real, err := filepath.EvalSymlinks(packages); err != nil || !has(p.Read, real) {
		t.Errorf("no packages %s: %+v", real, p)
	}
	task.Write = true
	if p = profileOf(&task, r); !has(p.Write, task.Dir) {
		t.Errorf("writing: %+v", p)
	}
	task.Profile = confine.Profile{Name: "own", Read: []string{"/x"}}
	if p = profileOf(&task, r); p.Name != "own" || len(p.Write) != 0 || p.Network != confine.NetNone || len(task.Profile.Read) != 1 {
		t.Errorf("the caller's own: %+v", p)
	}
}

func has(list []string, want string) bool {
	for _, one := range list {
		if one == want {
			return true
		}
	}
	return false
}
