package vault

import (
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// A recovery key is 128 random bits in Crockford's base32, 26 signs, and six signs
// of the checksum of bech32m, which finds any four wrong signs and any two that
// were exchanged: XXXX-XXXX-XXXX-XXXX-XXXX-XXXX-XXXX-XXXX.
const (
	recoverySize  = 16
	recoverySigns = 26
	checkSigns    = 6
	alphabet      = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// newRecoveryKey returns a key and how a person writes it down.
func newRecoveryKey() (key []byte, shown string) {
	key = make([]byte, recoverySize)
	random(key)
	return key, showRecoveryKey(key)
}

func showRecoveryKey(key []byte) string {
	signs := make([]byte, 0, recoverySigns+checkSigns)
	var acc, bits uint
	for _, b := range key {
		acc, bits = acc<<8|uint(b), bits+8
		for bits >= 5 {
			bits -= 5
			signs = append(signs, byte(acc>>bits&31))
		}
		acc &= 1<<bits - 1
	}
	signs = append(signs, byte(acc<<(5-bits)&31))
	sum := polymod(append(append([]byte(nil), signs...), make([]byte, checkSigns)...)) ^ bech32m
	for i := range checkSigns {
		signs = append(signs, byte(sum>>(5*(checkSigns-1-i))&31))
	}
	var out strings.Builder
	for i, s := range signs {
		if i > 0 && i%4 == 0 {
			out.WriteByte('-')
		}
		out.WriteByte(alphabet[s])
	}
	return out.String()
}

// NewRecoverySecret reads a recovery key as a person types it: in any case, with or
// without dashes and blanks, O for 0 and I or L for 1. It wipes typed. No error
// repeats it.
func NewRecoverySecret(typed []byte) (*Secret, error) {
	defer clear(typed)
	signs := make([]byte, 0, recoverySigns+checkSigns)
	defer func() { clear(signs) }()
	for _, c := range typed {
		switch c {
		case '-', ' ', '\t', '\r', '\n':
			continue
		case 'o', 'O':
			c = '0'
		case 'i', 'I', 'l', 'L':
			c = '1'
		}
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		at := strings.IndexByte(alphabet, c)
		if at < 0 || len(signs) == recoverySigns+checkSigns {
			return nil, wrongRecovery("it has %d letters and digits, without U", recoverySigns+checkSigns)
		}
		signs = append(signs, byte(at))
	}
	if len(signs) != recoverySigns+checkSigns {
		return nil, wrongRecovery("it has %d letters and digits, this has %d", recoverySigns+checkSigns, len(signs))
	}
	if polymod(signs) != bech32m {
		return nil, wrongRecovery("a letter or digit is wrong")
	}
	key := make([]byte, 0, recoverySize)
	var acc, bits uint
	for _, s := range signs[:recoverySigns] {
		acc, bits = acc<<5|uint(s), bits+5
		if bits >= 8 {
			bits -= 8
			key = append(key, byte(acc>>bits))
		}
		acc &= 1<<bits - 1
	}
	if acc != 0 { // two bits are left over
		clear(key)
		return nil, wrongRecovery("a letter or digit is wrong")
	}
	return &Secret{bytes: key, from: "the recovery key"}, nil
}

func wrongRecovery(format string, args ...any) error {
	return fault.New(fault.Invalid, "this is not a recovery key: "+format, args...).
		WithHint("compare it with what you wrote down, sign by sign")
}

const bech32m = 0x2bc830a3

// polymod is the checksum of BIP 350 without a prefix.
func polymod(signs []byte) uint32 {
	sum := uint32(1)
	for _, s := range signs {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(s)
		for i, g := range [...]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sum ^= g
			}
		}
	}
	return sum
}
