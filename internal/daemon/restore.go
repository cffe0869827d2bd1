package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/backup"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/hold"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/lease"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// openStore opens the store of an instance, after a restore that was decided was
// brought to its end. Every way to a store goes through it.
func openStore(ctx context.Context, o Options, so db.Options) (*db.DB, error) {
	so.Prepare = func() error {
		settled, err := backup.Settle(o.Instance)
		if settled {
			o.Logger.Info("a restore that was cut off is finished")
		}
		return err
	}
	d, err := db.Open(ctx, so)
	if err != nil || !d.Postgres() {
		return d, err
	}
	if err := settleStore(ctx, o, d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// settleStore asks an open store on PostgreSQL what became of a restore that was
// decided, and puts its files in place or removes them.
func settleStore(ctx context.Context, o Options, d *db.DB) error {
	var r hold.Record
	err := d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		r, _, err = hold.Read(ctx, q)
		return err
	})
	if err == nil {
		_, err = backup.SettleStore(o.Instance, r.Restore)
	}
	return err
}

// settle is what openStore does before anything else, for who holds the lock already.
func settle(ctx context.Context, o Options) error {
	if _, err := backup.Settle(o.Instance); err != nil {
		return err
	}
	if _, err := os.Lstat(o.Instance.ReadyDir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !o.Config.Config.Store.Postgres.Set() { // it was for another store than the one restored into now
		_, err := backup.SettleStore(o.Instance, "")
		return err
	}
	so := storeOptions(o)
	so.LockFile, so.ReserveFile, so.ReadOnly = "", "", true
	d, err := db.Open(ctx, so)
	if err != nil {
		return err
	}
	return errors.Join(settleStore(ctx, o, d), d.Close())
}

// RestoreRequest says what to restore.
type RestoreRequest struct {
	File    string // the backup
	KeyFile string // the key, if it is neither in the backup nor in its place; may be ""
	Replace bool   // move what is there aside
	// Load reads a configuration file: where the instance has none, that of the backup
	// says which store is restored into.
	Load func(path string) (*config.Loaded, error)
	Send func(wire.BackupProgress) error
}

func (r RestoreRequest) report(p backup.Progress) {
	if r.Send != nil {
		_ = r.Send(wire.BackupProgress(p)) // a note
	}
}

// Restore puts the instance of a backup in the place of o.Instance, held. Everything
// is made and verified beside what is there; after an error nothing has changed.
func Restore(ctx context.Context, o Options, req RestoreRequest) (out wire.RestoreResult, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := backup.Verify(ctx, req.File, req.report)
	if err != nil {
		return out, err
	}
	in := o.Instance
	if err := in.MakeDirs(); err != nil {
		return out, err
	}
	unlock, err := db.Lock(in.LockFile())
	if err != nil {
		return out, err
	}
	defer unlock()
	if err := settle(ctx, o); err != nil {
		return out, err
	}
	if _, err := os.Lstat(in.StateDB()); err == nil && !req.Replace {
		return out, fault.New(fault.Conflict, "the instance %s is not empty: it has the store %s", in.Name, in.StateDB()).
			WithHint("restore it under another name with --instance NAME, or move what is there aside with --replace")
	}
	if err := backup.Room(in.StateDir, m); err != nil {
		return out, err
	}
	r := &restoring{o: o, req: req, m: m, plan: backup.Plan{Restore: id.New("res"), Store: "sqlite", Aside: backup.Stamp(time.Now())}}
	defer func() {
		if err != nil { // of what was not decided nothing stays
			_ = os.RemoveAll(in.StagingDir())
		}
	}()
	if err := r.stage(ctx); err != nil {
		return out, err
	}
	req.report(backup.Progress{Phase: "putting in place"})
	if err := r.decide(ctx); err != nil {
		return out, err
	}
	out = wire.RestoreResult{ID: r.plan.Restore, Backup: wireBackup(m), Store: r.plan.Store}
	if _, err := os.Lstat(in.ReplacedDir(r.plan.Aside)); err == nil {
		out.Replaced = in.ReplacedDir(r.plan.Aside)
	}
	for _, path := range []string{in.RestoredConfig(), in.ConfigFile()} {
		if _, err := os.Lstat(path); err == nil && out.Config == "" && r.hasConfig {
			out.Config = path
		}
	}
	return out, nil
}

// restoring is one restore under way.
type restoring struct {
	o         Options // of the instance it is for
	req       RestoreRequest
	m         backup.Manifest
	plan      backup.Plan
	hasConfig bool
}

// staged are the options to open what was staged.
func (r *restoring) staged() Options {
	o := r.o
	o.Instance = o.Instance.Staged()
	return o
}

func (r *restoring) stage(ctx context.Context) error {
	in, to := r.o.Instance, r.o.Instance.Staged()
	if err := backup.Extract(ctx, r.req.File, r.m, to, true, r.req.report); err != nil {
		return err
	}
	if err := r.configure(to); err != nil {
		return err
	}
	if err := r.placeVault(in, to); err != nil {
		return err
	}
	r.req.report(backup.Progress{Phase: "checking the store"})
	d, err := db.Open(ctx, db.Options{DSN: "sqlite:" + to.StateDB(), BackupDir: filepath.Join(in.StagingDir(), "older"), Logger: r.o.Logger})
	if err != nil {
		return err
	}
	err = r.judge(ctx, d)
	return errors.Join(err, d.Close())
}

// configure finds out which store is restored into.
func (r *restoring) configure(to instance.Instance) error {
	_, err := os.Lstat(to.ConfigFile())
	r.hasConfig = err == nil
	if _, err := os.Lstat(r.o.Instance.ConfigFile()); errors.Is(err, fs.ErrNotExist) && r.hasConfig && r.req.Load != nil {
		loaded, err := r.req.Load(to.ConfigFile())
		if err != nil {
			return fmt.Errorf("the configuration in the backup: %w", err)
		}
		r.o.Config = loaded
	}
	if r.o.Config.Config.Store.Postgres.Set() {
		r.plan.Store = "postgres"
	}
	return nil
}

// placeVault gives the staged instance what opens its vault: the key file that was
// named; else what is in place now, if it is the same vault and no older, so that what
// opens it is not put back to what it was; else what came with the backup, or is there.
func (r *restoring) placeVault(in, to instance.Instance) error {
	pairs := [][2]string{{in.VaultFile(), to.VaultFile()}, {in.KeyFile(), to.KeyFile()}, {in.NextKeyFile(), to.NextKeyFile()}}
	if r.req.KeyFile != "" {
		pairs = [][2]string{{r.req.KeyFile, to.KeyFile()}}
	}
	over := r.req.KeyFile != "" || newerVault(in.VaultFile(), to.VaultFile())
	for _, p := range pairs {
		if _, err := os.Lstat(p[0]); errors.Is(err, fs.ErrNotExist) && r.req.KeyFile == "" {
			continue
		}
		if _, err := os.Lstat(p[1]); err == nil {
			if !over {
				continue
			}
			if err := os.Remove(p[1]); err != nil {
				return err
			}
		}
		if err := backup.CopyFile(p[0], p[1]); err != nil {
			return err
		}
	}
	return nil
}

// newerVault reports whether the first of two vault files is of the same vault as the
// second and was changed since.
func newerVault(have, other string) bool {
	a, err1 := readEnvelope(have)
	b, err2 := readEnvelope(other)
	return err1 == nil && err2 == nil && a.Vault == b.Vault && a.Public == b.Public && a.Generation > b.Generation
}

func readEnvelope(path string) (vault.Envelope, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return vault.Envelope{}, err
	}
	return vault.ParseEnvelope(text)
}

