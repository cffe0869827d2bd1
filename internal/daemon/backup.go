package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/backup"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// lastBackupKey is where the store says when it was backed up last.
const lastBackupKey = "backup.last"

// lastBackup is what it says.
type lastBackup struct {
	ID   string `json:"id"`
	At   int64  `json:"at"` // Unix µs: the moment it is of
	Path string `json:"path"`
}

// keyFiles are the files that belong to the key of an instance.
func keyFiles(in instance.Instance) []backup.KeyFile {
	return []backup.KeyFile{{Path: in.VaultFile()}, {Path: in.KeyFile(), Raw: true}, {Path: in.NextKeyFile(), Raw: true}}
}

// makeBackup writes one of an open store.
func makeBackup(ctx context.Context, o Options, d *db.DB, v *vault.Vault, req wire.BackupCreateRequest, fast bool, send func(wire.BackupProgress) error) (out wire.BackupResult, err error) {
	in := o.Instance
	path := req.Path
	switch {
	case (req.Path == "") == (req.Dir == ""):
		return out, fault.New(fault.Invalid, "a backup goes to a file or to a directory")
	case req.Keep < 0, req.Keep > 0 && req.Dir == "":
		return out, fault.New(fault.Invalid, "keep %d: it is for a directory of backups", req.Keep)
	case !filepath.IsAbs(req.Path + req.Dir):
		return out, fault.New(fault.Invalid, "the place of a backup is an absolute path")
	case req.Dir != "":
		path = backup.NameIn(req.Dir, in.Name, time.UnixMicro(d.Time()))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	report := func(p backup.Progress) {
		if err := send(wire.BackupProgress(p)); err != nil {
			cancel(err) // nobody waits for it any more
		}
	}
	res, err := backup.Create(ctx, backup.Source{
		DB: d, Vault: v, Instance: in.Name, Version: o.Version, Config: in.ConfigFile(), Keys: keyFiles(in),
		Private: []string{in.StateDir, in.ConfigDir, in.RuntimeDir}, Allowed: in.BackupDir(),
	}, backup.Options{Path: path, Force: req.Force, IncludeKey: req.IncludeKey, Fast: fast, Progress: report})
	if err != nil {
		return out, err
	}
	out = wire.BackupResult{
		Backup: wireBackup(res.Manifest), Path: res.Path, Bytes: res.Size, DurationUS: res.Took.Microseconds(), WALPeak: res.WALPeak,
	}
	last, err := json.Marshal(lastBackup{ID: out.Backup.ID, At: out.Backup.CreatedAt, Path: out.Path})
	if err != nil {
		return out, err
	}
	err = d.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		return db.SetMeta(ctx, tx, lastBackupKey, string(last))
	})
	if err == nil && req.Keep > 0 {
		out.Removed, err = backup.Prune(req.Dir, in.Name, req.Keep)
	}
	if err != nil {
		err = fmt.Errorf("the backup is good, %s; after it: %w", out.Path, err)
	}
	return out, err
}

func wireBackup(m backup.Manifest) wire.Backup {
	return wire.Backup{
		ID: m.ID, Ombud: m.Ombud, Instance: m.Instance, Store: m.Store, Schema: m.Schema, CreatedAt: m.CreatedAt, Head: m.Head,
		PublicKey: m.Key, KeyIncluded: m.KeyIncluded, Parts: len(m.Parts),
	}
}

// backupCreate writes a backup while everything goes on. It is audited: who has a
// backup has what the store holds.
func (d *Daemon) backupCreate(ctx context.Context, req wire.BackupCreateRequest, send func(wire.BackupProgress) error) (wire.BackupResult, error) {
	if !d.backing.TryLock() {
		return wire.BackupResult{}, fault.New(fault.Conflict, "a backup is being written").WithHint("wait for it")
	}
	defer d.backing.Unlock()
	out, err := makeBackup(ctx, d.o, d.db, d.vault, req, false, send)
	return out, noteBackup(ctx, d.db, d.audit, out, err)
}

// noteBackup records what became of a backup, which err says.
func noteBackup(ctx context.Context, d *db.DB, a *audit.Audit, out wire.BackupResult, err error) error {
	e := audit.Entry{Kind: "backup", Actor: byOperator, Subject: byOperator, Outcome: "ok"}
	switch {
	case out.Backup.ID == "":
		e.Outcome = string(fault.ClassOf(err))
	case out.Backup.KeyIncluded:
		e.Reason = "key_included"
	}
	noted := d.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		_, err := a.AppendTx(ctx, tx, e)
		return err
	})
	if err == nil {
		err = noted
	}
	return err
}

// Backup writes a backup of an instance without its daemon. It is audited too.
func Backup(ctx context.Context, o Options, req wire.BackupCreateRequest, send func(wire.BackupProgress) error) (out wire.BackupResult, err error) {
	err = withStore(ctx, o, toWrite, func(d *db.DB, v *vault.Vault, _ *eventlog.Log) error {
		out, err = makeBackup(ctx, o, d, v, req, true, send)
		// The record is opened last: where it cannot be written a backup is needed most.
		ctx := context.WithoutCancel(ctx)
		a := audit.New(d, v, "offline", o.Logger)
		if unopened := a.Start(ctx); unopened != nil {
			return errors.Join(err, unopened)
		}
		return errors.Join(noteBackup(ctx, d, a, out, err), a.Stop(ctx))
	})
	return out, err
}

// checkBackup is doctor's look at the last one.
func (d *Daemon) checkBackup(ctx context.Context) wire.Check {
	const id, hint = "backup.last", "ombud backup --to DIR --keep 7, best to another disk"
	var text string
	err := d.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		text, err = db.Meta(ctx, q, lastBackupKey)
		return err
	})
	var last lastBackup
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &last)
	}
	age := time.Duration(d.db.Time()-last.At) * time.Microsecond
	const old = 8 * 24 * time.Hour
	switch {
	case err != nil:
		return wire.Check{ID: id, Status: "fail", Detail: err.Error()}
	case text == "":
		return wire.Check{ID: id, Status: "warn", Detail: "there is no backup", Hint: hint}
	case age > old:
		return wire.Check{ID: id, Status: "warn", Detail: fmt.Sprintf("%d days ago, to %s", int(age.Hours()/24), last.Path), Hint: hint}
	}
	return wire.Check{ID: id, Status: "ok", Detail: fmt.Sprintf("%s ago, to %s", age.Round(time.Minute), last.Path)}
}
