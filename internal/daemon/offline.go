package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// What can be done with a store while no daemon has it. The store is opened with
// its lock, so that a daemon which starts meanwhile is told.

// withStore opens the parts that verifying needs.
func withStore(ctx context.Context, o Options, fn func(*db.DB, *vault.Vault, *eventlog.Log) error) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := db.Open(ctx, storeOptions(o))
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing was written
	v, err := openVault(ctx, d, o)
	if err != nil {
		return err
	}
	return fn(d, v, eventlog.NewLog(d, v, o.Logger, eventlog.Options{}))
}

// VerifyAudit checks the audit record of an instance without its daemon.
func VerifyAudit(ctx context.Context, o Options) (out wire.AuditVerifyResult, err error) {
	err = withStore(ctx, o, func(d *db.DB, v *vault.Vault, l *eventlog.Log) error {
		runs := run.New(d, v, l, run.NewKinds(), run.Options{})
		out, err = verifyAudit(ctx, d, v, runs)
		return err
	})
	return out, err
}

// ExportAudit writes the audit record of an instance without its daemon.
func ExportAudit(ctx context.Context, o Options, line func(wire.AuditLine) error) (out wire.AuditExportResult, err error) {
	err = withStore(ctx, o, func(d *db.DB, v *vault.Vault, _ *eventlog.Log) error {
		out, err = exportAudit(ctx, audit.New(d, v, "offline", slog.New(slog.DiscardHandler)), v, line)
		return err
	})
	return out, err
}

// VerifyAuditFile checks an export with a public key in hex.
func VerifyAuditFile(_ context.Context, r io.Reader, publicKey string) (wire.AuditVerifyResult, error) {
	begun := time.Now()
	var keys vault.Keys
	if publicKey != "" {
		var err error
		if keys, err = vault.ParsePublicKey(publicKey); err != nil {
			return wire.AuditVerifyResult{}, err
		}
	}
	rep, err := audit.VerifyFile(r, keys)
	return auditResult(rep, begun), err
}

func auditResult(rep audit.Report, begun time.Time) wire.AuditVerifyResult {
	return wire.AuditVerifyResult{
		Entries: rep.Entries, Chains: rep.Chains, Checkpoints: rep.Checkpoints, DurationUS: time.Since(begun).Microseconds(),
		Note: "a store that was rolled back as a whole is noticed only by comparing with an export kept elsewhere",
	}
}

// verifyAudit checks the chains, then that every step's entry is there: a chain
// whose end was cut off is whole in itself.
func verifyAudit(ctx context.Context, d *db.DB, v *vault.Vault, runs *run.Engine) (wire.AuditVerifyResult, error) {
	begun := time.Now()
	rep, err := audit.Verify(ctx, d, v.Keys())
	if err != nil {
		return auditResult(rep, begun), err
	}
	_, err = audit.VerifyRefs(ctx, d, stepRefs(ctx, runs))
	return auditResult(rep, begun), err
}

func stepRefs(ctx context.Context, runs *run.Engine) iter.Seq2[audit.Ref, error] {
	return func(yield func(audit.Ref, error) bool) {
		err := runs.StepAudits(ctx, func(_, _ string, ref run.AuditRef) error {
			if !yield(audit.Ref(ref), nil) {
				return io.EOF
			}
			return nil
		})
		if err != nil && err != io.EOF {
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

// CheckStore looks at the store of an instance that has no daemon.
func CheckStore(ctx context.Context, o Options) []wire.Check {
	var out []wire.Check
	err := withStore(ctx, o, func(d *db.DB, _ *vault.Vault, l *eventlog.Log) error {
		if err := d.Integrity(ctx); err != nil {
			return err
		}
		head, err := l.Head(ctx)
		out = append(out, wire.Check{ID: "store.integrity", Status: "ok", Detail: fmt.Sprintf("%s, %d events", d.Kind(), head)})
		return err
	})
	if err != nil {
		out = append(out, wire.Check{ID: "store.integrity", Status: "fail", Detail: err.Error(), Hint: fault.HintOf(err)})
	}
	return out
}
