package cli

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) toolsAddCmd() *cobra.Command {
	var req wire.ToolsAddRequest
	var timeout time.Duration
	var c *cobra.Command
	c = a.command(spec{
		use:   "add NAME --scope SCOPE… [flags] -- COMMAND ARGS…",
		short: "add a program of others whose tools can be called",
		long: `The program is started by the daemon and kept running; docs/tool-process.md is what it
speaks. --scope is the most its tools may need; written TOOL=SCOPE for each tool, it is
also the list of the tools it may register. Nobody can call any of them before you grant
what a call needs: ombud tools test NAME shows it.

The program sees the system's directories, the files its command line names, what
--read and --write give it, and a directory of its own. It has no network unless
--network says so: proxy is through ombud's rules, all is the machine's.`,
		example: `ombud tools add words --scope 'tool:words.*' -- python3 words.py
ombud tools add weather --scope 'tool:weather.*' --network proxy --secret API_KEY=weather-key -- /opt/weather/bin/weather-tool
ombud tools add notes --scope search=obsidian.read --scope create=obsidian.write --read ~/Notes --write ~/Notes/Inbox -- notes-tool`,
		args: cobra.MinimumNArgs(2),
	}, func(ctx context.Context, args []string) (err error) {
		if c.ArgsLenAtDash() != 1 {
			return fault.New(fault.Usage, "the command of the tool process stands behind --").WithHint("ombud tools add NAME --scope SCOPE -- COMMAND ARGS…")
		}
		if len(req.Scopes) == 0 {
			return fault.New(fault.Usage, "--scope is missing: the most the tools of %s may need", args[0]).
				WithHint("for tools that touch nothing of yours: --scope 'tool:%s.*'", args[0])
		}
		req.Name, req.TimeoutS = args[0], int(timeout/time.Second)
		if req.Command, err = commandOf(args[1:]); err != nil {
			return err
		}
		for _, list := range []*[]string{&req.Read, &req.Write} {
			if *list, err = wholePaths(*list); err != nil {
				return err
			}
		}
		res, err := a.client.ToolsAdd(ctx, req)
		if err != nil {
			return err
		}
		return a.show("tools-add/1", res, func(p *page) {
			p.line("added %s: %s", oneLine(res.Process.Name), oneLine(strings.Join(res.Process.Command, " ")))
			p.line("%s", p.faint("nobody can call its tools yet; ombud tools test "+res.Process.Name+" shows them and what they need"))
		})
	})
	f := c.Flags()
	f.StringArrayVar(&req.Scopes, "scope", nil, "SCOPE or TOOL=SCOPE: the most its tools may need (needed)")
	f.StringArrayVar(&req.Narrow, "narrow", nil, "TOOL=SCOPE: less than the tool says it needs")
	f.StringVar(&req.Network, "network", "none", "none, proxy or all")
	f.StringArrayVar(&req.Secrets, "secret", nil, "VARIABLE=NAME: a secret for its environment, by its name")
	f.StringArrayVar(&req.Read, "read", nil, "a path it may read")
	f.StringArrayVar(&req.Write, "write", nil, "a path it may change")
	f.StringArrayVar(&req.Reads, "reads", nil, "a tool of which you say that it changes nothing")
	f.StringArrayVar(&req.Repeatable, "repeatable", nil, "a tool of which you say that calling it twice is as good as once")
	f.DurationVar(&timeout, "timeout", 0, "how long a call may take (default 1m)")
	return c
}

// commandOf is a command as the daemon can start it from anywhere: the program by its
// whole path, and so each argument that names a file here.
func commandOf(args []string) ([]string, error) {
	program, err := exec.LookPath(args[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fault.New(fault.NotFound, "there is no program %s", args[0])
	}
	out := []string{program}
	for _, arg := range args[1:] {
		if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() && !strings.HasPrefix(arg, "-") {
			if arg, err = filepath.Abs(arg); err != nil {
				return nil, err
			}
		}
		out = append(out, arg)
	}
	return out, nil
}

// wholePaths makes whole paths, without links, of what a person wrote.
func wholePaths(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		whole, err := filepath.Abs(path)
		if err == nil {
			whole, err = filepath.EvalSymlinks(whole)
		}
		if err != nil {
			return nil, fault.New(fault.NotFound, "there is nothing at %s", path)
		}
		out = append(out, whole)
	}
	return out, nil
}

