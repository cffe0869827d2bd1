package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Step does something of the loop's own once a run and keeps its result: randomness, a
// long computation, what a library tells. After a crash within it, it is done again. It
// needs the host functions step_begin and step_end.
func Step[T any](k *Kit, name string, do func() (T, error)) (T, error) {
	return step(k, name, false, do)
}

// Once is Step for what must not be done again when a crash leaves it untold whether it
// was done: then its error is ErrUnknown.
func Once[T any](k *Kit, name string, do func() (T, error)) (T, error) {
	return step(k, name, true, do)
}

func step[T any](k *Kit, name string, once bool, do func() (T, error)) (out T, err error) {
	answer, err := k.send("step_begin", k.object().str("name", name).bool("once", once))
	if err != nil {
		return out, err
	}
	var done bool
	var result []byte
	err = read(answer, func(s *scanner, name string) {
		switch name {
		case "done":
			done = s.truth()
		case "result":
			result = s.skip()
		default:
			s.skip()
		}
	})
	if err != nil {
		return out, err
	}
	if done {
		return out, json.Unmarshal(result, &out)
	}
	if out, err = do(); err != nil {
		return out, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("step %s: %w", name, err)
	}
	return out, k.do("step_end", k.object().str("name", name).raw("result", raw))
}

// Now is the time. A run that is done again is told the time it was told before, for as
// long as its calls are answered from the record.
func (k *Kit) Now() time.Time { return k.host.Now() }

// Sleep waits, for seconds or for months: the run is put away meanwhile.
func (k *Kit) Sleep(d time.Duration) error {
	return k.do("sleep", k.object().int("ms", d.Milliseconds()))
}

// After starts the loop again after d, with a trigger of kind timer that has the payload: an
// object in JSON, or nil. The same id moves it.
func (k *Kit) After(id string, d time.Duration, payload any) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("after %s: %w", id, err)
	}
	return k.do("after", k.object().str("id", id).int("ms", d.Milliseconds()).raw("payload", raw))
}

// CancelAfter takes back an After.
func (k *Kit) CancelAfter(id string) error {
	return k.do("cancel_after", k.object().str("id", id))
}

// WaitSignal waits for what is sent to the run under a name (ombud runs signal), for ever
// if timeout is 0. A time that is over is an error.
func (k *Kit) WaitSignal(name string, timeout time.Duration) (json.RawMessage, error) {
	answer, err := k.send("wait_signal", k.object().str("name", name).int("timeout_ms", timeout.Milliseconds()))
	if err != nil {
		return nil, err
	}
	var payload json.RawMessage
	err = read(answer, func(s *scanner, name string) {
		raw := s.skip()
		if name == "payload" {
			payload = bytes.Clone(raw)
		}
	})
	return payload, err
}
