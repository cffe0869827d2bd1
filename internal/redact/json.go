package redact

import (
	"bytes"
	"encoding/json"
)

// JSON returns a JSON text without the values, as a JSON text of the same shape: its
// strings are looked at as they read, and a number that holds a value becomes null.
// What is no JSON is looked at as text. It is raw itself if there are none in it.
func (r *Redactor) JSON(raw []byte) []byte {
	m := r.matcher()
	if m == nil || len(raw) < MinLen {
		return raw
	}
	var out []byte
	done := 0 // how much of raw is in out
	put := func(from, to int, text []byte) {
		out = append(append(out, raw[done:from]...), text...)
		done = to
	}
	for i := 0; i < len(raw); {
		end := wordEnd(raw, i)
		if end == 0 {
			return r.Bytes(raw)
		}
		if lit := raw[i:end]; len(lit) >= MinLen {
			if clean, changed := m.literal(lit); changed {
				put(i, end, clean)
			}
		}
		i = end
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}

// wordEnd is where the string, the word or the single character at i ends; 0 if a
// string does not end.
func wordEnd(raw []byte, i int) int {
	switch b := raw[i]; {
	case b == '"':
		for j := i + 1; j < len(raw); j++ {
			switch raw[j] {
			case '\\':
				j++
			case '"':
				return j + 1
			}
		}
		return 0
	case wordly(b):
		j := i + 1
		for j < len(raw) && wordly(raw[j]) {
			j++
		}
		return j
	}
	return i + 1
}

// wordly reports whether b is part of a number or a word such as true.
func wordly(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '+' || b == '.'
}

// literal is a string or a number without the values.
func (m *matcher) literal(lit []byte) ([]byte, bool) {
	if lit[0] != '"' {
		spans, _ := m.find(lit, true)
		return []byte("null"), len(spans) > 0
	}
	inner := lit[1 : len(lit)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		spans, _ := m.find(inner, true)
		if len(spans) == 0 {
			return nil, false
		}
		return append(appendWithout([]byte{'"'}, inner, spans), '"'), true
	}
	var s string
	if json.Unmarshal(lit, &s) != nil {
		s = string(inner)
	}
	spans, _ := m.find([]byte(s), true)
	if len(spans) == 0 {
		return nil, false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(appendWithout(nil, []byte(s), spans))); err != nil {
		return []byte("null"), true // a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}
