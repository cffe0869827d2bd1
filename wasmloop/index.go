package wasmloop

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// IndexSignature is a registry's word for its whole index: which artifacts it has, with
// which digests, and which it had no longer at that time.
type IndexSignature struct {
	Key string `json:"key"` // Ed25519 public key, base64 raw URL
	At  int64  `json:"at"`  // Unix seconds; an index that is older than one seen before was put back
	Sig string `json:"sig"` // 64 bytes, base64 raw URL
}

// SignIndex signs an index as a whole. Its registry key becomes the one it is signed with,
// and its entries are put into order.
func SignIndex(idx *Index, at time.Time, priv ed25519.PrivateKey) error {
	key := EncodeKey(priv.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // what it returns
	slices.SortFunc(idx.Entries, func(a, b RegistryEntry) int { return strings.Compare(a.Name, b.Name) })
	for n, e := range idx.Entries {
		if e.SHA256 == "" || e.Artifact == "" {
			return fmt.Errorf("%w: the entry %s has no artifact with a sha256", ErrMalformed, e.Name)
		}
		if n > 0 && idx.Entries[n-1].Name == e.Name {
			return fmt.Errorf("%w: there are two entries %s", ErrMalformed, e.Name)
		}
	}
	idx.Version, idx.RegistryKey = 1, key
	idx.Signature = &IndexSignature{Key: key, At: at.Unix()}
	text, err := signedIndex(*idx)
	if err != nil {
		return err
	}
	idx.Signature.Sig = base64.RawURLEncoding.EncodeToString(ed25519.Sign(priv, text))
	return nil
}

// Signer is the key that an index is signed with, "" if it is not signed. Whether to trust
// it is the operator's to say. A signature that does not hold is ErrAltered.
func (idx *Index) Signer() (string, error) {
	s := idx.Signature
	if s == nil {
		return "", nil
	}
	key, err := ParseKey(s.Key)
	if err != nil {
		return "", fmt.Errorf("signature of the index: %w", err)
	}
	sig, err := decode(s.Sig, ed25519.SignatureSize)
	if err != nil {
		return "", fmt.Errorf("signature of the index: %w", err)
	}
	text, err := signedIndex(*idx)
	if err != nil {
		return "", err
	}
	if !ed25519.Verify(key, text, sig) {
		return "", fmt.Errorf("%w: the signature of the registry's index does not hold", ErrAltered)
	}
	return s.Key, nil
}

// signedIndex is what the signature of an index is over: all that is read of it.
func signedIndex(idx Index) ([]byte, error) {
	s := *idx.Signature
	s.Sig = ""
	idx.Signature = &s
	body, err := json.Marshal(idx)
	if err != nil {
		return nil, fmt.Errorf("%w: the index: %w", ErrMalformed, err)
	}
	return append([]byte("ombud-index-v1\n"), body...), nil
}
