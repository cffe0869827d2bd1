package cli

import (
	"context"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) harnessCmd() *cobra.Command {
	list := a.command(spec{
		use: "list", short: "the coding agents that are set up, and where they are", example: "ombud harness list",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.HarnessList(ctx)
		if err != nil {
			return err
		}
		return a.show("harnesses/1", res, func(p *page) { harnessesPage(p, res.Harnesses) })
	})
	return byDefault(a.noun(spec{
		use: "harness", short: "coding agents on this machine: what is there, logged in and admitted",
		example: "ombud harness\nombud harness probe claude\nombud harness routes",
	}, list, a.harnessProbeCmd(), a.harnessLoginCmd(), a.harnessRoutesCmd()), list)
}

func harnessesPage(p *page, list []wire.Harness) {
	t := table{head: []string{"NAME", "MODEL", "KEY", "ASKS", "PROGRAM"}}
	for _, h := range list {
		name, model, key, asks, program := h.Name, h.Model, keyOf(h.KeyFrom, h.KeyHeld), "yes", h.Program
		if h.Default {
			name += " (default)"
		}
		if model == "" {
			model = "its own"
		}
		if !h.Asks {
			asks = "no"
		}
		if program == "" {
			program = p.faint("not here")
		}
		t.add(name, model, key, asks, program)
	}
	p.table(t)
	p.line("%s", p.faint("ombud harness probe NAME asks a program for its version and login"))
}

// keyOf says where a key comes from and who holds it.
func keyOf(from string, held bool) string {
	switch {
	case from == "":
		return "its own login"
	case held:
		return oneLine(from) + ", held by ombud"
	}
	return oneLine(from) + ", in its environment"
}

func (a *app) harnessProbeCmd() *cobra.Command {
	return a.command(spec{
		use: "probe NAME", short: "ask a program for its version and login; it uses no tokens", example: "ombud harness probe claude", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.HarnessProbe(ctx, wire.HarnessRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("harness-probe/1", res, func(p *page) {
			p.field("harness", res.Name)
			p.field("version", oneLine(res.Version))
			login := res.Login
			if res.Detail != "" {
				login += ": " + short(res.Detail, 120)
			}
			p.field("logged in", login)
			p.field("key", keyOf(res.KeyFrom, res.KeyHeld))
			for _, w := range res.Warnings {
				p.field("warning", p.warn(oneLine(w)))
			}
		})
	})
}

func (a *app) harnessLoginCmd() *cobra.Command {
	return a.command(spec{
		use: "login NAME", short: "log a program in, for the tasks ombud gives it",
		long: `It runs the program's own login in this terminal, in the directory where ombud keeps what
belongs to it. Your own login of the program is neither read nor changed.`,
		example: "ombud harness login claude", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.HarnessLogin(ctx, wire.HarnessRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if a.json || !isTerminal(a.stdin) {
			return a.show("harness-login/1", res, func(p *page) {
				p.line("run this in a terminal:")
				p.line("%s %s %s", oneLine(strings.Join(res.Env, " ")), oneLine(res.Program), oneLine(strings.Join(res.Args, " ")))
			})
		}
		cmd := exec.CommandContext(ctx, res.Program, res.Args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
		cmd.Env = config.ReadEnvironment(a.getenv).Programs()
		for _, name := range []string{"TERM", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "XDG_RUNTIME_DIR"} { // it shows a page to log in
			if v := a.getenv(name); v != "" {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		cmd.Env = append(cmd.Env, res.Env...)
		if err := cmd.Run(); err != nil {
			return fault.New(fault.Unavailable, "the login of %s: %w", args[0], err).WithHint("ombud harness probe %s tells whether it is logged in", args[0])
		}
		return nil
	})
}

func (a *app) harnessRoutesCmd() *cobra.Command {
	return a.command(spec{
		use: "routes", short: "the routes that may run, and which ran last and why",
		long: `A route is a harness and a model. What delegate.admit of the configuration lists may run,
and a vendor's model only in that vendor's own harness. A route that is refused is never
replaced by another.`,
		example: "ombud harness routes",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.HarnessRoutes(ctx)
		if err != nil {
			return err
		}
		return a.show("harness-routes/1", res, func(p *page) {
			admitted := "every harness with its own model"
			if len(res.Admitted) > 0 {
				admitted = strings.Join(res.Admitted, ", ")
			}
			p.field("admitted", oneLine(admitted))
			for _, n := range res.Now {
				if n.Refused != "" {
					p.field(n.Harness, p.faint("refused: "+short(n.Refused, 100)))
					continue
				}
				p.field(n.Harness, n.Route+" ("+oneLine(n.Why)+")")
			}
			if len(res.Ran) == 0 {
				return
			}
			p.line("")
			t := table{head: []string{"RAN", "WHEN", "ROUTE", "BECAUSE", "OUTCOME"}}
			for _, x := range res.Ran {
				t.add(x.RunID, p.clock(x.StartedAt), routeOf(x), short(x.Why, 70), outcomeOf(x))
			}
			p.table(t)
		})
	})
}