func (a *app) toolsRemoveCmd() *cobra.Command {
	return a.command(spec{
		use: "rm NAME", short: "end a tool process and forget it",
		long: `What was granted for its tools stays granted: take it back with ombud caps revoke.
Its own directory stays too.`,
		example: "ombud tools rm weather", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.ToolsRemove(ctx, wire.ToolsRemoveRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("tools-rm/1", res, func(p *page) { p.line("removed %s and its tools", oneLine(args[0])) })
	})
}

func (a *app) toolsTestCmd() *cobra.Command {
	var req wire.ToolsTestRequest
	c := a.command(spec{
		use:   "test NAME [--call TOOL [JSON]]",
		short: "start a tool process and show what it registers",
		long: `Shows each tool, what a call of it needs and what the default agent may do with it now.
Nothing is called unless --call names a tool; that call is yours, made now, and recorded
like every other. JSON is its input (default {}).`,
		example: `ombud tools test words
ombud tools test words --call count '{"text":"one two"}'`,
		args: cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, args []string) error {
		req.Name = args[0]
		if len(args) > 1 {
			if req.Tool == "" {
				return fault.New(fault.Usage, "an input needs a tool: --call TOOL")
			}
			if req.Input = json.RawMessage(args[1]); !json.Valid(req.Input) {
				return fault.New(fault.Usage, "the input of a call is a JSON object, not %s", args[1])
			}
		}
		res, err := a.client.ToolsTest(ctx, req)
		if err != nil {
			return err
		}
		if err := a.show("tools-test/1", res, func(p *page) { toolsTestPage(p, res) }); err != nil {
			return err
		}
		switch {
		case res.Problem != nil:
			return fault.New(res.Problem.Class, "%s", res.Problem.Message).WithHint("%s", res.Problem.Hint)
		case res.Call != nil && res.Call.Status != "ok":
			return fault.New(res.Call.Class, "the call of %s is %s", req.Tool, res.Call.Status).WithHint("ombud explain %s", res.Call.RunID)
		}
		return nil
	})
	c.Flags().StringVar(&req.Tool, "call", "", "the tool to call, with the input that stands behind NAME")
	return c
}

func toolsTestPage(p *page, res wire.ToolsTestResult) {
	processPage(p, res.Process)
	denied := false
	for _, t := range res.Process.Tools {
		p.line("")
		name := p.strong(oneLine(t.Name))
		if t.Refused != "" {
			p.line("%s  %s", name, p.bad("refused: "+oneLine(t.Refused)))
			continue
		}
		p.line("%s  %s", name, short(oneLine(t.Description), 100))
		p.field("  needs", oneLine(strings.Join(t.Needs, " and ")))
		access := t.Access
		if t.Why != "" {
			access += ": " + oneLine(t.Why)
		}
		p.field("  agent:main", access)
		switch {
		case t.ReadOnly:
			p.field("  declared", "changes nothing")
		case t.Repeatable:
			p.field("  declared", "can be repeated")
		}
		denied = denied || t.Access == "deny"
	}
	if denied {
		p.line("")
		p.line("%s", p.faint("to allow one, let the agent's role and grants have each scope it needs: docs/tool-process.md"))
	}
	if c := res.Call; c != nil {
		p.line("")
		p.line("%s in %s, %s", c.Status, micros(c.TookUS), c.RunID)
		p.line("%s", c.Text)
	}
}

// processPage shows a tool process without its tools.
func processPage(p *page, t wire.ToolProcess) {
	p.field("process", t.Name)
	p.field("runs", oneLine(strings.Join(t.Command, " ")))
	p.field("state", processState(p, t))
	p.field("error", oneLine(t.Error))
	p.field("at most", oneLine(strings.Join(t.Scopes, ", ")))
	p.field("narrowed", oneLine(strings.Join(t.Narrow, ", ")))
	p.field("network", t.Network)
	p.field("secrets", oneLine(strings.Join(t.Secrets, ", ")))
	p.field("reads", oneLine(strings.Join(t.Read, ", ")))
	p.field("writes", oneLine(strings.Join(t.Write, ", ")))
	if t.ChangedAt > 0 {
		p.field("changed", p.clock(t.ChangedAt)+": other tools than before")
	}
}

func processState(p *page, t wire.ToolProcess) string {
	switch {
	case t.CrashLoop:
		return p.bad("crash loop") + ", " + plural(int64(t.Failures), "failure") + ", again at " + p.clock(t.NextAt)
	case t.State == "waiting":
		return p.warn("waiting") + ", again at " + p.clock(t.NextAt)
	case t.State == "ready":
		return p.good("ready") + " since " + p.clock(t.SinceAt)
	}
	return p.warn(t.State)
}

// processTable lists the tool processes.
func processTable(p *page, list []wire.ToolProcess) {
	t := table{head: []string{"PROCESS", "STATE", "TOOLS", "NETWORK", "WHY"}}
	for _, x := range list {
		good := 0
		for _, tl := range x.Tools {
			if tl.Refused == "" {
				good++
			}
		}
		state := x.State
		if x.CrashLoop {
			state = "crash loop"
		}
		why := x.Error
		if why == "" && x.ChangedAt > 0 {
			why = "registers other tools since " + p.clock(x.ChangedAt)
		}
		t.add(x.Name, state, plural(int64(good), "tool"), x.Network, short(oneLine(why), 72))
	}
	const stateColumn = 1
	t.tint = func(row, col int, cell string) string {
		switch {
		case col != stateColumn:
			return cell
		case list[row].State == "ready":
			return p.good(cell)
		case list[row].CrashLoop:
			return p.bad(cell)
		}
		return p.warn(cell)
	}
	p.table(t)
}
