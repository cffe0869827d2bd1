package wasmloop

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Errors of this package wrap one of these.
var (
	// ErrMalformed is an artifact, manifest or file that is not what its format says.
	ErrMalformed = errors.New("malformed")
	// ErrAltered is an artifact whose parts do not belong together: a digest or a
	// signature that does not hold.
	ErrAltered = errors.New("altered")
	// ErrUntrusted is an intact artifact that the operator's trust does not let in.
	ErrUntrusted = errors.New("not trusted")
	// ErrNotInstalled is a loop that is not there.
	ErrNotInstalled = errors.New("not installed")
)

// An artifact is a magic of 8 bytes that ends in the number of its format, the length of
// the header as 4 bytes big-endian, the header as JSON, and the module to the end.
const (
	magicV1 = "KMXLOOP\x01"
	magicV2 = "OMBLOOP\x02"

	headStart = len(magicV1) + 4

	maxHeaderV1 = 64 << 10
	maxHeaderV2 = 256 << 10
	maxModule   = 64 << 20
)

// Artifact is a parsed loop package.
type Artifact struct {
	Manifest   Manifest
	Signatures []Signature
	Module     []byte

	v1 bool
}

// header is the part of an artifact before the module.
type header struct {
	Manifest   Manifest    `json:"manifest"`
	Signatures []Signature `json:"signatures"`
}

// Pack builds an artifact file of format v2: magic, header length, header, module.
func Pack(m Manifest, module []byte, sigs []Signature) ([]byte, error) {
	return pack(magicV2, maxHeaderV2, m, module, sigs)
}

func pack(magic string, most int, m Manifest, module []byte, sigs []Signature) ([]byte, error) {
	if len(module) == 0 || len(module) > maxModule {
		return nil, fmt.Errorf("%w: a module has 1 to %d bytes, this one %d", ErrMalformed, maxModule, len(module))
	}
	head, err := json.Marshal(header{m, sigs})
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w: %w", m.Name, ErrMalformed, err)
	}
	if len(head) > most {
		return nil, fmt.Errorf("%w: the header of %s has %d bytes; at most %d fit", ErrMalformed, m.Name, len(head), most)
	}
	out := make([]byte, 0, headStart+len(head)+len(module))
	out = append(out, magic...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(head))) //nolint:gosec // bounded above
	out = append(out, head...)
	return append(out, module...), nil
}

// Unpack parses an artifact without verifying it. [Verify] does that, and nothing should
// execute a module that has only been unpacked. The Artifact's Module shares data's memory.
//
// Format v1 is read as its writers meant it: keys that are not known are passed over. The
// header of v2 has exactly one spelling, that of [Pack]; any other is refused, so what is
// shown, what is signed and what is stored cannot differ.
func Unpack(data []byte) (*Artifact, error) {
	if len(data) < headStart {
		return nil, fmt.Errorf("%w: an artifact has at least %d bytes, this one %d", ErrMalformed, headStart, len(data))
	}
	most := maxHeaderV2
	a := &Artifact{}
	switch magic := string(data[:len(magicV1)]); magic {
	case magicV1:
		most, a.v1 = maxHeaderV1, true
	case magicV2:
	default:
		return nil, fmt.Errorf("%w: it begins with % x, which no loop does", ErrMalformed, magic)
	}
	n := int64(binary.BigEndian.Uint32(data[len(magicV1):]))
	rest := data[headStart:]
	switch {
	case n > int64(most):
		return nil, fmt.Errorf("%w: its header claims %d bytes; at most %d are allowed", ErrMalformed, n, most)
	case n > int64(len(rest)):
		return nil, fmt.Errorf("%w: its header claims %d bytes and %d are there: the file is cut", ErrMalformed, n, len(rest))
	}
	head := rest[:n]
	a.Module = rest[n:]
	if len(a.Module) == 0 || len(a.Module) > maxModule {
		return nil, fmt.Errorf("%w: a module has 1 to %d bytes, this one %d", ErrMalformed, maxModule, len(a.Module))
	}
	var h header
	if err := json.Unmarshal(head, &h); err != nil {
		return nil, fmt.Errorf("%w: its header is not one: %w", ErrMalformed, err)
	}
	if !a.v1 {
		if again, err := json.Marshal(h); err != nil || !bytes.Equal(again, head) {
			return nil, fmt.Errorf("%w: its header is not written as this format writes it, so what was signed could differ from what is read", ErrMalformed)
		}
	}
	a.Manifest, a.Signatures = h.Manifest, h.Signatures
	return a, nil
}

// Digest is the hex sha256 of the module bytes.
func (a *Artifact) Digest() string { return digest(a.Module) }

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Format is the number of the artifact's format: 1 or 2.
func (a *Artifact) Format() int {
	if a.v1 {
		return 1
	}
	return 2
}

// Unsigned says, a line each, what of the manifest no signature covers, though the module
// may act by it. Whoever hands the file on could have written it, so an operator confirms
// each line. Of format v2 there is none; of an artifact without a signature see [Verdict].
func (a *Artifact) Unsigned() (lines []string) {
	if !a.v1 {
		return nil
	}
	for _, t := range a.Manifest.Tools {
		lines = append(lines, "tool "+t+": may be called")
	}
	for _, p := range a.Manifest.Provides {
		lines = append(lines, "tool "+p.Name+": is provided to the agent, "+p.says())
	}
	if a.Manifest.Description != "" {
		lines = append(lines, "description: "+a.Manifest.Description)
	}
	return lines
}
