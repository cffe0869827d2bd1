package vault

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Kind is what opens a wrap.
type Kind string

// The kinds. Their text is in the file: never rename one.
const (
	ByFile       Kind = "file"       // a key file beside the store
	ByPassphrase Kind = "passphrase" // Argon2id of a passphrase
	ByRecovery   Kind = "recovery"   // a key a person keeps on paper
	ByKeyring    Kind = "keyring"    // a key the system's keyring keeps
)

// Envelope is what stands between what a person has and the master key: the master,
// wrapped once for everything that opens it. It holds nothing that opens by itself.
type Envelope struct {
	Vault      string   `json:"vault"`             // names this vault, for keyrings
	Generation uint64   `json:"generation"`        // one more with every change
	Public     string   `json:"public"`            // the public key of the master, in hex
	Wraps      []Wrap   `json:"wraps"`             // at least one
	Retired    *Retired `json:"retired,omitempty"` // the key file that was given up and has to go

	// WasKeyFile: the master was a key file without an envelope once, so copies of
	// that file hold the master itself.
	WasKeyFile bool `json:"was_key_file,omitempty"`
}

// Wrap is the master under one key.
type Wrap struct {
	ID      string  `json:"id"`
	Kind    Kind    `json:"kind"`
	Made    int64   `json:"made"`               // Unix µs
	Argon2  *Argon2 `json:"argon2id,omitempty"` // of a passphrase
	Account string  `json:"account,omitempty"`  // in the keyring
	Salt    []byte  `json:"salt"`
	Check   []byte  `json:"check"` // tells a wrong key from a damaged wrap
	Box     []byte  `json:"box"`   // nonce and sealed master
}

// Retired tells a key file that opens nothing any more from one that a person put
// there: only the former is removed.
type Retired struct {
	Salt  []byte `json:"salt"`
	Check []byte `json:"check"`
}

// envelopeMagic begins the file, before the version and the digest of what follows.
// The digest finds what was damaged; against somebody who writes the file, the
// wraps protect themselves.
const (
	envelopeMagic   = "ombud-vault"
	envelopeVersion = 1
	maxEnvelope     = 64 << 10
	maxWraps        = 16
)

// errEnvelopeVersion is in the chain of the error about a file from the future.
var errEnvelopeVersion = errors.New("unknown version")

// Bytes writes the envelope as ParseEnvelope reads it.
func (e Envelope) Bytes() []byte {
	body, err := json.MarshalIndent(e, "", " ")
	if err != nil {
		panic("vault: encode envelope: " + err.Error()) // plain fields
	}
	body = append(body, '\n')
	sum := sha256.Sum256(body)
	return append([]byte(envelopeMagic+" "+strconv.Itoa(envelopeVersion)+" "+hex.EncodeToString(sum[:])+"\n"), body...)
}

