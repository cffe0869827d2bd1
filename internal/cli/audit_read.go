package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) auditTailCmd() *cobra.Command {
	var req wire.AuditTailRequest
	c := a.command(spec{
		use:     "tail",
		short:   "the last entries, the newest at the end",
		example: "ombud audit tail\nombud audit tail --limit 100 --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.AuditTail(ctx, req)
		if err != nil {
			return err
		}
		return a.show("audit-tail/1", res, func(p *page) { auditTailPage(p, res.Entries) })
	})
	limitFlag(c.Flags(), &req.Limit, 1000, "how many (default 20, at most 1000)")
	return c
}

func auditTailPage(p *page, entries []wire.AuditEntry) {
	if len(entries) == 0 {
		p.line("the audit log is empty")
		return
	}
	t := table{head: []string{"SEQ", "WHEN", "WHAT", "BY", "OUTCOME", "RUN"}}
	for _, e := range entries {
		what := e.Kind
		if e.Tool != "" {
			what += " " + e.Tool
		}
		if e.Count > 1 {
			what += fmt.Sprintf(" ×%d", e.Count)
		}
		t.rows = append(t.rows, []string{strconv.FormatInt(e.Ref.Seq, 10), p.clock(e.At), what, e.Actor, outcome(e), e.Run})
	}
	p.table(t)
}

func outcome(e wire.AuditEntry) string {
	if e.Reason != "" {
		return e.Outcome + " (" + e.Reason + ")"
	}
	return e.Outcome
}

func (a *app) auditShowCmd() *cobra.Command {
	var req wire.AuditShowRequest
	c := a.command(spec{
		use:   "show SEQ",
		short: "one entry",
		long: `Shows what is stored about one act. What a scope and the input were about is kept
as a keyed hash only: ombud explain RUN tells them to the operator.`,
		example: "ombud audit show 12\nombud audit show 12 --chain aud_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		seq, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || seq < 1 {
			return fault.New(fault.Usage, "%q is not the number of an entry", args[0])
		}
		req.Seq = seq
		res, err := a.client.AuditShow(ctx, req)
		if err != nil {
			return err
		}
		return a.show("audit-entry/1", res, func(p *page) { auditEntryPage(p, res.Entry) })
	})
	c.Flags().StringVar(&req.Chain, "chain", "", "of this chain (default: the newest that has the number)")
	return c
}

func auditEntryPage(p *page, e wire.AuditEntry) {
	p.line("%s", p.strong(fmt.Sprintf("entry %d of chain %s", e.Ref.Seq, oneLine(e.Ref.Chain))))
	p.field("when", p.clock(e.At))
	p.field("kind", e.Kind)
	p.field("by", e.Actor)
	p.field("authority", e.Subject)
	p.field("tool", e.Tool)
	p.field("scopes", strings.Join(e.Scopes, ", "))
	p.field("outcome", outcome(e))
	if e.Count > 1 {
		p.field("stands for", plural(e.Count, "equal act"))
	}
	p.field("run", strings.TrimSpace(e.Run+" "+e.Step))
	p.field("took", span(micros(e.DurationUS)))
	if e.CostMicroUSD > 0 {
		p.field("cost", money(e.CostMicroUSD, true))
	}
	p.field("hash", e.Ref.Hash)
	signed := "not yet"
	if e.SignedBy > 0 {
		signed = fmt.Sprintf("by the checkpoint at %d", e.SignedBy)
	}
	p.field("signed", signed)
}

func (a *app) auditAnchorCmd() *cobra.Command {
	return a.command(spec{
		use:   "anchor",
		short: "sign the log at its present end and print that as a line to keep",
		long: `Prints one line that proves how far the audit log had got. Kept where the store is
not, it shows later whether the store was put back to an older state:
ombud audit verify --anchors FILE. With audit.anchor_file set the line is there too.`,
		example: "ombud audit anchor >> /mnt/stick/anchors",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.AuditAnchor(ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.writeJSON("audit-anchor/1", res)
		}
		if _, err := fmt.Fprintln(a.stdout, res.Line); err != nil {
			return outputFault(err)
		}
		if res.File != "" {
			a.note("%s has it", res.File)
		}
		return nil
	})
}
