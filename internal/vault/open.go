package vault

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
)

// Files are the places of a vault on disk.
type Files struct {
	Envelope string
	Key      string // the key file, if there is one
	NextKey  string // a key file that is about to take its place
}

// Memory is what the store remembers of its vault.
type Memory struct {
	Public   string // the public key it was sealed with, in hex; "" for a new store
	Envelope []byte // a copy of the envelope; empty if it has none
}

// Keeper holds an open vault and changes what opens it. It is safe for concurrent
// use; of two changes at the same time one is refused.
type Keeper struct {
	files   Files
	sources Sources
	vault   *Vault

	changing sync.Mutex // held by a change: TryLock only

	mu       sync.Mutex
	master   []byte
	envelope Envelope
	raw      []byte // the file as it is known to be, nil if it is not there or another
	opened   Wrap
	from     string
	notes    []string
	made     bool
	unsaved  bool // the envelope in memory is to be written
	lost     bool // there was no file
}

// Open opens the vault of a store and repairs nothing yet: see Settle. With create
// it makes one for a store that has none. The errors:
//
//	Permission    the secret is wrong or was not found, or others can read it
//	Verification  a file is damaged, or of another store
//	Config        a file of a newer ombud, or one that cannot be used
//	Unavailable   a disk or keyring does not answer
func Open(ctx context.Context, f Files, s Sources, m Memory, create bool) (*Keeper, error) {
	k := &Keeper{files: f, sources: s}
	if k.sources.Stretch == nil {
		k.sources.Stretch = Argon2id
	}
	if k.sources.Use == "" {
		k.sources.Use = FromAuto
	}
	found, err := k.find(m)
	if err != nil {
		return nil, err
	}
	switch {
	case found:
		err = k.unlock(ctx)
	case !missing(f.Key):
		err = k.adopt(m)
	case m.Public != "":
		return nil, fault.New(fault.Verification, "the key of this store is not at %s", f.Key).
			WithHint("put the key file and the vault file back; without them nothing in the store can be read")
	case !create:
		return nil, fault.New(fault.NotFound, "there is no vault yet").WithHint("ombud up makes one")
	default:
		if err = k.create(ctx); errors.Is(err, fs.ErrExist) {
			return Open(ctx, f, s, m, false) // somebody made it in this instant
		}
	}
	if err != nil {
		return nil, err
	}
	// What opened it is not needed again, nor are they a person's to wipe.
	k.sources.Handed, k.sources.Recovery, k.sources.Variable = nil, nil, ""
	return k, nil
}

// find settles which envelope holds: the file, or the store's copy where the file
// is lost, torn, of another store, or older. false: there is none.
func (k *Keeper) find(m Memory) (bool, error) {
	var copied Envelope
	copyErr := fs.ErrNotExist
	if len(m.Envelope) > 0 {
		copied, copyErr = ParseEnvelope(m.Envelope)
	}
	if copyErr == nil && m.Public != "" && copied.Public != m.Public {
		copyErr = damaged("the store's copy is of another store")
	}
	raw, err := readEnvelopeFile(k.files.Envelope)
	var own Envelope
	if err == nil {
		own, err = ParseEnvelope(raw)
	}
	switch {
	case errors.Is(err, errEnvelopeVersion):
		return false, err
	case err == nil && m.Public != "" && own.Public != m.Public:
		// Not mended from the copy: it may be all that opens another store.
		return false, fault.New(fault.Verification, "the vault file %s is not the one of this store", k.files.Envelope).
			WithHint("move it away, as it may open another store; ombud up then takes the copy this store keeps")
	case err == nil && copyErr == nil && copied.Vault == own.Vault && copied.Generation > own.Generation:
		k.note("the vault file %s is older than the store's copy, which is used", k.files.Envelope)
		k.envelope, k.unsaved = copied, true
		return true, nil
	case err == nil:
		k.envelope, k.raw = own, raw
		return true, nil
	}
	if lost := errors.Is(err, fs.ErrNotExist); copyErr != nil {
		if lost && errors.Is(copyErr, fs.ErrNotExist) {
			return false, nil
		}
		if lost {
			return false, copyErr
		}
		return false, err
	}
	if k.lost = errors.Is(err, fs.ErrNotExist); k.lost {
		k.note("the vault file %s was lost; the store's copy is used", k.files.Envelope)
	} else {
		k.note("%s; the store's copy is used", err)
	}
	k.envelope, k.unsaved = copied, true
	return true, nil
}

