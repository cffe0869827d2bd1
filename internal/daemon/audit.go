package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (d *Daemon) startAnchor(ctx context.Context) error {
	if d.anchor == nil {
		return nil
	}
	return d.anchor.Start(ctx)
}

func (d *Daemon) stopAnchor(ctx context.Context) error {
	if d.anchor == nil {
		return nil
	}
	return d.anchor.Stop(ctx)
}

func (d *Daemon) auditVerify(ctx context.Context, req wire.AuditVerifyRequest) (wire.AuditVerifyResult, error) {
	return verifyAudit(ctx, d.db, d.vault, d.runs, anchorFiles(d.o, req))
}

func (d *Daemon) auditTail(ctx context.Context, req wire.AuditTailRequest) (wire.AuditTailResult, error) {
	limit := req.Limit
	switch {
	case limit == 0:
		limit = 20
	case limit < 0 || limit > 1000:
		return wire.AuditTailResult{}, fault.New(fault.Invalid, "limit %d: 1 to 1000", limit)
	}
	found, err := audit.Tail(ctx, d.db, limit)
	out := wire.AuditTailResult{Entries: make([]wire.AuditEntry, 0, len(found))}
	for _, e := range found {
		shown := auditEntry(e)
		shown.Text = ""
		out.Entries = append(out.Entries, shown)
	}
	return out, err
}

func (d *Daemon) auditShow(ctx context.Context, req wire.AuditShowRequest) (wire.AuditShowResult, error) {
	e, err := audit.Show(ctx, d.db, req.Chain, req.Seq)
	return wire.AuditShowResult{Entry: auditEntry(e)}, err
}

func auditEntry(e audit.Recorded) wire.AuditEntry {
	return wire.AuditEntry{
		Ref: auditRef(e.Ref), At: e.At, Kind: e.Kind, Actor: e.Actor, Subject: e.Subject, Tool: e.Tool, Scopes: append([]string{}, e.Scopes...),
		Outcome: e.Outcome, Reason: e.Reason, Run: e.Run, Step: e.Step, DurationUS: e.DurationUS, CostMicroUSD: e.CostMicroUSD,
		Count: e.Count, SignedBy: e.Signed, Text: e.Text,
	}
}

func auditRef(r audit.Ref) wire.AuditRef {
	return wire.AuditRef{Chain: r.Chain, Seq: r.Seq, Hash: hex.EncodeToString(r.Hash)}
}

func (d *Daemon) auditAnchor(ctx context.Context, _ wire.Empty) (wire.AuditAnchorResult, error) {
	ref, line, err := d.audit.Sign(ctx)
	if err != nil {
		return wire.AuditAnchorResult{}, err
	}
	out := wire.AuditAnchorResult{Ref: auditRef(ref), Line: line}
	if d.anchor != nil {
		out.File = d.o.Config.Config.Audit.AnchorFile
		err = d.anchor.Flush(ctx)
	}
	return out, err
}

// anchorFiles are the files a record is held against.
func anchorFiles(o Options, req wire.AuditVerifyRequest) (files []string) {
	for _, f := range []string{o.Config.Config.Audit.AnchorFile, req.Anchors} {
		if f != "" {
			files = append(files, f)
		}
	}
	return files
}

// VerifyAuditFile checks an export with a public key in its printable form,
// and, unless anchors is empty, against that file.
func VerifyAuditFile(_ context.Context, r io.Reader, publicKey, anchors string) (wire.AuditVerifyResult, error) {
	begun := time.Now()
	var keys vault.Keys
	if publicKey != "" {
		var err error
		if keys, err = vault.ParsePublicKey(publicKey); err != nil {
			return wire.AuditVerifyResult{}, err
		}
	}
	known := &audit.Anchors{}
	if anchors != "" {
		var err error
		if known, err = audit.ReadAnchorFile(anchors, keys); err != nil {
			return wire.AuditVerifyResult{}, err
		}
	}
	rep, err := audit.VerifyFileWith(r, keys, known)
	return auditResult(rep, int64(known.Len()), begun), err
}

func auditResult(rep audit.Report, anchors int64, begun time.Time) wire.AuditVerifyResult {
	out := wire.AuditVerifyResult{
		Entries: rep.Entries, Chains: rep.Chains, Checkpoints: rep.Checkpoints, Anchors: anchors, DurationUS: time.Since(begun).Microseconds(),
	}
	if anchors == 0 {
		out.Note = "a store that was put back as a whole is noticed only by anchors kept outside of it: set audit.anchor_file, or keep what ombud audit anchor prints"
	}
	return out
}

// verifyAudit checks the chains, then that every step's entry is there: a chain
// whose end was cut off is whole in itself. What a store as a whole can hide, the
// anchors show; a file that is not there or spoiled is a failure.
func verifyAudit(ctx context.Context, d *db.DB, v *vault.Vault, runs *run.Engine, anchors []string) (out wire.AuditVerifyResult, err error) {
	begun := time.Now()
	rep, err := audit.Verify(ctx, d, v.Keys())
	if err != nil {
		return auditResult(rep, 0, begun), err
	}
	if _, err = audit.VerifyRefs(ctx, d, stepRefs(ctx, runs)); err != nil {
		return auditResult(rep, 0, begun), err
	}
	var held, givenUp int64
	for _, file := range anchors {
		known, err := audit.ReadAnchorFile(file, v.Keys())
		if err != nil {
			return auditResult(rep, held, begun), err
		}
		found, err := audit.VerifyAnchors(ctx, d, known)
		givenUp += found.GivenUp
		if held += found.Found; err != nil {
			return auditResult(rep, held, begun), err
		}
	}
	out = auditResult(rep, held, begun)
	out.Restores, out.GivenUp = rep.Restores, givenUp
	head, err := audit.Head(ctx, d)
	if head.Seq > 0 {
		out.Head = auditRef(head)
	}
	return out, err
}

func stepRefs(ctx context.Context, runs *run.Engine) iter.Seq2[audit.Ref, error] {
	return func(yield func(audit.Ref, error) bool) {
		err := runs.StepAudits(ctx, func(_, _ string, ref run.AuditRef) error {
			if !yield(audit.Ref(ref), nil) {
				return io.EOF
			}
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			yield(audit.Ref{}, err)
		}
	}
}

// exportAudit hands the export on line by line.
func exportAudit(ctx context.Context, a *audit.Audit, v *vault.Vault, line func(wire.AuditLine) error) (wire.AuditExportResult, error) {
	w := &lineWriter{line: line}
	err := a.Export(ctx, w)
	return wire.AuditExportResult{Lines: w.lines, PublicKey: v.Keys().PublicString()}, err
}

// lineWriter cuts what is written into lines.
type lineWriter struct {
	line  func(wire.AuditLine) error
	rest  []byte
	lines int64
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if err := w.line(wire.AuditLine{Line: json.RawMessage(bytes.Clone(w.rest[:i]))}); err != nil {
			return 0, err
		}
		w.lines++
		w.rest = w.rest[i+1:]
	}
}
