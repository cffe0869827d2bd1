package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
)

// The headings of the help.
const (
	talk   = "talk"
	look   = "look"
	decide = "decide"
	keep   = "keep"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ombud",
		Short: "work done on your behalf, and answered for",
		Long: `ombud does work for you through agents and can always answer: what happened,
who allowed it, what it cost, what is left to do.`,
		Example: `  ombud ask "remember that the boiler code is 4711"
  ombud ask "what is the boiler code?"
  ombud explain last`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyBelow,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "write JSON with a schema and its version")
	root.PersistentFlags().StringVar(&a.instance, "instance", "", "which daemon (default $OMBUD_INSTANCE, else \"default\")")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fault.New(fault.Usage, "%w", err).WithHint("%s --help", c.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: talk, Title: "Talk:"},
		&cobra.Group{ID: look, Title: "See what happened:"},
		&cobra.Group{ID: decide, Title: "Decide:"},
		&cobra.Group{ID: keep, Title: "Keep it running:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(talk, a.askCmd(), a.chatCmd(), a.sendCmd(), a.conversationsCmd(), a.memoryCmd(), a.delegateCmd(), a.scheduleCmd(), a.triggersCmd(), a.recipeCmd(), a.loopCmd())
	add(look, a.explainCmd(), a.runsCmd(), a.receiptCmd(), a.eventsCmd(), a.costCmd(), a.auditCmd())
	add(decide, a.inboxCmd(), a.approveCmd(), a.capsCmd(), a.accessCmd(), a.undoCmd(), a.dlqCmd())
	add(keep, a.upCmd(), a.stopCmd(), a.statusCmd(), a.doctorCmd(), a.integrationsCmd(), a.logsCmd(), a.configCmd(), a.storeCmd(), a.backupCmd(), a.restoreCmd(), a.vaultCmd(), a.secretCmd(), a.toolsCmd(), a.harnessCmd(), a.mcpCmd(), a.channelCmd(), a.versionCmd())
	root.SetHelpCommandGroupID(keep)
	root.SetCompletionCommandGroupID(keep)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Short, c.Example = "help about any command", "  ombud help ask"
		case "completion":
			c.Short = "write a completion script for your shell"
			c.Example = "  ombud completion bash > ~/.local/share/bash-completion/completions/ombud"
		}
	}
	return root
}

// spec describes a command: how it is called, what it is for, and an example.
type spec struct {
	use, short, long string
	example          string // without indent, lines
	args             cobra.PositionalArgs
	keepInterrupt    bool // the command deals with Ctrl-C itself
}

// runFunc is a command's work.
type runFunc func(ctx context.Context, args []string) error

// command makes a command whose work begins after setup. Ctrl-C and SIGTERM end
// its context.
func (a *app) command(s spec, run runFunc) *cobra.Command {
	c := &cobra.Command{Use: s.use, Short: s.short, Long: s.long, Args: s.args, Example: indent(s.example)}
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	if s.args != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := s.args(c, args)
			if err == nil || fault.HintOf(err) != "" {
				return err
			}
			return fault.New(fault.Usage, "%w", err).WithHint("%s --help", c.CommandPath())
		}
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.setup(); err != nil {
			return err
		}
		a.began = true
		signals := []os.Signal{syscall.SIGTERM}
		if !s.keepInterrupt {
			signals = append(signals, os.Interrupt)
		}
		ctx, stop := signal.NotifyContext(c.Context(), signals...)
		defer stop()
		return run(ctx, args)
	}
	return c
}

// noun makes a command that only has others below it.
func (a *app) noun(s spec, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: indent(s.example),
		Args: onlyBelow,
		RunE: func(c *cobra.Command, _ []string) error {
			var names []string
			for _, sub := range c.Commands() {
				names = append(names, sub.Name())
			}
			return fault.New(fault.Usage, "%s needs one of: %s", c.CommandPath(), strings.Join(names, ", ")).
				WithHint("%s --help", c.CommandPath())
		},
	}
	c.AddCommand(below...)
	return c
}

// onlyBelow refuses a word that is none of a command's verbs.
func onlyBelow(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fault.New(fault.Usage, "unknown command %q for %q", args[0], c.CommandPath())
	const slips = 2
	c.SuggestionsMinimumDistance = slips
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean %q?", near[0])
	}
	return err.WithHint("%s --help lists the commands", c.CommandPath())
}

// indent sets a text off by two spaces.
func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
