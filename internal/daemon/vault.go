package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// What the store remembers of its vault.
const (
	metaPublic   = "vault.public_key"
	metaEnvelope = "vault.envelope"
)

// VaultFiles are the places of an instance's vault.
func VaultFiles(in instance.Instance) vault.Files {
	return vault.Files{Envelope: in.VaultFile(), Key: in.KeyFile(), NextKey: in.NextKeyFile()}
}

// VaultSources are what an instance's vault can be opened with.
func VaultSources(o Options) vault.Sources {
	cfg, env := o.Config.Config.Vault, o.Environment
	s := vault.Sources{
		Use: vault.Source(cfg.Source), PassphraseFile: cfg.PassphraseFile, Variable: env.Passphrase.Reveal(), Credentials: env.Credentials,
		Ring: vault.SystemRing(env.SessionBus), Name: o.Instance.Name, Ask: o.Ask, Recovery: o.recovery, Stretch: o.stretch,
		Now: func() int64 { return time.Now().UnixMicro() },
	}
	switch {
	case o.Handed != nil && o.HandedVariable:
		s.Variable = string(o.Handed.Reveal())
	case o.Handed != nil:
		s.Handed = o.Handed
	}
	return s
}

// vaultSecrets are places outside of the instance's directories that hold what opens
// the vault: no tool reads them, and no program sees them.
func vaultSecrets(o Options) (paths []string) {
	for _, path := range []string{o.Config.Config.Vault.PassphraseFile, o.Environment.Credentials} {
		if path == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		paths = append(paths, path)
	}
	return paths
}

// openVault opens the vault and holds it against the store: a key that is not the
// one the store was sealed with is refused, and none is made for a store that has
// one already. With own the store is about to be worked with: a vault is made for a
// new one, and what a crash or a disk left half is mended. Others only look.
func openVault(ctx context.Context, store *db.DB, o Options, own bool) (*vault.Keeper, []string, error) {
	memory, err := vaultMemory(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	k, err := vault.Open(ctx, VaultFiles(o.Instance), VaultSources(o), memory, own)
	if err != nil || !own {
		return k, nil, err
	}
	k.Sweep() // the store's lock is held
	done, err := k.Settle()
	if err != nil {
		return nil, done, err
	}
	if memory.Public != "" {
		return k, done, nil
	}
	// Of two daemons that meet a new store, the first one's key is the store's.
	var known string
	err = store.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if known, err = db.ClaimMeta(ctx, tx, metaPublic, k.Public()); err != nil || known != k.Public() {
			return err
		}
		return db.SetMeta(ctx, tx, metaEnvelope, string(k.Copy()))
	})
	if err == nil && known != k.Public() {
		err = fault.New(fault.Verification, "another ombud sealed this store with its key in this instant").
			WithHint("two instances cannot share a store with two vaults: put the vault file and what opens it of the other one here")
	}
	return k, done, err
}

func vaultMemory(ctx context.Context, store *db.DB) (m vault.Memory, err error) {
	err = store.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if m.Public, err = db.Meta(ctx, q, metaPublic); err != nil {
			return err
		}
		text, err := db.Meta(ctx, q, metaEnvelope)
		m.Envelope = []byte(text)
		return err
	})
	return m, err
}

// vaultChange is everything one needs to change a vault and record it.
type vaultChange struct {
	db    *db.DB
	audit *audit.Audit
	keep  *vault.Keeper
}

// do makes a change between two entries: what was begun, and what became of it. The
// second goes with the copy that the store keeps. A start that finds the copy behind
// the file, because the process died in between, records that.
func (c vaultChange) do(ctx context.Context, what string, change func() error) error {
	err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := c.audit.AppendTx(ctx, tx, vaultEntry(what, "begun"))
		return err
	})
	if err != nil {
		return err
	}
	failed := change()
	outcome := "ok"
	if failed != nil {
		outcome = string(fault.ClassOf(failed))
	}
	// Whoever asked may be gone by now; it is recorded all the same.
	err = c.db.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error { return c.recordTx(ctx, tx, vaultEntry(what, outcome)) })
	return errors.Join(failed, err)
}

func (c vaultChange) recordTx(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	if err := db.SetMeta(ctx, tx, metaEnvelope, string(c.keep.Copy())); err != nil {
		return err
	}
	_, err := c.audit.AppendTx(ctx, tx, e)
	return err
}

func vaultEntry(what, outcome string) audit.Entry {
	return audit.Entry{Kind: "vault", Actor: byOperator, Subject: byOperator, Reason: what, Outcome: outcome}
}