// ParseEnvelope reads an envelope. What is torn, damaged or out of bounds is
// fault.Verification; a version it does not know is fault.Config.
func ParseEnvelope(data []byte) (Envelope, error) {
	var e Envelope
	if len(data) > maxEnvelope {
		return e, damaged("it has more than %d bytes", maxEnvelope)
	}
	head, body, ok := bytes.Cut(data, []byte("\n"))
	parts := strings.Split(string(head), " ")
	if !ok || len(parts) != 3 || parts[0] != envelopeMagic {
		return e, damaged("it does not begin like one")
	}
	if parts[1] != strconv.Itoa(envelopeVersion) {
		if n, err := strconv.Atoi(parts[1]); err != nil || n <= envelopeVersion || strconv.Itoa(n) != parts[1] {
			return e, damaged("it does not begin like one")
		}
		return e, fault.New(fault.Config, "the vault file has version %s, this ombud knows %d: %w", parts[1], envelopeVersion, errEnvelopeVersion).
			WithHint("a newer ombud wrote it: use that one")
	}
	if sum := sha256.Sum256(body); parts[2] != hex.EncodeToString(sum[:]) {
		return e, damaged("its checksum does not hold")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return Envelope{}, damaged("its content is not that of one")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Envelope{}, damaged("something follows its end")
	}
	if err := e.sane(); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// sane keeps what a changed file says within bounds, before anything is computed
// from it.
func (e Envelope) sane() error {
	public, err := hex.DecodeString(e.Public)
	switch {
	case err != nil || len(public) != 32 || hex.EncodeToString(public) != e.Public:
		return damaged("its public key is none")
	case !isID(e.Vault):
		return damaged("its name is none")
	case e.Generation == 0 || e.Generation > 1<<53:
		return damaged("its generation is out of bounds")
	case len(e.Wraps) == 0 || len(e.Wraps) > maxWraps:
		return damaged("it has %d wraps", len(e.Wraps))
	case e.Retired != nil && (len(e.Retired.Salt) != saltSize || len(e.Retired.Check) != checkSize):
		return damaged("what it says of a former key file is out of bounds")
	}
	for i, w := range e.Wraps {
		if err := w.sane(); err != nil {
			return err
		}
		if slices.ContainsFunc(e.Wraps[:i], func(o Wrap) bool { return o.ID == w.ID }) {
			return damaged("two of its wraps have one name")
		}
	}
	return nil
}

func (w Wrap) sane() error {
	switch {
	case !isID(w.ID) || w.Made < 0:
		return damaged("one of its wraps has no name or no time")
	case len(w.Salt) != saltSize || len(w.Check) != checkSize || len(w.Box) != boxSize:
		return damaged("the parts of its wrap %s do not have their lengths", w.ID)
	case (w.Kind == ByPassphrase) != (w.Argon2 != nil):
		return damaged("its wrap %s has parameters of another kind", w.ID)
	case (w.Kind == ByKeyring) != (w.Account != "") || len(w.Account) > 128:
		return damaged("its wrap %s names an account and is no keyring's, or none and is", w.ID)
	}
	switch w.Kind {
	case ByFile, ByRecovery, ByKeyring:
		return nil
	case ByPassphrase:
		return w.Argon2.sane()
	}
	return damaged("its wrap %s is of an unknown kind", w.ID)
}

func damaged(format string, args ...any) error {
	return fault.New(fault.Verification, "the vault file is damaged: "+format, args...).
		WithHint("the store keeps a copy: ombud up puts it in place; else restore the file from a backup")
}

// newID returns 16 hex digits.
func newID() string {
	var b [8]byte
	random(b[:])
	return hex.EncodeToString(b[:])
}

func isID(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 8 && strings.ToLower(s) == s
}

// random fills b. Without randomness there is nothing a vault can do.
func random(b []byte) {
	if _, err := rand.Read(b); err != nil {
		panic("vault: no system randomness: " + err.Error())
	}
}

// of returns the wraps of a kind.
func (e Envelope) of(kind Kind) (out []Wrap) {
	for _, w := range e.Wraps {
		if w.Kind == kind {
			out = append(out, w)
		}
	}
	return out
}

// Has reports whether something of that kind opens it.
func (e Envelope) Has(kind Kind) bool { return len(e.of(kind)) > 0 }

// without returns the envelope less the wraps of some kinds.
func (e Envelope) without(kinds ...Kind) Envelope {
	e.Wraps = slices.DeleteFunc(slices.Clone(e.Wraps), func(w Wrap) bool { return slices.Contains(kinds, w.Kind) })
	return e
}

// with returns the envelope and these wraps.
func (e Envelope) with(wraps ...Wrap) Envelope {
	e.Wraps = append(slices.Clone(e.Wraps), wraps...)
	return e
}

// ReadEnvelope reads the vault file. fs.ErrNotExist is in the chain if there is none.
func ReadEnvelope(path string) (Envelope, error) {
	data, err := readEnvelopeFile(path)
	if err != nil {
		return Envelope{}, err
	}
	return ParseEnvelope(data)
}

// readEnvelopeFile takes what is a file and not too long. Its mode is not judged:
// nothing in it opens by itself.
func readEnvelopeFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, keyFault("look at vault file %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil, fault.New(fault.Config, "vault file %s is a link", path).WithHint("put the file itself there: it is replaced at every change")
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Config, "vault file %s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, keyFault("open vault file %s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnvelope+1))
	if err != nil {
		return nil, keyFault("read vault file %s: %w", path, err)
	}
	return data, nil
}
