package redact

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ombud-run/ombud/internal/fault"
)

// MinLen is the length in bytes from which a value is looked for.
const MinLen = 8

// maxTransient bounds the values that are not told to be forgotten, such as tokens.
const maxTransient = 512

// value is one registered value.
type value struct {
	text []byte
	name string
}

// Redactor knows values and takes them out of texts. It is safe for concurrent use.
type Redactor struct {
	known atomic.Pointer[matcher] // nil: to be made anew
	any   atomic.Bool             // something is registered

	mu        sync.Mutex
	values    []value // in the order they came
	transient []value
}

// New returns a Redactor that knows no values.
func New() *Redactor { return &Redactor{} }

// Register makes a value known by a name, which is what is shown in its place. White
// space around the value does not count. It reports whether the value is looked for:
// one under MinLen bytes is not. A value that is known already keeps its name.
func (r *Redactor) Register(name string, text []byte) bool {
	return r.register(name, text, false)
}

// Transient is Register for what is good for a while, such as the token of a job: of
// all values registered so, the last 512 are known.
func (r *Redactor) Transient(name string, text []byte) bool {
	return r.register(name, text, true)
}

func (r *Redactor) register(name string, text []byte, transient bool) bool {
	text = bytes.TrimSpace(text)
	if r == nil || len(text) < MinLen {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(v value) bool { return bytes.Equal(v.text, text) }
	if slices.ContainsFunc(r.values, same) || transient && slices.ContainsFunc(r.transient, same) {
		return true
	}
	v := value{bytes.Clone(text), safeName(name)}
	if transient {
		r.transient = append(r.transient, v)
		r.transient = r.transient[max(0, len(r.transient)-maxTransient):]
	} else {
		r.values = append(r.values, v)
	}
	r.any.Store(true)
	r.known.Store(nil)
	return true
}

// safeName keeps to what can stand in any text and in JSON as it is.
func safeName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < 0x80 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._:-", c)) {
			return c
		}
		return '_'
	}, name)
}

// matcher is nil if nothing is registered.
func (r *Redactor) matcher() *matcher {
	if r == nil || !r.any.Load() {
		return nil
	}
	if m := r.known.Load(); m != nil {
		return m
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.known.Load(); m != nil {
		return m
	}
	m := newMatcher(slices.Concat(r.values, r.transient))
	r.known.Store(m)
	return m
}

// mark is what is shown in the place of a value.
func mark(name string) string { return "[secret:" + name + "]" }

// String returns s without the values.
func (r *Redactor) String(s string) string {
	m := r.matcher()
	if m == nil || len(s) < MinLen {
		return s
	}
	spans, _ := m.find([]byte(s), true)
	if len(spans) == 0 {
		return s
	}
	return string(appendWithout(nil, []byte(s), spans))
}

// Bytes returns b without the values. It is b itself if there are none in it.
func (r *Redactor) Bytes(b []byte) []byte {
	m := r.matcher()
	if m == nil || len(b) < MinLen {
		return b
	}
	spans, _ := m.find(b, true)
	if len(spans) == 0 {
		return b
	}
	return appendWithout(nil, b, spans)
}

// Find returns the name of a value that is in b, "" if none is.
func (r *Redactor) Find(b []byte) string {
	m := r.matcher()
	if m == nil || len(b) < MinLen {
		return ""
	}
	if spans, _ := m.find(b, true); len(spans) > 0 {
		return spans[0].name
	}
	return ""
}

// Error returns err, or if its text or hint holds a value, an error of the same class
// with the text that may be shown; its causes are not kept then.
func (r *Redactor) Error(err error) error {
	if err == nil || r.matcher() == nil {
		return err
	}
	text, hint := r.String(err.Error()), r.String(fault.HintOf(err))
	if text == err.Error() && hint == fault.HintOf(err) {
		return err
	}
	out := fault.New(fault.ClassOf(err), "%w", errors.New(text))
	if hint != "" {
		out = out.WithHint("%s", hint)
	}
	return out
}

func appendWithout(out, text []byte, spans []span) []byte {
	at := 0
	for _, sp := range spans {
		out = append(out, text[at:sp.start]...)
		out = append(out, mark(sp.name)...)
		at = sp.end
	}
	return append(out, text[at:]...)
}
