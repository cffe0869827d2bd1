package cli

import (
	"bytes"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
)

// decodeLoose reads what may have more fields than we know.
func decodeLoose(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.New(fault.Invalid, "decode: %w", err)
	}
	return nil
}

// eachField calls fn for the fields of a JSON object, in their order.
func eachField(raw []byte, fn func(key string, value []byte)) error {
	if len(raw) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fault.New(fault.Invalid, "not an object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fault.New(fault.Invalid, "read key: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fault.New(fault.Invalid, "read value: %w", err)
		}
		name, ok := key.(string)
		if !ok {
			return fault.New(fault.Invalid, "a key that is no text")
		}
		fn(name, value)
	}
	return nil
}
