package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
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
	var begun abi.StepBegun
	if err := k.call("step_begin", abi.StepBegin{Name: name, Once: once}, &begun); err != nil {
		return out, err
	}
	if begun.Done {
		return out, json.Unmarshal(begun.Result, &out)
	}
	if out, err = do(); err != nil {
		return out, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("step %s: %w", name, err)
	}
	return out, k.call("step_end", abi.StepEnd{Name: name, Result: raw}, nil)
}

// Now is the time. A run that is done again is told the time it was told before, for as
// long as its calls are answered from the record.
func (k *Kit) Now() time.Time { return k.host.Now() }

// Sleep waits, for seconds or for months: the run is put away meanwhile.
func (k *Kit) Sleep(d time.Duration) error {
	return k.call("sleep", abi.Sleep{Milliseconds: d.Milliseconds()}, nil)
}

// After starts the loop again after d, with a trigger of kind timer that has the payload.
// The same id moves it.
func (k *Kit) After(id string, d time.Duration, payload any) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("after %s: %w", id, err)
	}
	return k.call("after", abi.After{ID: id, Milliseconds: d.Milliseconds(), Payload: raw}, nil)
}

// CancelAfter takes back an After.
func (k *Kit) CancelAfter(id string) error {
	return k.call("cancel_after", abi.CancelAfter{ID: id}, nil)
}

// WaitSignal waits for what is sent to the run under a name (ombud runs signal), for ever
// if timeout is 0. A time that is over is an error.
func (k *Kit) WaitSignal(name string, timeout time.Duration) (json.RawMessage, error) {
	var out abi.Signal
	err := k.call("wait_signal", abi.WaitSignal{Name: name, Milliseconds: timeout.Milliseconds()}, &out)
	return out.Payload, err
}
