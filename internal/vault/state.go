package vault

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ombud-run/ombud/internal/fault"
)

// State is what can be told of a vault. No secret is in it.
type State struct {
	Vault       string
	Fingerprint string // of the public key
	Generation  uint64
	Use         Source // as configured
	OpenedBy    Kind   // "" if it is not open
	From        string // the source that opened it
	Wraps       []Wrap // without what they wrap
	Notes       []string
	Exposed     []string // what this does not protect against
}

// State tells about an open vault.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := stateOf(k.envelope, k.sources.Use)
	st.OpenedBy, st.From, st.Notes = k.opened.Kind, k.from, append([]string(nil), k.notes...)
	return st
}

// Look tells about a vault without opening it: by its file or, where that is lost or
// torn, by the copy the store keeps. Without both but with a key file, it is a vault
// from before there were such files. fs.ErrNotExist is in the chain of the error if
// there is none.
func Look(f Files, s Sources, m Memory) (State, error) {
	if s.Use == "" {
		s.Use = FromAuto
	}
	k := &Keeper{files: f, sources: s}
	found, err := k.find(m)
	if err != nil {
		return State{Use: s.Use}, err
	}
	if found {
		st := stateOf(k.envelope, s.Use)
		st.Notes = k.notes
		return st, nil
	}
	if missing(f.Key) {
		return State{Use: s.Use}, fault.New(fault.NotFound, "there is no vault file at %s: %w", f.Envelope, fs.ErrNotExist).
			WithHint("the first start makes one")
	}
	st := stateOf(Envelope{Wraps: []Wrap{{Kind: ByFile}}, WasKeyFile: true}, s.Use)
	st.Notes = []string{"there is no vault file; the next start makes one around the key file"}
	return st, CheckKeyFile(f.Key)
}

func stateOf(e Envelope, use Source) State {
	st := State{Vault: e.Vault, Generation: e.Generation, Use: use, Exposed: exposed(e, use)}
	if public, err := e.PublicKey(); err == nil {
		st.Fingerprint = Keys{Public: public}.Fingerprint()
	}
	for _, w := range e.Wraps {
		w.Salt, w.Check, w.Box = nil, nil, nil
		st.Wraps = append(st.Wraps, w)
	}
	return st
}

// exposed is what the present form leaves open, the weakest first.
func exposed(e Envelope, use Source) (out []string) {
	if e.Has(ByFile) {
		out = append(out, "a copied account: the key file protects a store that is copied without it, not against who reads your files")
	}
	if e.Has(ByKeyring) {
		out = append(out, "programs of your session: while the keyring is unlocked, each of them can ask it for the key")
	}
	if e.Has(ByPassphrase) {
		out = append(out, "a passphrase that can be guessed: who has the vault file, or the store with its copy of it, can try them, slowly")
		if use == FromEnv {
			out = append(out, "programs of your user: they can read the variable in the environment of the daemon")
		}
	}
	if e.WasKeyFile {
		out = append(out, "copies of the first key file: it was the master key itself, so a copy made then opens the store whatever is changed here")
	}
	return append(out,
		"old copies of the vault file with the secret of their time: a change of the secret does not seal the data anew",
		"root, and what reads the memory of the daemon while it runs")
}

// String tells the parameters for people.
func (a Argon2) String() string {
	return fmt.Sprintf("Argon2id v%#x, %d MiB, %d passes, %d threads", a.Version, a.Memory>>10, a.Time, a.Threads)
}

// PublicKeyOf returns the public key of a vault without opening it. fs.ErrNotExist is
// in the chain of the error if there is no vault.
func PublicKeyOf(f Files) (ed25519.PublicKey, error) {
	e, err := ReadEnvelope(f.Envelope)
	if err == nil {
		return e.PublicKey()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	master, err := readKeyFile(f.Key)
	if err != nil {
		return nil, err
	}
	defer clear(master)
	v, err := New(master)
	if err != nil {
		return nil, err
	}
	return v.PublicKey(), nil
}
