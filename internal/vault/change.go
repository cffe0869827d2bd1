package vault

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// How a change survives a crash. The envelope is replaced as a whole, after what was
// written was read back and opened with the new secret. What is new (a key file
// beside the old, a key in the keyring) is in its place before the envelope names
// it, and what is old goes after the envelope has let go of it. So at any instant
// the old secret opens, or the new one, and for a key file whichever is in place.

func busy() error {
	return fault.New(fault.Conflict, "the vault is being changed").WithHint("try again when that has ended")
}

// begin takes the right to change.
func (k *Keeper) begin() (e Envelope, master []byte, end func(), err error) {
	if !k.changing.TryLock() {
		return Envelope{}, nil, nil, busy()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.master == nil {
		k.changing.Unlock()
		return Envelope{}, nil, nil, fault.New(fault.Conflict, "the vault is closed")
	}
	master = bytes.Clone(k.master)
	return k.envelope, master, func() { clear(master); k.changing.Unlock() }, nil
}

// save puts an envelope in force: written, read back, proved by each secret it was
// given, named. opened is the wrap this process has in its hands from now on.
func (k *Keeper) save(e Envelope, opened Wrap, proofs ...proof) error {
	k.mu.Lock()
	known, fresh := k.raw, k.raw == nil && k.lost
	k.mu.Unlock()
	now, err := readEnvelopeFile(k.files.Envelope)
	switch {
	case err != nil && known == nil: // lost, or replaced because it was damaged
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case known != nil && !bytes.Equal(now, known):
		return fault.New(fault.Conflict, "the vault file %s was changed by somebody else", k.files.Envelope).
			WithHint("restart the daemon, look at ombud vault status, and try again")
	}
	e.Generation++
	raw := e.Bytes()
	err = write(k.files.Envelope, raw, fresh, func(back []byte) error {
		read, err := ParseEnvelope(back)
		if err != nil {
			return err
		}
		for _, p := range proofs {
			if err := k.prove(read, p); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Conflict, "the vault file %s was made by somebody else in this instant: %w", k.files.Envelope, err).
			WithHint("start again")
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.envelope, k.raw, k.opened, k.unsaved = e, raw, opened, false
	return nil
}

// proof is a wrap and the secret that has to open it.
type proof struct {
	wrap   string
	secret []byte
}

func (k *Keeper) prove(e Envelope, p proof) error {
	at := slices.IndexFunc(e.Wraps, func(w Wrap) bool { return w.ID == p.wrap })
	if at < 0 {
		return damaged("a wrap that was written is not in it")
	}
	master, err := e.opens(e.Wraps[at], p.secret, k.sources.Stretch)
	if err != nil {
		return fault.New(fault.Verification, "the new secret does not open what it closed: %w", err).WithHint("nothing was changed")
	}
	defer clear(master)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !bytes.Equal(master, k.master) {
		return fault.New(fault.Verification, "the new secret opens another key").WithHint("nothing was changed")
	}
	return nil
}

// SetPassphrase sets or changes the passphrase. Unless keep is set, it is what opens
// the vault from then on, and the key file goes. The keyring and the recovery key
// stay.
func (k *Keeper) SetPassphrase(ctx context.Context, secret *Secret, keep bool) error {
	if err := secret.Strong(); err != nil {
		return err
	}
	e, master, end, err := k.begin()
	if err != nil {
		return err
	}
	defer end()
	return k.toPassphrase(ctx, e, master, secret, keep)
}

func (k *Keeper) toPassphrase(ctx context.Context, e Envelope, master []byte, secret *Secret, keep bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, err := k.passphraseWrap(e, secret.bytes, master)
	if err != nil {
		return err
	}
	next := e.without(ByPassphrase).with(w)
	if !keep {
		next = next.retire()
	}
	if err := k.sources.Use.Opens(kindsOf(next)...); err != nil {
		return err
	}
	if err := k.save(next, w, proof{w.ID, secret.bytes}); err != nil {
		return err
	}
	return k.tidy()
}

func (k *Keeper) passphraseWrap(e Envelope, secret, master []byte) (Wrap, error) {
	params := recommended()
	return e.seals(Wrap{Kind: ByPassphrase, Made: k.now(), Argon2: &params}, secret, master, k.sources.Stretch)
}

// retire lets go of the key file and remembers which it was.
func (e Envelope) retire() Envelope {
	if files := e.of(ByFile); len(files) > 0 {
		last := files[len(files)-1]
		e.Retired = &Retired{Salt: last.Salt, Check: last.Check}
	}
	return e.without(ByFile)
}

func kindsOf(e Envelope) (out []Kind) {
	for _, w := range e.Wraps {
		out = append(out, w.Kind)
	}
	return out
}

// tidy removes what the envelope in force has let go of.
func (k *Keeper) tidy() error {
	k.mu.Lock()
	e := k.envelope
	k.mu.Unlock()
	if _, err := k.dropRetired(e); err != nil {
		return fault.New(fault.ClassOf(err), "the vault was changed, but the former key file is still there: %w", err).
			WithHint("remove %s by hand: it does not open the vault file any more, but copies of older ones", k.files.Key)
	}
	return nil
}

// Rotate makes a new key, salt and parameters for everything that opens the vault but
// the recovery key, which only its owner has. With to, it is that form alone that
// opens it afterwards: ByFile or ByKeyring. The master and so all data stay. secret
// is the passphrase, needed if there is one and it stays; the caller wipes it.
func (k *Keeper) Rotate(ctx context.Context, to Kind, secret *Secret) error {
	e, master, end, err := k.begin()
	if err != nil {
		return err
	}
	defer end()
	if to != "" && to != ByFile && to != ByKeyring {
		return fault.New(fault.Invalid, "%s is no form to rotate to", to).WithHint("file or keyring; for a passphrase: ombud vault passphrase")
	}
	kinds := kindsOf(e.without(ByRecovery))
	if to != "" {
		kinds = []Kind{to}
	}
	if slices.Contains(kinds, ByPassphrase) {
		if secret == nil {
			return fault.New(fault.Invalid, "the vault has a passphrase, and rotating it needs the passphrase").
				WithHint("run it in a terminal to be asked")
		}
		if err := k.knows(e, secret); err != nil {
			return err
		}
	}
	return k.rotate(ctx, e, master, secret, kinds...)
}

// knows checks a passphrase against the envelope.
func (k *Keeper) knows(e Envelope, secret *Secret) error {
	got, err := e.opens(e.of(ByPassphrase)[0], secret.bytes, k.sources.Stretch)
	clear(got)
	if errors.Is(err, errWrongKey) {
		return fault.New(fault.Permission, "the passphrase is not the one of this vault: %w", errWrongKey).WithHint("nothing was changed")
	}
	return err
}

// rotate puts new wraps of these kinds in the place of all but the recovery key's.
func (k *Keeper) rotate(ctx context.Context, e Envelope, master []byte, secret *Secret, kinds ...Kind) error {
	if err := k.sources.Use.Opens(kinds...); err != nil { // before anything is put anywhere
		return err
	}
	file, phrase := slices.Contains(kinds, ByFile), slices.Contains(kinds, ByPassphrase)
	// next is what holds in the end; bridge opens by the old key file too, until the
	// new one has its name.
	next := e.retire().without(ByKeyring, ByPassphrase)
	var proofs []proof
	var opened Wrap
	add := func(w Wrap, secret []byte) {
		next, opened, proofs = next.with(w), w, append(proofs, proof{w.ID, secret})
	}
	if phrase {
		w, err := k.passphraseWrap(e, secret.bytes, master)
		if err != nil {
			return err
		}
		add(w, secret.bytes)
	}
	if slices.Contains(kinds, ByKeyring) {
		account := k.account()
		key, err := newRingKey(ctx, k.sources.Ring, account)
		if err != nil {
			return err
		}
		defer clear(key)
		failpoint.Hit("vault.keyring")
		w, err := e.seals(Wrap{Kind: ByKeyring, Made: k.now(), Account: account}, key, master, k.sources.Stretch)
		if err != nil {
			return err
		}
		add(w, key)
	}
	bridge := next
	if file {
		key := make([]byte, KeySize)
		defer clear(key)
		random(key)
		w, err := e.seals(Wrap{Kind: ByFile, Made: k.now()}, key, master, k.sources.Stretch)
		if err != nil {
			return err
		}
		add(w, key)
		// Whatever opened until now goes on opening until the new file has its name.
		bridge = e.without(ByRecovery).with(next.Wraps...)
		if phrase { // one passphrase: the new wrap opens by the same
			bridge = e.without(ByRecovery, ByPassphrase).with(next.Wraps...)
		}
		if err := write(k.files.NextKey, key, false, nil); err != nil {
			return err
		}
	}
	if err := k.save(bridge, opened, proofs...); err != nil {
		return err
	}
	if file {
		if err := rename(k.files.NextKey, k.files.Key); err != nil {
			return err
		}
		next.Retired = nil
		next.Generation = bridge.Generation + 1
		if err := k.save(next, opened, proofs[len(proofs)-1]); err != nil {
			return err
		}
	}
	k.forget(ctx, e, next)
	return k.tidy()
}

// forget removes keys from the keyring that open nothing any more. One that stays
// is no harm: it is a key to nothing.
func (k *Keeper) forget(ctx context.Context, was, is Envelope) {
	for _, w := range was.of(ByKeyring) {
		if k.sources.Ring == nil || slices.ContainsFunc(is.Wraps, func(o Wrap) bool { return o.ID == w.ID }) {
			continue
		}
		short, cancel := context.WithTimeout(ctx, ringLimit)
		_ = k.sources.Ring.Delete(short, w.Account) // see above
		cancel()
	}
}

// NewRecoveryKey makes a recovery key in the place of the one before and returns how
// it is written down: nothing keeps it.
func (k *Keeper) NewRecoveryKey() (shown string, err error) {
	e, master, end, err := k.begin()
	if err != nil {
		return "", err
	}
	defer end()
	key, shown := newRecoveryKey()
	defer clear(key)
	w, err := e.seals(Wrap{Kind: ByRecovery, Made: k.now()}, key, master, k.sources.Stretch)
	if err != nil {
		return "", err
	}
	// Proved by what the person will type.
	typed, err := NewRecoverySecret([]byte(shown))
	if err != nil {
		return "", err
	}
	defer typed.Wipe()
	k.mu.Lock()
	opened := k.opened
	k.mu.Unlock()
	if err := k.save(e.without(ByRecovery).with(w), opened, proof{w.ID, typed.bytes}); err != nil {
		return "", err
	}
	return shown, nil
}

// Recover gives the vault a new passphrase, or with nil a new key file, if recovery
// is its recovery key. Whatever else opened it does not any more.
func (k *Keeper) Recover(ctx context.Context, recovery, passphrase *Secret) error {
	if passphrase != nil {
		if err := passphrase.Strong(); err != nil {
			return err
		}
	}
	e, master, end, err := k.begin()
	if err != nil {
		return err
	}
	defer end()
	check := &Keeper{envelope: e, sources: Sources{Recovery: recovery, Stretch: k.sources.Stretch}}
	if err := check.byRecovery(); err != nil {
		return err
	}
	defer check.Close()
	if passphrase == nil {
		return k.rotate(ctx, e, master, nil, ByFile)
	}
	was := e
	if err := k.toPassphrase(ctx, e.without(ByKeyring), master, passphrase, false); err != nil {
		return err
	}
	k.forget(ctx, was, Envelope{})
	return nil
}

// Given returns the passphrase that is found without asking a person, nil if none is.
func (k *Keeper) Given(ctx context.Context) (*Secret, error) {
	s := k.sources
	s.Ask = nil
	secret, _, _, err := s.passphrase(ctx, Question{})
	return secret, err
}
