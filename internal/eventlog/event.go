package eventlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// Limits of one event.
const (
	MaxData = 16 << 20 // bytes of payload; what is larger belongs into a blob
	maxText = 1024     // bytes of an id, stream, kind, actor, cause or trace
)

// Any as New.Expect appends whatever the stream's version is.
const Any int64 = -1

// saltSize keeps a leaf from being guessed from a likely payload.
const saltSize = 16

// Event is one thing that happened, as the log holds it.
type Event struct {
	Position int64 // place in the whole log, from 1, in commit order
	ID       string
	Stream   string
	Version  int64 // place in its stream, from 1
	Kind     string
	Format   int64 // version of the payload's shape, from 1
	At       int64 // Unix microseconds, never going back on a node
	Actor    string
	Cause    string // id of what led to it, if any
	Trace    string // id that ties together everything one message led to
	Data     json.RawMessage
	Leaf     [sha256.Size]byte

	Erased     bool // the payload was removed; Data is nil and Leaf still stands
	Repeated   bool // set by Append only: it was already there under this id
	OutOfOrder bool // set for a handler only: a dead letter being replayed
}

// New is an event to append.
type New struct {
	ID     string // default: a fresh one; give one to make a repeat harmless
	Stream string
	Kind   string
	Format int64 // default 1
	Actor  string
	Cause  string
	Trace  string
	Data   any   // anything encoding/json can write; nil is {}
	Expect int64 // version the stream must have (0: none yet), or Any
	// Proved says that a statement of the caller's in the same transaction fails if the
	// stream is not at Expect: it is not looked up.
	Proved bool
}

// canonical returns the payload's stored bytes. JSON that came from outside
// (json.RawMessage, []byte) is brought to one form: no white space, keys in byte
// order, numbers as written. A Go value has one form already, by its type.
func canonical(data any) ([]byte, error) {
	switch raw := data.(type) {
	case nil:
		return []byte("{}"), nil
	case json.RawMessage:
		return canonicalRaw(raw)
	case []byte:
		return canonicalRaw(raw)
	}
	return encode(data)
}

func canonicalRaw(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(raw[dec.InputOffset():])) > 0 {
		return nil, fmt.Errorf("text after the JSON value at byte %d", dec.InputOffset())
	}
	return encode(v)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// leafOf is SHA-256(salt ‖ canonical plaintext); doc.go says what that is.
func leafOf(salt []byte, e *Event) [sha256.Size]byte {
	b := make([]byte, 0, saltSize+len(e.Data)+256)
	b = append(b, salt...)
	for _, f := range [...]struct{ key, value string }{
		{`{"id":`, e.ID}, {`,"stream":`, e.Stream}, {`,"kind":`, e.Kind},
	} {
		b = appendString(append(b, f.key...), f.value)
	}
	b = strconv.AppendInt(append(b, `,"format":`...), e.Format, 10)
	b = strconv.AppendInt(append(b, `,"at":`...), e.At, 10)
	for _, f := range [...]struct{ key, value string }{
		{`,"actor":`, e.Actor}, {`,"cause":`, e.Cause}, {`,"trace":`, e.Trace},
	} {
		b = appendString(append(b, f.key...), f.value)
	}
	b = append(append(b, `,"data":`...), e.Data...)
	return sha256.Sum256(append(b, '}'))
}

// appendString appends s as a JSON string, fast for the usual plain ones.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			quoted, err := encode(s)
			if err != nil {
				panic("eventlog: a string does not marshal: " + err.Error())
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// check refuses what the store could not hold or would hold wrongly.
func (n *New) check() error {
	for _, f := range [...]struct{ name, value string }{
		{"id", n.ID}, {"stream", n.Stream}, {"kind", n.Kind}, {"actor", n.Actor}, {"cause", n.Cause}, {"trace", n.Trace},
	} {
		if len(f.value) > maxText || !utf8.ValidString(f.value) || strings.IndexByte(f.value, 0) >= 0 {
			return fault.New(fault.Invalid, "append event %q: its %s is over %d bytes, not UTF-8 or has a NUL", n.Kind, f.name, maxText)
		}
	}
	switch {
	case n.Stream == "" || n.Kind == "":
		return fault.New(fault.Invalid, "append event: it has no stream or no kind")
	case n.Expect < Any:
		return fault.New(fault.Invalid, "append event %q: a stream cannot have version %d", n.Kind, n.Expect)
	case n.Format < 0:
		return fault.New(fault.Invalid, "append event %q: format %d", n.Kind, n.Format)
	}
	return nil
}
