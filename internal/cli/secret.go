package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) secretCmd() *cobra.Command {
	list := a.command(spec{
		use:     "list",
		short:   "the secrets there are, without their values",
		example: "ombud secret list\nombud secret list --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.SecretList(ctx)
		if err != nil {
			return err
		}
		return a.show("secrets/1", res, func(p *page) { secretsPage(p, res.Secrets) })
	})
	remove := a.command(spec{
		use: "rm NAME", short: "remove a secret", example: "ombud secret rm github-token", args: oneName,
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.SecretRemove(ctx, wire.SecretRemoveRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("secret-remove/1", res, func(p *page) {
			p.line("removed %s", oneLine(res.Secret.Name))
			for _, n := range res.Notes {
				p.line("%s", p.warn(oneLine(n)))
			}
		})
	})
	return byDefault(a.noun(spec{
		use:   "secret",
		short: "keys and tokens, by the names that stand for them",
		long: `A secret is kept sealed in the store. The configuration names it as secret:NAME, a
header of web.fetch as {{secret:NAME}}. Models never see a value, and it is hidden
wherever it would be shown. There is no command that shows one: keep a copy where you
keep such things.`,
		example: "ombud secret set github-token --host api.github.com\nombud secret set anthropic-key < key.txt\nombud secret list",
	}, a.secretSetCmd(), list, remove), list)
}

// oneName takes one argument and never repeats a second: it may be the value.
func oneName(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fault.New(fault.Usage, "%s needs the name of a secret", c.CommandPath()).WithHint("%s --help", c.CommandPath())
	case len(args) > 1:
		return fault.New(fault.Usage, "a value does not stand on the command line: other programs and the shell's history see it there").
			WithHint("%s NAME asks for it in the terminal; NAME < FILE and --file FILE read it", c.CommandPath())
	}
	return secret.CheckName(args[0])
}

func (a *app) secretSetCmd() *cobra.Command {
	var file string
	var hosts []string
	c := a.command(spec{
		use:   "set NAME",
		short: "set a secret, or replace its value",
		long: `Asks for the value in the terminal, where it is not shown, or reads it from standard
input or a file; one line end at its end is not part of it. It never stands on the
command line. With --host the value is sent to these hosts only, and web.fetch sends
only such secrets. The value that was there before is gone, and so are its hosts.`,
		example: `ombud secret set github-token --host api.github.com
ombud secret set anthropic-key < key.txt
pass show work/api | ombud secret set work-api --host '*.work.example'
ombud secret set cert --file client.pem`,
		args: oneName,
	}, func(ctx context.Context, args []string) error {
		value, err := a.secretValue(ctx, args[0], file)
		if err != nil {
			return err
		}
		defer clear(value)
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
		res, err := a.client.SecretSet(ctx, wire.SecretSetRequest{Name: args[0], Value: value, Hosts: hosts})
		if err != nil {
			return err
		}
		return a.show("secret-set/1", res, func(p *page) { secretSetPage(p, res) })
	})
	c.Flags().StringVar(&file, "file", "", "read the value from a `file`")
	c.Flags().StringArrayVar(&hosts, "host", nil, "send it to this `host` only: api.example.com, *.example.com, localhost:8080; may be given again")
	return c
}

func secretSetPage(p *page, res wire.SecretSetResult) {
	what := "kept " + oneLine(res.Secret.Name)
	if res.Secret.Version > 1 {
		what = "replaced the value of " + oneLine(res.Secret.Name)
	}
	if len(res.Secret.Hosts) > 0 {
		what += "; it is sent to " + oneLine(strings.Join(res.Secret.Hosts, ", ")) + " only"
	}
	p.line("%s", what)
	for _, w := range res.Warnings {
		p.line("%s %s", p.warn("warning:"), oneLine(w))
	}
	for _, n := range res.Notes {
		p.line("%s", p.faint(oneLine(n)))
	}
}

func secretsPage(p *page, list []wire.Secret) {
	if len(list) == 0 {
		p.line("no secrets")
		p.line("%s", p.faint("ombud secret set NAME keeps one"))
		return
	}
	t := table{head: []string{"NAME", "HOSTS", "SET", "VERSION", "LAST USED", "FINGERPRINT"}}
	for _, s := range list {
		used := "never"
		if s.UsedAt > 0 {
			used = p.clock(s.UsedAt)
		}
		t.add(s.Name, orDash(strings.Join(s.Hosts, " ")), p.clock(s.SetAt), fmt.Sprint(s.Version), used, s.Fingerprint)
	}
	p.table(t)
}

// secretValue reads a value from a file, else asks a person at the terminal, else
// reads standard input.
func (a *app) secretValue(ctx context.Context, name, file string) ([]byte, error) {
	if in, ok := a.stdin.(*os.File); ok && file == "" && isTerminal(in) {
		value, err := a.typed(ctx, "Value of "+name+" (not shown):")
		if err == nil && len(value) == 0 {
			err = fault.New(fault.Cancelled, "nothing was typed, so nothing was changed")
		}
		return value, err
	}
	from, what := a.stdin, "standard input"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.Usage, "read the value: %w", err)
		}
		defer f.Close()
		from, what = f, file
	}
	const lineEnd = 2
	value, err := io.ReadAll(io.LimitReader(from, secret.MaxValue+lineEnd+1))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "read the value: %w", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	switch {
	case len(value) == 0:
		return nil, fault.New(fault.Usage, "%s is empty, so there is no value", what).
			WithHint("ombud secret set %s in a terminal asks for it; < FILE and --file FILE read it", name)
	case len(value) > secret.MaxValue:
		return nil, fault.New(fault.Invalid, "%s has more than the %d bytes of the largest secret", what, secret.MaxValue)
	}
	return value, nil
}