// settled records what opening the vault mended, when the record is open.
func (c vaultChange) settled(ctx context.Context, done []string) error {
	memory, err := vaultMemory(ctx, c.db)
	if err != nil || len(done) == 0 && !c.keep.Behind(memory) {
		return err
	}
	e := vaultEntry("settled", "ok")
	e.Actor = "system"
	switch {
	case c.keep.State().Generation == 1 && len(memory.Envelope) > 0 && !c.keep.Behind(memory):
		e.Reason = "made"
	case len(memory.Envelope) == 0:
		e.Reason = "vault file made"
	}
	return c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return c.recordTx(ctx, tx, e) })
}

// startVault records what was found at the opening and tells it in the log.
func (d *Daemon) startVault(ctx context.Context) error {
	st := d.keeper.State()
	d.log.Info("vault opened", "by", string(st.OpenedBy), "from", st.From, "generation", st.Generation)
	for _, line := range st.Notes {
		d.log.Warn("vault", "found", line)
	}
	for _, line := range d.vaultNotes[min(len(st.Notes), len(d.vaultNotes)):] { // they begin with the notes
		d.log.Info("vault", "done", line)
	}
	return d.vaultChange().settled(ctx, d.vaultNotes)
}

func (d *Daemon) vaultChange() vaultChange { return vaultChange{d.db, d.audit, d.keeper} }

func (d *Daemon) vaultStatus(context.Context, wire.Empty) (wire.VaultStatus, error) {
	return wireVault(d.keeper.State(), true), nil
}

func (d *Daemon) vaultPassphrase(ctx context.Context, req wire.VaultPassphraseRequest) (wire.VaultStatus, error) {
	know(d.hide, d.log, passphrase, []byte(req.Passphrase))
	err := d.vaultChange().passphrase(ctx, req)
	return wireVault(d.keeper.State(), true), err
}

func (d *Daemon) vaultRotate(ctx context.Context, req wire.VaultRotateRequest) (wire.VaultStatus, error) {
	know(d.hide, d.log, passphrase, []byte(req.Passphrase))
	err := d.vaultChange().rotate(ctx, req)
	return wireVault(d.keeper.State(), true), err
}

func (d *Daemon) vaultRecover(ctx context.Context, req wire.VaultRecoverRequest) (wire.VaultStatus, error) {
	know(d.hide, d.log, passphrase, []byte(req.Passphrase))
	d.hide.Register("recovery-key", []byte(req.RecoveryKey))
	err := d.vaultChange().recover(ctx, req)
	return wireVault(d.keeper.State(), true), err
}

func (d *Daemon) vaultRecoveryKey(ctx context.Context, _ wire.Empty) (wire.VaultRecoveryKeyResult, error) {
	shown, err := d.vaultChange().recoveryKey(ctx)
	d.hide.Register("recovery-key", []byte(shown))
	return wire.VaultRecoveryKeyResult{RecoveryKey: shown, Vault: wireVault(d.keeper.State(), true)}, err
}

func (c vaultChange) passphrase(ctx context.Context, req wire.VaultPassphraseRequest) error {
	secret, err := vault.NewPassphrase("the new passphrase", []byte(req.Passphrase))
	if err != nil {
		return fault.New(fault.Invalid, "%w", err)
	}
	defer secret.Wipe()
	if err := secret.Strong(); err != nil {
		return err
	}
	return c.do(ctx, "passphrase", func() error { return c.keep.SetPassphrase(ctx, secret, req.KeepKeyFile) })
}

func (c vaultChange) rotate(ctx context.Context, req wire.VaultRotateRequest) (err error) {
	var secret *vault.Secret
	if req.Passphrase != "" {
		if secret, err = vault.NewPassphrase("the passphrase", []byte(req.Passphrase)); err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
	} else if req.To == "" { // with another form the passphrase goes, and need not be found
		if secret, err = c.keep.Given(ctx); err != nil {
			return err
		}
	}
	defer secret.Wipe()
	what := "rotate"
	if req.To != "" {
		what = "rotate to " + req.To
	}
	return c.do(ctx, what, func() error { return c.keep.Rotate(ctx, vault.Kind(req.To), secret) })
}

func (c vaultChange) recover(ctx context.Context, req wire.VaultRecoverRequest) error {
	recovery, err := vault.NewRecoverySecret([]byte(req.RecoveryKey))
	if err != nil {
		return err
	}
	defer recovery.Wipe()
	var secret *vault.Secret
	if req.Passphrase != "" {
		if secret, err = vault.NewPassphrase("the new passphrase", []byte(req.Passphrase)); err == nil {
			err = secret.Strong()
		}
		if err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
		defer secret.Wipe()
	}
	return c.do(ctx, "recover", func() error { return c.keep.Recover(ctx, recovery, secret) })
}

