package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Source says where the secret that opens a vault is looked for.
type Source string

// The sources. Auto takes the first of the others that is there, in this order:
// the key file, the keyring, then for a passphrase a systemd credential, the
// passphrase file, the variable, and a person.
const (
	FromAuto       Source = "auto"
	FromFile       Source = "file"
	FromPassphrase Source = "passphrase" // a passphrase file, else a person
	FromEnv        Source = "env"
	FromSystemd    Source = "systemd"
	FromKeyring    Source = "keyring"
)

// credentialName is the file of systemd's LoadCredential=.
const credentialName = "ombud-passphrase"

// tries is how often a person may mistype.
const tries = 3

// Question is what a person is asked for.
type Question struct {
	New   bool // for a vault that is made: to be typed twice
	Again bool // the last answer was wrong
}

// Sources is everything a vault can be opened with.
type Sources struct {
	Use            Source
	PassphraseFile string                                           // "" for none
	Variable       string                                           // the passphrase in OMBUD_PASSPHRASE, "" if it is not set
	Credentials    string                                           // systemd's directory of credentials, "" if there is none
	Handed         *Secret                                          // a passphrase that was typed elsewhere, nil if none was
	Ask            func(context.Context, Question) (*Secret, error) // asks a person; nil if there is none
	Ring           Ring                                             // nil if there is none
	Name           string                                           // of the instance, for accounts in the keyring
	Recovery       *Secret                                          // opens by the recovery key and nothing else, if it is set
	Stretch        Stretch                                          // Argon2id
	Now            func() int64                                     // Unix µs
}

// passphrase returns the first passphrase there is. tried says what was looked at
// in vain; asked tells that a person typed it just now.
func (s Sources) passphrase(ctx context.Context, q Question) (secret *Secret, asked bool, tried []string, err error) {
	first := s.Use == FromAuto
	if s.Handed != nil && (first || s.Use == FromPassphrase || s.Use == FromEnv) {
		return &Secret{bytes: s.Handed.Reveal(), from: s.Handed.from}, false, nil, nil
	}
	if first || s.Use == FromSystemd {
		path := filepath.Join(s.Credentials, credentialName)
		switch {
		case s.Credentials == "":
			tried = append(tried, "no systemd credentials ($CREDENTIALS_DIRECTORY is not set)")
		case first && missing(path):
			tried = append(tried, "no systemd credential "+path)
		default:
			secret, err := readCredential(path)
			return secret, false, tried, err
		}
	}
	if first || s.Use == FromPassphrase {
		if s.PassphraseFile != "" {
			secret, err := ReadPassphraseFile(s.PassphraseFile)
			return secret, false, tried, err
		}
		tried = append(tried, "no vault.passphrase_file")
	}
	if first || s.Use == FromEnv {
		if s.Variable != "" {
			secret, err := NewPassphrase("the variable OMBUD_PASSPHRASE", []byte(s.Variable))
			return secret, false, tried, err
		}
		tried = append(tried, "no OMBUD_PASSPHRASE")
	}
	if first || s.Use == FromPassphrase {
		if s.Ask != nil {
			secret, err := s.Ask(ctx, q)
			return secret, true, tried, err
		}
		tried = append(tried, "nobody to ask (no terminal)")
	}
	return nil, false, tried, nil
}

// given reports whether a passphrase can be had without asking a person.
func (s Sources) given() bool {
	switch s.Use {
	case FromAuto:
		return s.Handed != nil || s.PassphraseFile != "" || s.Variable != "" || s.Credentials != "" && !missing(filepath.Join(s.Credentials, credentialName))
	case FromPassphrase:
		return s.Handed != nil || s.PassphraseFile != ""
	case FromEnv, FromSystemd:
		return true // or it is an error, which no question mends
	case FromFile, FromKeyring:
	}
	return false
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// form is the kind of wrap a new vault is made with.
func (s Sources) form() Kind {
	switch s.Use {
	case FromFile:
		return ByFile
	case FromKeyring:
		return ByKeyring
	case FromPassphrase, FromEnv, FromSystemd:
		return ByPassphrase
	case FromAuto:
		if s.given() {
			return ByPassphrase
		}
	}
	return ByFile
}

// accepts reports whether a source can open a kind of wrap.
func (s Source) accepts(kind Kind) bool {
	switch s {
	case FromAuto:
		return kind != ByRecovery
	case FromFile:
		return kind == ByFile
	case FromKeyring:
		return kind == ByKeyring
	case FromPassphrase, FromEnv, FromSystemd:
		return kind == ByPassphrase
	}
	return false
}

// Opens refuses a change after which this source could not open the vault.
func (s Source) Opens(kinds ...Kind) error {
	if slices.ContainsFunc(kinds, s.accepts) {
		return nil
	}
	return fault.New(fault.Conflict, "vault.source is %s, and nothing that is left would open by it", s).
		WithHint("set vault.source to auto, or to what it shall be, first")
}

// NeedsPerson says whether a daemon with these sources will need a passphrase only
// a person can give, and whether that will be a new one. It opens nothing. store
// tells whether there is a store already.
func NeedsPerson(f Files, s Sources, store bool) (needs, fresh bool) {
	if s.given() {
		return false, false
	}
	e, err := ReadEnvelope(f.Envelope)
	switch {
	case err == nil:
		if !s.Use.accepts(ByPassphrase) || !e.Has(ByPassphrase) {
			return false, false
		}
		return !(s.Use == FromAuto && (e.Has(ByFile) && !missing(f.Key) || e.Has(ByKeyring) && s.Ring != nil)), false
	case !missing(f.Key):
		return false, false
	case store: // its copy of the vault file tells; a passphrase may be what opens it
		return s.Use == FromPassphrase || s.Use == FromAuto, false
	}
	return s.Use == FromPassphrase, true
}

// locked is the error of a vault nothing opened.
func (s Sources) locked(f Files, e Envelope, tried []string) error {
	var kinds []string
	for _, w := range e.Wraps {
		kinds = append(kinds, string(w.Kind))
	}
	if e.Has(ByFile) && !e.Has(ByPassphrase) && !e.Has(ByKeyring) {
		err := fault.New(fault.Verification, "the key of this store is not at %s", f.Key)
		if e.Has(ByRecovery) {
			return err.WithHint("put the key file back, or open it with the recovery key: ombud vault recover")
		}
		return err.WithHint("put the key file back; without it nothing in the store can be read")
	}
	err := fault.New(fault.Permission, "the vault is closed by %s, and nothing to open it was found: %s",
		strings.Join(kinds, " and "), strings.Join(tried, "; "))
	if e.Has(ByPassphrase) {
		return err.WithHint("run it in a terminal to be asked, or set vault.passphrase_file; a lost passphrase: ombud vault recover")
	}
	return err.WithHint("ombud vault recover opens it with the recovery key, if you made one")
}

// Format hides the variable from every verb.
func (s Sources) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "sources %s", s.Use) }
