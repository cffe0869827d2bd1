package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) auditCmd() *cobra.Command {
	return a.noun(spec{
		use:     "audit",
		short:   "the record that cannot be changed unseen",
		example: "ombud audit verify\nombud audit tail\nombud audit export > audit.jsonl\nombud audit verify-file audit.jsonl --pubkey ombud-ed25519:…",
	}, a.auditVerifyCmd(), a.auditTailCmd(), a.auditShowCmd(), a.auditAnchorCmd(), a.auditExportCmd(), a.auditVerifyFileCmd())
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var req wire.AuditVerifyRequest
	c := a.command(spec{
		use:   "verify",
		short: "check every chain, link and signature",
		long: `Checks the whole audit log, through the daemon or, when none runs, in the store
itself. Exits 5 and names the first entry that does not hold. What was anchored,
in audit.anchor_file or the file of --anchors, has to be there as it was.`,
		example: "ombud audit verify\nombud audit verify --anchors /mnt/stick/anchors",
	}, func(ctx context.Context, _ []string) error {
		if req.Anchors != "" {
			path, err := filepath.Abs(req.Anchors)
			if err != nil {
				return err
			}
			req.Anchors = path
		}
		res, err := a.client.AuditVerify(ctx, req)
		if errors.Is(err, wire.ErrNoDaemon) {
			res, err = a.auditOffline(ctx, req)
		}
		if err != nil {
			return err
		}
		return a.show("audit-verify/1", res, func(p *page) { auditPage(p, res) })
	})
	c.Flags().StringVar(&req.Anchors, "anchors", "", "hold the log against this `file` of anchors too")
	return c
}

// auditOffline verifies the store while no daemon has it.
func (a *app) auditOffline(ctx context.Context, req wire.AuditVerifyRequest) (wire.AuditVerifyResult, error) {
	if a.roof.VerifyAudit == nil {
		return wire.AuditVerifyResult{}, notHere("verify the audit log")
	}
	p, err := a.place()
	if err != nil {
		return wire.AuditVerifyResult{}, err
	}
	return a.roof.VerifyAudit(ctx, p, req)
}

func auditPage(p *page, r wire.AuditVerifyResult) {
	n := fmt.Sprintf("%d entries", r.Entries)
	if r.Entries == 1 {
		n = "1 entry"
	}
	p.line("%s, %s", p.good("ok"), n)
	p.line("%s", p.faint(fmt.Sprintf("%s, %s, in %s", plural(r.Chains, "chain"), plural(r.Checkpoints, "signed checkpoint"), span(micros(r.DurationUS)))))
	if r.Anchors > 0 {
		p.line("%s", p.faint(fmt.Sprintf("%s outside of the store, all found in it", plural(r.Anchors, "anchor"))))
	}
	if r.Restores > 0 {
		p.line("%s", p.warn(fmt.Sprintf("restored from a backup %s; %s from behind it no longer in the store", plural(r.Restores, "time"), plural(r.GivenUp, "anchor"))))
	}
	if r.Head.Seq > 0 {
		p.line("%s", p.faint(fmt.Sprintf("last entry %s %d, %s", r.Head.Chain, r.Head.Seq, r.Head.Hash)))
	}
	if r.Note != "" {
		p.line("%s", p.faint("note: "+r.Note))
	}
}

func (a *app) auditExportCmd() *cobra.Command {
	return a.command(spec{
		use:   "export",
		short: "write the audit log, a line an entry",
		long: `Writes the log to standard output, for an auditor who has the public key and no
secret. The key is told on standard error. The lines are JSON with or without --json.

It is always the whole log: the hash of an entry covers that of the entry before and its
own text, so entries that were left out would break what follows them. What one run did is
proved by its receipt: ombud runs receipt ID.`,
		example: "ombud audit export > audit.jsonl",
	}, func(ctx context.Context, _ []string) error {
		line := func(l wire.AuditLine) error {
			_, err := a.stdout.Write(append([]byte(l.Line), '\n'))
			return outputFault(err)
		}
		res, err := a.client.AuditExport(ctx, line)
		if errors.Is(err, wire.ErrNoDaemon) {
			res, err = a.exportOffline(ctx, line)
		}
		if err != nil {
			return err
		}
		a.note("%s, signed with %s", plural(res.Lines, "line"), res.PublicKey)
		return nil
	})
}

// exportOffline exports from the store while no daemon has it.
func (a *app) exportOffline(ctx context.Context, line func(wire.AuditLine) error) (wire.AuditExportResult, error) {
	if a.roof.ExportAudit == nil {
		return wire.AuditExportResult{}, notHere("export the audit log")
	}
	p, err := a.place()
	if err != nil {
		return wire.AuditExportResult{}, err
	}
	return a.roof.ExportAudit(ctx, p, line)
}

func (a *app) auditVerifyFileCmd() *cobra.Command {
	var pubkey, anchors string
	c := a.command(spec{
		use:     "verify-file FILE",
		short:   "check an export with a public key, without a daemon or a secret",
		long:    "Exits 5 and names the first line that does not hold. \"-\" reads standard input.",
		example: "ombud audit verify-file audit.jsonl --pubkey ombud-ed25519:…",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		if a.roof.VerifyAuditFile == nil {
			return fault.New(fault.Unavailable, "this build of ombud cannot check an export")
		}
		keys, err := parseKey(pubkey)
		if err != nil {
			return err
		}
		r := a.stdin
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return namedFileFault(err)
			}
			defer f.Close()
			r = f
		}
		res, err := a.roof.VerifyAuditFile(ctx, r, keys.PublicString(), anchors)
		if err != nil {
			return err
		}
		return a.show("audit-verify/1", res, func(p *page) { auditPage(p, res) })
	})
	c.Flags().StringVar(&pubkey, "pubkey", "", "the public key it has to be signed with")
	c.Flags().StringVar(&anchors, "anchors", "", "hold the export against this `file` of anchors too")
	_ = c.MarkFlagRequired("pubkey") // fails only for a flag that is not there
	return c
}
