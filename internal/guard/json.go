package guard

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// CleanJSON returns raw, one JSON value, with everything in it that is JSON but no
// text: escapes of half a surrogate pair and of NUL, and bytes that are not UTF-8,
// become U+FFFD. Some stores and models refuse a whole request for one of them.
// Numbers, the order of keys and white space stay as they are.
func CleanJSON(raw []byte) ([]byte, error) {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if !json.Valid(raw) {
		return nil, fault.New(fault.Invalid, "not a JSON value")
	}
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw, nil
	}
	const replacement = `\ufffd`
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' { // valid JSON holds a backslash in strings only
			out = append(out, raw[i])
			i++
			continue
		}
		r, ok := escaped(raw[i:])
		switch {
		case !ok:
			out = append(out, raw[i:i+2]...)
			i += 2
			continue
		case r == 0:
			out = append(out, replacement...)
		case utf16.IsSurrogate(r):
			if low, ok := escaped(raw[i+6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				out = append(out, raw[i:i+12]...)
				i += 12
				continue
			}
			out = append(out, replacement...)
		default:
			out = append(out, raw[i:i+6]...)
		}
		i += 6
	}
	return out, nil
}

// escaped returns the code unit of an escape of four hexadecimal digits at the
// start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