func (c vaultChange) recoveryKey(ctx context.Context) (shown string, err error) {
	err = c.do(ctx, "recovery key", func() (err error) {
		shown, err = c.keep.NewRecoveryKey()
		return err
	})
	return shown, err
}

func wireVault(st vault.State, open bool) wire.VaultStatus {
	out := wire.VaultStatus{
		Fingerprint: st.Fingerprint, Generation: int64(st.Generation), Source: string(st.Use), Open: open, OpenedBy: string(st.OpenedBy), From: st.From,
		Wraps: []wire.VaultWrap{}, Notes: append([]string{}, st.Notes...), Exposed: append([]string{}, st.Exposed...),
	}
	for _, w := range st.Wraps {
		shown := wire.VaultWrap{Kind: string(w.Kind), MadeAt: w.Made, Account: w.Account}
		if w.Argon2 != nil {
			shown.Parameters = w.Argon2.String()
		}
		out.Wraps = append(out.Wraps, shown)
	}
	return out
}

// vaultCheck is the vault's line in doctor. What the way it is opened does not protect
// is told by the command itself.
func (d *Daemon) vaultCheck() wire.Check {
	st := d.keeper.State()
	c := wire.Check{ID: "vault.key", Status: "ok", Detail: fmt.Sprintf("opened by %s", st.From)}
	if len(st.Notes) > 0 {
		c.Status, c.Hint = "warn", "ombud vault status tells all of it"
		c.Detail += "; at the start: " + strings.Join(st.Notes, "; ")
	}
	return c
}

// VaultStatus tells about the vault of an instance without its daemon, and opens
// nothing. The store is asked only where the vault file does not tell.
func VaultStatus(ctx context.Context, o Options) (wire.VaultStatus, error) {
	files, sources := VaultFiles(o.Instance), VaultSources(o)
	var memory vault.Memory
	if _, err := vault.ReadEnvelope(files.Envelope); err != nil && hasStore(o) {
		err := lockStore(ctx, o, toRead, func(_ Options, store *db.DB) (err error) {
			memory, err = vaultMemory(ctx, store)
			return err
		})
		if err != nil {
			return wire.VaultStatus{}, err
		}
	}
	st, err := vault.Look(files, sources, memory)
	return wireVault(st, false), err
}

// hasStore reports whether there may be a store already: none is made to look into it.
func hasStore(o Options) bool {
	_, err := os.Stat(o.Instance.StateDB())
	return o.Config.Config.Store.Postgres.Set() || err == nil
}

// VaultRequest is one change of a vault; exactly one field is set.
type VaultRequest struct {
	Passphrase  *wire.VaultPassphraseRequest
	Rotate      *wire.VaultRotateRequest
	Recover     *wire.VaultRecoverRequest
	RecoveryKey bool
}

// ChangeVault changes the vault of an instance that has no daemon. The store is
// locked meanwhile.
func ChangeVault(ctx context.Context, o Options, req VaultRequest) (out wire.VaultRecoveryKeyResult, err error) {
	if req.Recover != nil {
		if o.recovery, err = vault.NewRecoverySecret([]byte(req.Recover.RecoveryKey)); err != nil {
			return out, err
		}
		defer o.recovery.Wipe()
	}
	err = lockStore(ctx, o, toWrite, func(o Options, store *db.DB) error {
		memory, err := vaultMemory(ctx, store)
		if err != nil {
			return err
		}
		if memory.Public == "" {
			return fault.New(fault.NotFound, "there is no vault yet").WithHint("ombud up makes one")
		}
		k, done, err := openVault(ctx, store, o, true)
		if err != nil {
			return err
		}
		defer k.Close()
		a := audit.New(store, k.Vault(), "offline", o.Logger)
		if err := a.Start(ctx); err != nil {
			return err
		}
		c := vaultChange{store, a, k}
		err = c.settled(ctx, done)
		if err == nil {
			out.RecoveryKey, err = c.apply(ctx, req)
		}
		out.Vault = wireVault(k.State(), false)
		return errors.Join(err, a.Stop(context.WithoutCancel(ctx)))
	})
	return out, err
}

func (c vaultChange) apply(ctx context.Context, req VaultRequest) (string, error) {
	switch {
	case req.Passphrase != nil:
		return "", c.passphrase(ctx, *req.Passphrase)
	case req.Rotate != nil:
		return "", c.rotate(ctx, *req.Rotate)
	case req.Recover != nil:
		return "", c.recover(ctx, *req.Recover)
	}
	return c.recoveryKey(ctx)
}
