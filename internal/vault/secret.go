package vault

import (
	"bytes"
	"fmt"
	"log/slog"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ombud-run/ombud/internal/fault"
)

// Secret is a passphrase or a key on its way. It prints as "(hidden)" and is wiped
// by whoever was given it last.
type Secret struct { //nolint:recvcheck // a copy of it has to print as nothing too
	bytes []byte
	from  string // where it came from, for people
}

// Limits of a passphrase. The shortest one is for new ones only: what opens a vault
// is asked for, not judged.
const (
	MinPassphrase = 8 // characters
	maxPassphrase = 1024
)

// NewPassphrase takes what a person typed or a file holds. One line end at the end
// is not part of it. Text is brought to NFC, so that the same letters typed on
// another system are the same passphrase. It wipes raw.
func NewPassphrase(from string, raw []byte) (*Secret, error) {
	defer clear(raw)
	text := bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	switch {
	case len(text) == 0:
		return nil, fault.New(fault.Config, "%s holds no passphrase", from).WithHint("write it there, in one line")
	case len(text) > maxPassphrase:
		return nil, fault.New(fault.Config, "%s holds more than the %d bytes of the longest passphrase", from, maxPassphrase)
	case !utf8.Valid(text):
		return nil, fault.New(fault.Config, "the passphrase of %s is not text in UTF-8", from)
	case bytes.ContainsFunc(text, unicode.IsControl):
		return nil, fault.New(fault.Config, "the passphrase of %s has several lines or control characters", from).
			WithHint("a passphrase is one line")
	}
	return &Secret{bytes: norm.NFC.Append(nil, text...), from: from}, nil
}

// Strong refuses what is too short for a new passphrase.
func (s *Secret) Strong() error {
	if n := utf8.RuneCount(s.bytes); n < MinPassphrase {
		return fault.New(fault.Invalid, "a passphrase has at least %d characters, this one %d", MinPassphrase, n).
			WithHint("several words are easy to remember and hard to guess")
	}
	return nil
}

// Equal reports whether two are the same, for a passphrase typed twice.
func (s *Secret) Equal(o *Secret) bool { return bytes.Equal(s.bytes, o.bytes) }

// Reveal returns a copy, to be handed on.
func (s *Secret) Reveal() []byte { return bytes.Clone(s.bytes) }

// Wipe overwrites it; it is empty afterwards. A nil Secret has nothing to wipe.
func (s *Secret) Wipe() {
	if s != nil {
		clear(s.bytes)
		s.bytes = nil
	}
}

// Format hides it from every verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(hidden)") }

// MarshalText hides it from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("(hidden)"), nil }

// LogValue hides it from structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue("(hidden)") }