func (k *Keeper) note(format string, args ...any) {
	k.notes = append(k.notes, fmt.Sprintf(format, args...))
}

// unlock opens the envelope with the first secret there is.
func (k *Keeper) unlock(ctx context.Context) error {
	s, e := k.sources, k.envelope
	if s.Recovery != nil {
		return k.byRecovery()
	}
	var tried []string
	if s.Use.accepts(ByFile) && e.Has(ByFile) {
		if !missing(k.files.Key) {
			return k.byFile()
		}
		tried = append(tried, "no key file "+k.files.Key)
	}
	if s.Use.accepts(ByKeyring) && e.Has(ByKeyring) {
		err := k.byKeyring(ctx)
		if err == nil || s.Use == FromKeyring || !(fault.Is(err, fault.Unavailable) || fault.Is(err, fault.NotFound)) {
			return err
		}
		tried = append(tried, err.Error())
		k.note("%v", err)
	}
	if s.Use.accepts(ByPassphrase) && e.Has(ByPassphrase) {
		more, err := k.byPassphrase(ctx)
		if err != nil || k.vault != nil {
			return err
		}
		tried = append(tried, more...)
	}
	if len(tried) == 0 {
		tried = append(tried, "vault.source is "+string(s.Use))
	}
	return s.locked(k.files, e, tried)
}

func (k *Keeper) byFile() error {
	path := k.files.Key
	key, err := readKeyFile(path)
	if err != nil {
		return err
	}
	defer clear(key)
	for _, w := range k.envelope.of(ByFile) {
		master, err := k.envelope.opens(w, key, k.sources.Stretch)
		if err == nil {
			return k.hold(master, w, "the key file "+path)
		}
		if !errors.Is(err, errWrongKey) {
			return err
		}
	}
	return fault.New(fault.Verification, "the key at %s is not the one this store was sealed with", path).
		WithHint("put the right key file there; this one opens another store")
}

func (k *Keeper) byKeyring(ctx context.Context) (err error) {
	for _, w := range k.envelope.of(ByKeyring) {
		var key, master []byte
		if key, err = ringKey(ctx, k.sources.Ring, w.Account); err != nil {
			continue
		}
		master, err = k.envelope.opens(w, key, k.sources.Stretch)
		clear(key)
		if err == nil {
			return k.hold(master, w, "the keyring ("+w.Account+")")
		}
	}
	return err
}

// byPassphrase tries the one passphrase that was found; a person may try again.
func (k *Keeper) byPassphrase(ctx context.Context) (tried []string, err error) {
	w := k.envelope.of(ByPassphrase)[0]
	for n := range tries {
		secret, asked, tried, err := k.sources.passphrase(ctx, Question{Again: n > 0})
		if err != nil || secret == nil {
			return tried, err
		}
		master, err := k.envelope.opens(w, secret.bytes, k.sources.Stretch)
		from := secret.from
		secret.Wipe()
		if err == nil {
			return nil, k.hold(master, w, from)
		}
		if !errors.Is(err, errWrongKey) {
			return nil, err
		}
		if !asked || n == tries-1 {
			return nil, fault.New(fault.Permission, "the passphrase (%s) is not the one of this vault: %w", from, errWrongKey).
				WithHint("a forgotten one: ombud vault recover, with the recovery key. If it is right, the vault file was changed: ombud vault status")
		}
	}
	return nil, fault.New(fault.Internal, "no try was the last")
}

func (k *Keeper) byRecovery() error {
	wraps := k.envelope.of(ByRecovery)
	if len(wraps) == 0 {
		return fault.New(fault.Conflict, "this vault has no recovery key").
			WithHint("ombud vault recovery-key makes one, while the vault can still be opened otherwise")
	}
	master, err := k.envelope.opens(wraps[0], k.sources.Recovery.bytes, k.sources.Stretch)
	if errors.Is(err, errWrongKey) {
		return fault.New(fault.Permission, "this is not the recovery key of this vault: %w", errWrongKey).
			WithHint("each one made takes the place of the one before; is it that of another instance?")
	}
	if err != nil {
		return err
	}
	return k.hold(master, wraps[0], "the recovery key")
}

