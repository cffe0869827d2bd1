package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/logfile"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) logsCmd() *cobra.Command {
	var req wire.LogsTailRequest
	c := a.command(spec{
		use:     "logs",
		short:   "the daemon's own log",
		long:    "Shows the end of the daemon's log, of the one that runs or of the last one that ran.",
		example: "ombud logs\nombud logs --follow --level debug",
	}, func(ctx context.Context, _ []string) error { return a.logs(ctx, req) })
	c.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on until Ctrl-C")
	c.Flags().IntVarP(&req.Lines, "lines", "n", 0, "how many past lines (default 100)")
	c.Flags().StringVar(&req.Level, "level", "", "lowest level: debug, info, warn, error (default info)")
	return c
}

func (a *app) logs(ctx context.Context, req wire.LogsTailRequest) error {
	line := func(l wire.LogLine) error {
		return a.show("log/1", l, func(p *page) { p.logLine(l) })
	}
	_, err := a.client.LogsTail(ctx, req, line)
	if errors.Is(err, wire.ErrNoDaemon) {
		err = a.logsOffline(ctx, req, line)
	}
	return untilInterrupted(ctx, err)
}

func (p *page) logLine(l wire.LogLine) {
	level := pad(strings.ToUpper(l.Level), 6)
	switch l.Level {
	case "error":
		level = p.bad(level)
	case "warn":
		level = p.warn(level)
	default:
		level = p.faint(level)
	}
	p.line("%s %s%s%s", p.faint(p.clock(l.At)), level, oneLine(l.Message), p.faint(attrs(l.Attrs)))
}

// attrs writes a JSON object as key=value, in the order of the log.
func attrs(raw []byte) string {
	var b strings.Builder
	_ = eachField(raw, func(key string, value []byte) { // what cannot be read is not shown
		text := string(value)
		var s string
		if decodeLoose(value, &s) == nil && s != "" && !strings.ContainsAny(s, " \"=") {
			text = s
		}
		b.WriteString(" " + oneLine(key) + "=" + oneLine(text))
	})
	return b.String()
}

// logsOffline reads the log file of a daemon that does not run.
func (a *app) logsOffline(ctx context.Context, req wire.LogsTailRequest, line func(wire.LogLine) error) error {
	if req.Follow {
		a.note("no daemon runs; following the log for the next one")
	}
	return logfile.Read(ctx, a.where.LogFile(), req, line)
}
