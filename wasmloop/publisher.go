package wasmloop

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// publisherFile is the file of a publisher's key, in the shape that KARMAX writes.
type publisherFile struct {
	Public  string `json:"public"`  // 32 bytes, base64 raw URL
	Private string `json:"private"` // 64 bytes, the seed and the public key, base64 raw URL
}

// MarshalPublisher is the content of a publisher.json: the key that artifacts are signed
// with. It belongs into a file that nobody else can read.
func MarshalPublisher(priv ed25519.PrivateKey) ([]byte, error) {
	if len(priv) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: a publisher's key has %d bytes, this one %d", ErrMalformed, ed25519.PrivateKeySize, len(priv))
	}
	out, err := json.MarshalIndent(publisherFile{
		Public:  EncodeKey(priv.Public().(ed25519.PublicKey)), //nolint:forcetypeassert // what it returns
		Private: base64.RawURLEncoding.EncodeToString(priv),
	}, "", "  ")
	return append(out, '\n'), err
}

// ParsePublisher reads what [MarshalPublisher] and KARMAX write. A file whose halves do not
// belong together is refused: what it signs would be in nobody's name. No part of the file
// is in an error.
func ParsePublisher(data []byte) (ed25519.PrivateKey, error) {
	var f publisherFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%w: it is not a publisher's key file", ErrMalformed)
	}
	raw, err := decode(f.Private, ed25519.PrivateKeySize)
	if err != nil {
		return nil, fmt.Errorf("the private half: %w", err)
	}
	public, err := decode(f.Public, ed25519.PublicKeySize)
	if err != nil {
		return nil, fmt.Errorf("the public half: %w", err)
	}
	priv := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.Equal(priv, raw) || !bytes.Equal(priv[ed25519.SeedSize:], public) {
		return nil, fmt.Errorf("%w: the public half is not that of the private one", ErrMalformed)
	}
	return priv, nil
}
