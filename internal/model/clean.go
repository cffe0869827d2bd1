package model

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxBadInput = 4 << 10

// cleanText returns s as every provider takes it: valid UTF-8 without NUL. A
// surrogate that stands alone is invalid UTF-8 in Go and goes with the rest.
func cleanText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// cleanJSON returns the JSON text raw, compact, with every NUL and every lone
// surrogate in its strings replaced, escaped ones too. Order of keys and spelling
// of numbers stay. It reports false if raw is no JSON.
func cleanJSON(raw []byte) (json.RawMessage, bool) {
	raw = []byte(cleanText(string(raw)))
	if !json.Valid(raw) {
		return nil, false
	}
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return nil, false
	}
	return replaceBadEscapes(out.Bytes()), true
}

// replaceBadEscapes works on valid JSON, where a backslash only occurs inside a
// string and \u is always followed by four hex digits.
func replaceBadEscapes(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			out = append(out, raw[i], raw[i+1])
			i += 2
			continue
		}
		n, ok := escapeLen(raw[i:])
		if ok {
			out = append(out, raw[i:i+n]...)
		} else {
			out = append(out, `\ufffd`...)
		}
		i += n
	}
	return out
}

// escapeLen returns the length of the \u escape at the start of raw, 12 for a
// surrogate pair, and whether it stands for a character we let pass.
func escapeLen(raw []byte) (int, bool) {
	switch r := hexRune(raw); {
	case r == 0:
		return 6, false
	case r < 0xD800 || r > 0xDFFF:
		return 6, true
	case r >= 0xDC00 || len(raw) < 12 || raw[6] != '\\' || raw[7] != 'u':
		return 6, false
	}
	if low := hexRune(raw[6:]); low < 0xDC00 || low > 0xDFFF {
		return 6, false
	}
	return 12, true
}

func hexRune(escape []byte) rune {
	n, err := strconv.ParseUint(string(escape[2:6]), 16, 32)
	if err != nil {
		return 0
	}
	return rune(n)
}

// NewCall makes a ToolCall of what a provider sent as its arguments. Nothing at
// all is an empty object; what is no JSON object goes into BadInput.
func NewCall(id, name, arguments string) ToolCall {
	call := ToolCall{ID: cleanText(id), Name: cleanText(name)}
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	if input, ok := cleanJSON([]byte(arguments)); ok && input[0] == '{' {
		call.Input = input
		return call
	}
	bad := cleanText(arguments)
	if len(bad) > maxBadInput {
		bad = strings.ToValidUTF8(bad[:maxBadInput], "")
	}
	call.BadInput = bad
	return call
}

// NumberCalls gives every call of one answer an ID of its own; some servers send
// none, or one for all.
func NumberCalls(calls []ToolCall) {
	seen := map[string]bool{}
	for i := range calls {
		id := calls[i].ID
		for n := i + 1; id == "" || seen[id]; n++ {
			id = "call_" + strconv.Itoa(n)
		}
		calls[i].ID, seen[id] = id, true
	}
}

// CleanText returns s as ombud keeps and sends it: valid UTF-8 without NUL.
func CleanText(s string) string { return cleanText(s) }