// judge verifies a staged store and makes it a restored one.
func (r *restoring) judge(ctx context.Context, d *db.DB) error {
	if err := d.Sound(ctx); err != nil {
		return err
	}
	k, _, err := openVault(ctx, d, r.staged(), false)
	if err != nil {
		return fault.New(fault.ClassOf(err), "the vault of this backup does not open: %w", err).
			WithHint("its key file is given with --key-file FILE; a passphrase is asked for in a terminal, or taken from where vault.source says")
	}
	defer k.Close()
	v := k.Vault()
	if v.Keys().PublicString() != r.m.Key {
		return fault.New(fault.Verification, "the backup was signed by another key than the one that opens its store").
			WithHint("somebody has put it together; use another backup")
	}
	events := eventlog.NewLog(d, v, r.o.Logger, eventlog.Options{})
	runs := run.New(d, v, events, run.NewKinds(), run.Options{Logger: r.o.Logger})
	if err := checkContent(ctx, d, v, events, runs, r.m); err != nil {
		return err
	}
	return r.stamp(ctx, d, v)
}

// checkContent holds a store against itself and against the manifest of its backup.
func checkContent(ctx context.Context, d *db.DB, v *vault.Vault, events *eventlog.Log, runs *run.Engine, m backup.Manifest) error {
	head, err := events.Head(ctx)
	if err != nil {
		return err
	}
	if head != m.Head {
		return fault.New(fault.Verification, "the store ends at event %d, the backup says %d", head, m.Head)
	}
	if _, err := verifyAudit(ctx, d, v, runs, nil); err != nil {
		return err
	}
	_, err = runs.Verify(ctx)
	return err
}

