package eventlog

import (
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
)

// Upcast turns the payload of one format into that of the next.
type Upcast func(json.RawMessage) (json.RawMessage, error)

// Kind ties an event kind to the Go type of its payload. Its format is one more
// than it has upcasters: Upcasts[0] turns format 1 into format 2, and so on. A
// new format needs an upcaster; a field that may be absent needs none.
//
// Readers without the Kind are never stopped: Event.Data is the payload as it was
// written, whatever its kind and format.
type Kind[T any] struct {
	Name    string
	Upcasts []Upcast
}

// Format is the format new events of this kind have.
func (k Kind[T]) Format() int64 { return int64(len(k.Upcasts)) + 1 }

// New returns an event of this kind for stream, at whatever version that is.
func (k Kind[T]) New(stream string, payload T) New {
	return New{Stream: stream, Kind: k.Name, Format: k.Format(), Data: payload, Expect: Any}
}

// Decode returns e's payload in the present format. Errors: Invalid if e is of
// another kind or was written by a newer ombud, NotFound if its payload was
// erased, Verification if it is not what its kind promises.
func (k Kind[T]) Decode(e Event) (T, error) {
	var out T
	switch {
	case e.Kind != k.Name:
		return out, fault.New(fault.Invalid, "event %s is %q, not %q", e.ID, e.Kind, k.Name)
	case e.Erased:
		return out, fault.New(fault.NotFound, "the payload of event %s was erased", e.ID)
	case e.Format > k.Format():
		return out, fault.New(fault.Invalid, "event %s has format %d of %q, known is %d", e.ID, e.Format, k.Name, k.Format()).
			WithHint("a newer ombud wrote it")
	}
	data := e.Data
	for _, up := range k.Upcasts[max(e.Format, 1)-1:] {
		var err error
		if data, err = up(data); err != nil {
			return out, fault.New(fault.Verification, "bring event %s up to date: %w", e.ID, err)
		}
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fault.New(fault.Verification, "read the payload of event %s: %w", e.ID, err)
	}
	return out, nil
}
