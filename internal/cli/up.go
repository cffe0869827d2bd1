package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/logfile"
)

// upFlags are the flags of up.
type upFlags struct {
	detach      bool
	child, auto bool // given by a command that starts a daemon
	pipe        bool
	set         []string
}

// upResult is the answer of `up --json`.
type upResult struct {
	PID      int    `json:"pid"`
	Instance string `json:"instance"`
	Socket   string `json:"socket"`
	Version  string `json:"version"`
}

func (a *app) upCmd() *cobra.Command {
	var f upFlags
	c := a.command(spec{
		use:   "up",
		short: "run the daemon",
		long: `Runs the daemon in the foreground until Ctrl-C. With --detach it goes on by itself
and the command returns when it answers. ask and chat do that for you.`,
		example:       "ombud up\nombud up --detach\nombud up --set turn.timeout=5m",
		keepInterrupt: true, // runDaemon does it, so that a second one ends at once
	}, func(ctx context.Context, _ []string) error {
		if f.detach {
			return a.upDetached(ctx, f)
		}
		return a.runDaemon(ctx, f)
	})
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, "return when the daemon answers")
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a configuration key: `key=value`")
	c.Flags().BoolVar(&f.child, flagChild, false, "")
	c.Flags().BoolVar(&f.auto, flagAuto, false, "")
	_ = c.Flags().MarkHidden(flagChild) // fails only for a flag that is not there
	_ = c.Flags().MarkHidden(flagAuto)
	c.Flags().BoolVar(&f.pipe, flagPipe, false, "")
	_ = c.Flags().MarkHidden(flagPipe)
	return c
}

func (f upFlags) overrides() ([]config.Override, error) {
	var out []config.Override
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fault.New(fault.Usage, "--set %q is not key=value", s)
		}
		out = append(out, config.Override{Flag: "--set", Key: key, Value: value})
	}
	return out, nil
}

func (a *app) upDetached(ctx context.Context, f upFlags) error {
	up, err := a.running(ctx)
	if err != nil {
		return err
	}
	if up {
		return fault.New(fault.Running, "a daemon of instance %s runs already", a.where.Name).
			WithHint("ombud status shows it; ombud stop ends it")
	}
	overrides, err := f.overrides()
	if err != nil {
		return err
	}
	if _, err := a.loadConfig(overrides...); err != nil {
		return err
	}
	var args []string
	for _, s := range f.set {
		args = append(args, "--set", s)
	}
	if err := a.start(ctx, args...); err != nil {
		return err
	}
	s, err := a.client.SystemStatus(ctx)
	if err != nil {
		return err
	}
	res := upResult{PID: s.PID, Instance: s.Instance, Socket: a.where.Socket(), Version: s.Version}
	return a.show("up/1", res, func(p *page) {
		p.line("ombud runs (process %d, instance %s)", res.PID, res.Instance)
	})
}

// runDaemon is the daemon's process from its first line to its last.
func (a *app) runDaemon(ctx context.Context, f upFlags) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	var hand *handed
	if f.pipe {
		var err error
		if hand, err = takeHanded(); err != nil {
			return err
		}
	}
	overrides, err := f.overrides()
	if err != nil {
		return err
	}
	loaded, err := a.loadConfig(overrides...)
	if err != nil {
		return err
	}
	if err := a.where.MakeDirs(); err != nil {
		return err
	}
	place := a.placeOf(loaded)
	if f.child {
		place.Ask = nil
	}
	log, err := logfile.Open(a.where.LogFile())
	if err != nil {
		return err
	}
	defer log.Close()
	own := thisBuild()
	return a.roof.Up(ctx, UpOptions{
		Place:   place,
		Handed:  hand,
		Logger:  a.daemonLogger(log, loaded.Config.Log.Level, f.child),
		Version: own.Version,
		Auto:    f.auto,
		Ready:   func() { a.announce(own, f.child) },
	})
}

// daemonLogger writes to the file, and in the foreground to the person too.
func (a *app) daemonLogger(file io.Writer, level slog.Level, child bool) *slog.Logger {
	h := logfile.Handler(file, level)
	if !child {
		h = slog.NewMultiHandler(h, slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(h)
}

// announce tells that the daemon is ready; a detached one has nobody to tell.
func (a *app) announce(own build, child bool) {
	if child {
		return
	}
	res := upResult{PID: os.Getpid(), Instance: a.where.Name, Socket: a.where.Socket(), Version: own.Version}
	if a.json {
		_ = a.writeJSON("up/1", res) // whoever reads it may be gone, the daemon goes on
		return
	}
	fmt.Fprintf(a.stdout, "ombud runs (process %d, instance %s); Ctrl-C ends it\n", res.PID, res.Instance)
}
