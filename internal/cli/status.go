package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

// statusResult is the answer of `status --json`. Without a daemon only running,
// instance and socket mean anything.
type statusResult struct {
	Running bool   `json:"running"`
	Socket  string `json:"socket"`
	wire.Status
}

func (a *app) statusCmd() *cobra.Command {
	return a.command(spec{
		use:   "status",
		short: "what the daemon is and has to do",
		long: `Shows the daemon, its model and why that one, what it lacks, and unfinished work.
Without a daemon it says so and exits 1: that is an answer, not an error.`,
		example: "ombud status\nombud status --json",
	}, func(ctx context.Context, _ []string) error {
		res := statusResult{Socket: a.where.Socket(), Status: wire.Status{Instance: a.where.Name, Missing: []wire.Missing{}}}
		up, err := a.running(ctx)
		if err != nil {
			return err
		}
		if up {
			s, err := a.client.SystemStatus(ctx)
			if err != nil {
				return err
			}
			res.Running, res.Status = true, s
		}
		if err := a.show("status/1", res, res.page); err != nil || res.Running {
			return err
		}
		return answered{1}
	})
}

func (res statusResult) page(p *page) {
	if !res.Running {
		p.line("not running (instance %s)", res.Instance)
		return
	}
	state := p.good("running")
	if s := res.Standby; s != nil {
		p.field("ombud", p.warn("standby"))
		p.field("active", s.Active+", since "+p.clock(s.Since))
		p.field("process", fmt.Sprintf("%d, up %s", res.PID, span(time.Duration(max(1, res.UptimeS))*time.Second)))
		p.field("version", res.Version)
		p.field("instance", res.Instance)
		p.field("store", res.Store)
		return
	}
	switch {
	case res.Disk.ReadOnly:
		state = p.bad("read-only: the disk is full")
	case !res.Ready:
		state = p.warn("starting")
	}
	p.field("ombud", state)
	if h := res.Held; h != nil {
		p.field("held", p.warn("restored from a backup of "+p.clock(h.BackupAt)+": ombud restore release"))
	}
	p.field("process", fmt.Sprintf("%d, up %s", res.PID, span(time.Duration(max(1, res.UptimeS))*time.Second)))
	p.field("version", res.Version)
	p.field("instance", res.Instance)
	store := res.Store
	if res.Disk.StoreBytes > 0 {
		store += ", " + size(res.Disk.StoreBytes)
	}
	p.field("store", store+", "+size(res.Disk.FreeBytes)+" free on its disk")
	p.field("model", modelLine(res.Models.Main))
	if m := res.Models.Memory; m != nil {
		p.field("  memory", modelLine(*m))
	}
	if m := res.Models.Summary; m != nil {
		p.field("  summary", modelLine(*m))
	}
	res.missing(p)
	p.field("work", res.work())
	if res.Runs.Uncertain > 0 {
		p.field("uncertain", plural(res.Runs.Uncertain, "run")+": ombud runs list --state uncertain")
	}
	if res.Runs.KeptBack > 0 {
		p.field("kept back", plural(res.Runs.KeptBack, "run")+" without a definition here: ombud runs list --state live")
	}
	if res.Approvals > 0 {
		p.field("inbox", plural(res.Approvals, "question")+" for you: ombud inbox")
	}
	if res.DeadLetters > 0 {
		p.field("dead letters", fmt.Sprintf("%d: ombud dlq", res.DeadLetters))
	}
	if len(res.Listeners) > 0 {
		p.field("listens on", strings.Join(res.Listeners, ", "))
	}
}

func (res statusResult) missing(p *page) {
	width := 0
	for _, m := range res.Missing {
		width = max(width, len(m.Name)+2)
	}
	name := "missing"
	for _, m := range res.Missing {
		p.line("%s%s%s", p.faint(pad(name, fieldWidth)), pad(m.Name, width), p.faint(oneLine(m.Hint)))
		name = ""
	}
}

func (res statusResult) work() string {
	r := res.Runs
	if r.Queued+r.Running+r.Waiting == 0 {
		return "idle, " + plural(res.Conversations, "conversation")
	}
	return fmt.Sprintf("%d running, %d queued, %d waiting; %s", r.Running, r.Queued, r.Waiting, plural(res.Conversations, "conversation"))
}

func modelLine(m wire.Model) string {
	s := m.Provider
	if m.Model != "" && m.Model != m.Provider {
		s += "/" + m.Model
	}
	if m.Why != "" {
		s += " (" + m.Why + ")"
	}
	return s
}

// stopResult is the answer of `stop --json`.
type stopResult struct {
	Stopped bool `json:"stopped"` // false: none ran
	PID     int  `json:"pid,omitempty"`
}

func (a *app) stopCmd() *cobra.Command {
	return a.command(spec{
		use:     "stop",
		short:   "end the daemon",
		long:    "Ends the daemon and waits until it is gone. Its work goes on at its next start.",
		example: "ombud stop",
	}, func(ctx context.Context, _ []string) error {
		pid, err := a.stopDaemon(ctx)
		if err != nil && !errors.Is(err, wire.ErrNoDaemon) {
			return err
		}
		res := stopResult{Stopped: err == nil, PID: pid}
		return a.show("stop/1", res, func(p *page) {
			switch {
			case !res.Stopped:
				p.line("no daemon runs (instance %s)", a.where.Name)
			case res.PID == 0:
				p.line("stopped; it was ending already")
			default:
				p.line("stopped (process %d)", res.PID)
			}
		})
	})
}