// hold keeps the master if it is the one the envelope says.
func (k *Keeper) hold(master []byte, w Wrap, from string) error {
	v, err := New(master)
	if err != nil {
		return err
	}
	if publicOf(v) != k.envelope.Public {
		clear(master)
		return damaged("the master key in it is not that of its public key")
	}
	k.vault, k.master, k.opened, k.from = v, master, w, from
	return nil
}

func publicOf(v *Vault) string { return hex.EncodeToString(v.PublicKey()) }

// adopt takes a key file without an envelope for what it was before there were
// envelopes: the master itself. The envelope made for it wraps that master under a
// key derived from the same file.
func (k *Keeper) adopt(m Memory) error {
	if !k.sources.Use.accepts(ByFile) {
		return fault.New(fault.Config, "there is a key file at %s, but vault.source is %s", k.files.Key, k.sources.Use).
			WithHint("set vault.source to auto, start, and then give it another form: ombud vault passphrase, ombud vault rotate --to keyring")
	}
	master, err := readKeyFile(k.files.Key)
	if err != nil {
		return err
	}
	v, err := New(master)
	if err != nil {
		return err
	}
	if m.Public != "" && publicOf(v) != m.Public {
		clear(master)
		return fault.New(fault.Verification, "the key at %s is not the one this store was sealed with, or the vault file %s that belongs to it is lost",
			k.files.Key, k.files.Envelope).WithHint("put the right key file and vault file there")
	}
	e := Envelope{Vault: newID(), Generation: 1, Public: publicOf(v), WasKeyFile: true}
	w, err := e.seals(Wrap{Kind: ByFile, Made: k.now()}, master, master, k.sources.Stretch)
	if err != nil {
		return err
	}
	k.envelope, k.unsaved, k.lost = e.with(w), true, true
	return k.hold(master, w, "the key file "+k.files.Key)
}

// create makes a vault. The secret is in its place before the envelope: a crash in
// between leaves a key file, which the next start adopts, or nothing that matters.
// fs.ErrExist is in the chain if somebody else made it meanwhile.
func (k *Keeper) create(ctx context.Context) error {
	master := make([]byte, KeySize)
	random(master)
	v, err := New(master)
	if err != nil {
		return err
	}
	k.envelope = Envelope{Vault: newID(), Generation: 1, Public: publicOf(v)}
	w := Wrap{Kind: k.sources.form(), Made: k.now()}
	var secret []byte
	var from string
	switch w.Kind {
	case ByFile:
		from = "the key file " + k.files.Key
		secret = make([]byte, KeySize)
		random(secret)
		err = write(k.files.Key, secret, true, nil)
	case ByKeyring:
		w.Account = k.account()
		from = "the keyring (" + w.Account + ")"
		secret, err = newRingKey(ctx, k.sources.Ring, w.Account)
	case ByPassphrase, ByRecovery:
		secret, from, err = k.newPassphrase(ctx)
		params := recommended()
		w.Argon2 = &params
	}
	defer func() { clear(secret) }()
	if err != nil {
		return err
	}
	if w, err = k.envelope.seals(w, secret, master, k.sources.Stretch); err != nil {
		return err
	}
	k.envelope = k.envelope.with(w)
	raw := k.envelope.Bytes()
	if err := write(k.files.Envelope, raw, true, nil); err != nil {
		return err
	}
	k.raw, k.made = raw, true
	return k.hold(master, w, from)
}

func (k *Keeper) newPassphrase(ctx context.Context) ([]byte, string, error) {
	secret, _, tried, err := k.sources.passphrase(ctx, Question{New: true})
	if err != nil {
		return nil, "", err
	}
	if secret == nil {
		return nil, "", fault.New(fault.Permission, "a new vault needs a passphrase, and none was found: %s", strings.Join(tried, "; ")).
			WithHint("run it in a terminal to be asked, or set vault.passphrase_file")
	}
	if err := secret.Strong(); err != nil {
		secret.Wipe()
		return nil, "", err
	}
	return secret.bytes, secret.from, nil
}

// account names a key in the keyring: two vaults of one instance name, or the old
// and the new key of a rotation, do not share one.
func (k *Keeper) account() string {
	name := k.sources.Name
	if name == "" {
		name = "default"
	}
	return name + "/" + newID()
}

func (k *Keeper) now() int64 {
	if k.sources.Now == nil {
		return 0
	}
	return k.sources.Now()
}

