package backup

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// Format is the version of the file's form.
const Format = "ombud.backup.v1"

// Names of members.
const (
	partReadme    = "README"
	partStore     = "store.db"
	partTables    = "tables.json"
	partRows      = "rows/"
	partConfig    = "config.yaml"
	partKey       = "key/"
	partManifest  = "manifest.json"
	partSignature = "manifest.sig"
)

// maxSmall bounds members that are held in memory.
const maxSmall = 64 << 20

// Manifest says what a backup is. Times are Unix microseconds.
type Manifest struct {
	Format      string      `json:"format"`
	ID          string      `json:"id"`
	Ombud       string      `json:"ombud"` // version of the program that wrote it
	Schema      int64       `json:"schema"`
	Instance    string      `json:"instance"`
	Store       string      `json:"store"` // sqlite or postgres: where it came from
	CreatedAt   int64       `json:"created_at"`
	Head        int64       `json:"head"` // position of the event log
	Audit       audit.Marks `json:"audit"`
	Key         string      `json:"public_key"`
	KeyIncluded bool        `json:"key_included"` // the raw key is in it: who has the file can read everything
	Parts       []Part      `json:"parts"`
}

func (m *Manifest) message() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(m)
	return b.Bytes(), err
}

func signed(manifest []byte) []byte { return append([]byte(Format+"\n"), manifest...) }

// finish writes the manifest of what was added, its signature and the end.
func (a *archive) finish(m *Manifest, key ed25519.PrivateKey) error {
	m.Parts = slices.Clone(a.parts)
	text, err := m.message()
	if err != nil {
		return fault.New(fault.Internal, "write the manifest: %w", err)
	}
	if err := a.addBytes(partManifest, text); err != nil {
		return err
	}
	sig := hex.EncodeToString(ed25519.Sign(key, signed(text))) + "\n"
	if err := a.addBytes(partSignature, []byte(sig)); err != nil {
		return err
	}
	return a.end()
}

// Scan reads a whole backup and returns its manifest. visit, if not nil, is given
// the members before the manifest; what it is given is not verified before Scan has
// returned nil. Errors: Verification, naming the part that does not hold; Config if
// a newer ombud wrote the file.
func Scan(ctx context.Context, r io.Reader, visit func(name string, size int64, r io.Reader) error) (m Manifest, err error) {
	s := &scanner{r: &stoppable{ctx, r}}
	var text, sig []byte
	for {
		name, size, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, err
		}
		if sig != nil || text != nil && name != partSignature || len(s.parts) == 0 && name != partReadme {
			return m, damaged(name, "it does not belong there")
		}
		var fn func(io.Reader) error
		switch {
		case name == partManifest || name == partSignature:
			if size > maxSmall {
				return m, damaged(name, "it has %d bytes", size)
			}
			fn = func(r io.Reader) (err error) {
				content, err := io.ReadAll(r)
				if name == partManifest {
					text = content
				} else {
					sig = content
				}
				return readFault(err)
			}
		case visit != nil:
			fn = func(r io.Reader) error { return visit(name, size, r) }
		}
		if err := s.body(name, size, fn); err != nil {
			return m, err
		}
	}
	if sig == nil {
		return m, damaged("its end", "it has no manifest")
	}
	return m, s.check(&m, text, sig)
}

// check holds what was read against the manifest.
func (s *scanner) check(m *Manifest, text, sig []byte) error {
	if err := json.Unmarshal(text, m); err != nil {
		return damaged(partManifest, "%w", err)
	}
	if m.Format != Format {
		return fault.New(fault.Config, "the backup has format %q, this ombud knows %s", m.Format, Format).
			WithHint("install the ombud that wrote it, or a newer one")
	}
	keys, err := vault.ParsePublicKey(m.Key)
	if err != nil {
		return damaged(partManifest, "%w", err)
	}
	raw, err := hex.DecodeString(strings.TrimSuffix(string(sig), "\n"))
	if err != nil || hex.EncodeToString(raw)+"\n" != string(sig) {
		return damaged(partSignature, "it is no signature")
	}
	if err := keys.Verify(signed(text), raw); err != nil {
		return damaged(partManifest, "%w", err)
	}
	read := s.parts[:len(s.parts)-2] // without manifest and signature
	for i, p := range m.Parts {
		switch {
		case i >= len(read):
			return damaged(p.Name, "it is missing")
		case read[i].Name != p.Name || read[i].Size != p.Size:
			return damaged(p.Name, "in its place is %s with %d bytes", read[i].Name, read[i].Size)
		case read[i].SHA256 != p.SHA256:
			return damaged(p.Name, "its SHA-256 is another")
		}
	}
	if len(read) > len(m.Parts) {
		return damaged(read[len(m.Parts)].Name, "the manifest does not name it")
	}
	if s.at != m.CreatedAt/1e6 {
		return damaged("the headers", "they have another time than the manifest")
	}
	return nil
}

// stoppable ends reading when its context does.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