// stamp makes the store one that was restored: the record goes on in a chain that
// names the backup, nobody of before is alive, and it is held.
func (r *restoring) stamp(ctx context.Context, d *db.DB, v *vault.Vault) (err error) {
	a := audit.New(d, v, r.plan.Restore, r.o.Logger)
	if err := a.StartRestored(ctx, audit.Restored{Restore: r.plan.Restore, Backup: r.m.ID, Made: r.m.CreatedAt, Marks: r.m.Audit}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop(ctx)) }()
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := hold.SetTx(ctx, tx, hold.Record{
			Restore: r.plan.Restore, Backup: r.m.ID, At: tx.Now(), Made: r.m.CreatedAt, Head: r.m.Head,
		}); err != nil {
			return err
		}
		if err := errors.Join(run.ForgetNodesTx(ctx, tx), lease.ForgetTx(ctx, tx)); err != nil {
			return err
		}
		_, err := a.AppendTx(ctx, tx, audit.Entry{Kind: "restore", Actor: byOperator, Subject: byOperator, Outcome: "ok", Reason: r.m.ID})
		return err
	})
}

// decide puts in place what was staged. On SQLite a rename decides. On PostgreSQL it
// is the commit of all rows; the files are ready before it and go in after it.
func (r *restoring) decide(ctx context.Context) error {
	in := r.o.Instance
	if r.plan.Store == "sqlite" {
		if err := backup.Decide(in, r.plan); err != nil {
			return err
		}
		_, err := backup.Settle(in)
		return err
	}
	d, err := db.Open(ctx, db.Options{DSN: "sqlite:" + in.Staged().StateDB(), Logger: r.o.Logger})
	if err != nil {
		return err
	}
	closed := false
	shut := func() error {
		if closed {
			return nil
		}
		closed = true
		return d.Close()
	}
	defer func() { _ = shut() }() // after an error it is removed anyway
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snap.Close()
	target := storeOptions(r.o)
	target.LockFile = "" // it is held
	err = db.Load(ctx, target, snap.Schema, func(ctx context.Context, l *db.Loader) error {
		if err := backup.Transfer(ctx, snap, l, r.req.report); err != nil {
			return err
		}
		snap.Close()
		if err := shut(); err != nil {
			return err
		}
		for _, path := range in.Staged().DatabaseFiles() {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return backup.Decide(in, r.plan)
	})
	if fault.Is(err, fault.Unknown) { // the files stay ready: the rows may be there
		return fault.New(fault.Unknown, "restore: %w", err).WithHint("start it with ombud up: it asks the store, and finishes the restore or drops it")
	}
	if err != nil {
		_, settled := backup.SettleStore(in, "")
		return errors.Join(err, settled)
	}
	failpoint.Hit("restore.committed")
	_, err = backup.SettleStore(in, r.plan.Restore)
	return err
}

// VerifyBackup checks a backup: its file from end to end, and, unless quick is set,
// what is in it, by unpacking it into a directory below scratch that is removed.
func VerifyBackup(ctx context.Context, o Options, file, scratch string, quick bool, send func(wire.BackupProgress) error) (out wire.BackupVerifyResult, err error) {
	begun := time.Now()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	report := RestoreRequest{Send: send}.report
	m, err := backup.Verify(ctx, file, report)
	if err != nil {
		return out, err
	}
	out = wire.BackupVerifyResult{Backup: wireBackup(m), Path: file}
	if info, err := os.Stat(file); err == nil {
		out.Bytes = info.Size()
	}
	ok := func(id, format string, args ...any) {
		out.Checks = append(out.Checks, wire.Check{ID: id, Status: "ok", Detail: fmt.Sprintf(format, args...)})
	}
	ok("file.hashes", "%d parts, each with its SHA-256", len(m.Parts))
	keys, err := vault.ParsePublicKey(m.Key)
	if err != nil {
		return out, err
	}
	ok("file.signature", "by key %s", keys.Fingerprint())
	if !quick {
		if err := rehearse(ctx, o, file, scratch, m, keys, report, ok, &out); err != nil {
			return out, err
		}
	}
	out.DurationUS = time.Since(begun).Microseconds()
	return out, nil
}

// rehearse unpacks a backup and looks into it as a restore would, without touching
// the instance or its key.
func rehearse(ctx context.Context, o Options, file, scratch string, m backup.Manifest, keys vault.Keys, report func(backup.Progress),
	ok func(id, format string, args ...any), out *wire.BackupVerifyResult,
) (err error) {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return fault.New(fault.Permission, "make the scratch directory: %w", err)
	}
	if err := backup.Room(scratch, m); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(scratch, "verify-")
	if err != nil {
		return fault.New(fault.Permission, "make the scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	to := o.Instance.Scratch(dir)
	if err := backup.Extract(ctx, file, m, to, false, report); err != nil {
		return err
	}
	report(backup.Progress{Phase: "checking the store"})
	d, err := db.Open(ctx, db.Options{DSN: "sqlite:" + to.StateDB(), BackupDir: filepath.Join(dir, "older"), Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Sound(ctx); err != nil {
		return err
	}
	ok("store.integrity", "schema %d, ends at event %d", m.Schema, m.Head)
	k := ownVault(ctx, o, d)
	if k == nil {
		rep, err := audit.Verify(ctx, d, keys)
		if err != nil {
			return err
		}
		ok("audit.chain", "%d entries in %d chains, hashes and signatures", rep.Entries, rep.Chains)
		out.Checks = append(out.Checks, wire.Check{ID: "store.content", Status: "skip", Detail: "the key of the backup is not here, so nothing sealed was opened"})
		return nil
	}
	defer k.Close()
	v := k.Vault()
	events := eventlog.NewLog(d, v, o.Logger, eventlog.Options{})
	runs := run.New(d, v, events, run.NewKinds(), run.Options{Logger: o.Logger})
	if err := checkContent(ctx, d, v, events, runs, m); err != nil {
		return err
	}
	ok("audit.chain", "hashes, signatures and MACs, and every step's entry")
	ok("store.content", "every run is what its events say")
	return nil
}

// ownVault is the vault of the instance if it opens without asking anybody and is that
// of an unpacked store, else nil. Nothing of it is changed.
func ownVault(ctx context.Context, o Options, d *db.DB) *vault.Keeper {
	o.Ask = nil
	k, _, err := openVault(ctx, d, o, false)
	if err != nil {
		return nil
	}
	return k
}