// Vault returns what was opened.
func (k *Keeper) Vault() *Vault { return k.vault }

// Public returns its public key in hex, as the store remembers it.
func (k *Keeper) Public() string { return publicOf(k.vault) }

// Copy returns the envelope for the store to keep.
func (k *Keeper) Copy() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.envelope.Bytes()
}

// Behind reports whether what the store keeps is not the envelope in force.
func (k *Keeper) Behind(m Memory) bool { return !bytes.Equal(m.Envelope, k.Copy()) }

// Sweep removes files that a crash left without a name of their own. It is for who
// holds the instance: those of another process at work would go too.
func (k *Keeper) Sweep() { sweep(filepath.Dir(k.files.Envelope)) }

// Settle writes what Open found missing, and brings to its end a change that a
// crash cut off. It returns what was done, for the log and the record.
func (k *Keeper) Settle() (done []string, err error) {
	if !k.changing.TryLock() {
		return nil, busy()
	}
	defer k.changing.Unlock()
	k.mu.Lock()
	done = slices.Clone(k.notes)
	made, unsaved, e, opened := k.made, k.unsaved, k.envelope, k.opened
	k.mu.Unlock()
	if made {
		done = append(done, "made a vault, opened by "+k.from)
	}
	// Of the keys of a rotation that was cut off, the one that opens stays. Only one
	// that was really used is known to open.
	if opened.Kind == ByFile && len(e.of(ByFile)) > 1 && missing(k.files.NextKey) {
		e, unsaved = e.without(ByFile).with(opened), true
		done = append(done, "a rotation that was cut off was settled: the key file opens, as before or after it")
	}
	if unsaved {
		if err := k.save(e, opened); err != nil {
			return done, err
		}
		if !made {
			done = append(done, "wrote the vault file "+k.files.Envelope)
		}
	}
	if cut, err := k.dropNext(); err != nil {
		return done, err
	} else if cut {
		done = append(done, "a rotation that was cut off was taken back")
	}
	k.mu.Lock()
	e = k.envelope
	k.mu.Unlock()
	gone, err := k.dropRetired(e)
	if gone {
		done = append(done, "removed the key file "+k.files.Key+", which opens nothing any more")
	}
	return done, err
}

// dropNext takes back a rotation that was cut off before its key file had its name:
// first the envelope lets go of that file, then the file goes.
func (k *Keeper) dropNext() (bool, error) {
	if missing(k.files.NextKey) {
		return false, nil
	}
	k.mu.Lock()
	e, opened := k.envelope, k.opened
	k.mu.Unlock()
	if key, err := readKeyFile(k.files.NextKey); err == nil {
		defer clear(key)
		for _, w := range e.of(ByFile) {
			own, err := kekOf(w, key, k.sources.Stretch)
			if err != nil {
				return false, err
			}
			named := bytes.Equal(own.check, w.Check)
			own.wipe()
			if !named {
				continue
			}
			e.Wraps = slices.DeleteFunc(slices.Clone(e.Wraps), func(o Wrap) bool { return o.ID == w.ID })
			if err := k.save(e, opened); err != nil {
				return false, err
			}
		}
	}
	return true, shred(k.files.NextKey)
}

// dropRetired removes a key file that was given up, if it is that one.
func (k *Keeper) dropRetired(e Envelope) (bool, error) {
	if e.Retired == nil || e.Has(ByFile) || missing(k.files.Key) {
		return false, nil
	}
	key, err := readKeyFile(k.files.Key)
	if err != nil {
		return false, nil //nolint:nilerr // it is no key file of ours, so it is not ours to remove
	}
	defer clear(key)
	own, err := kekOf(Wrap{Kind: ByFile, Salt: e.Retired.Salt}, key, k.sources.Stretch)
	if err != nil {
		return false, err
	}
	defer own.wipe()
	if !bytes.Equal(own.check, e.Retired.Check) {
		return false, nil
	}
	return true, shred(k.files.Key)
}

// Close wipes the master key. The vault itself holds what is derived from it.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.master)
	k.master = nil
}

// PublicKey is known without a secret.
func (e Envelope) PublicKey() (ed25519.PublicKey, error) {
	raw, err := hex.DecodeString(e.Public)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, damaged("its public key is none")
	}
	return raw, nil
}
