package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Errors that a call may wrap.
var (
	// ErrRefused is a call that the loop may not make.
	ErrRefused = errors.New("refused")
	// ErrUndeclared is a refusal because loop.yaml does not name what was called. It is an
	// ErrRefused too.
	ErrUndeclared = fmt.Errorf("%w: not in the manifest", ErrRefused)
	// ErrUnknown is a call that may or may not have happened. Do not repeat it.
	ErrUnknown = errors.New("outcome unknown")
)

// Host answers the calls of a loop. In a build of a loop it is ombud; package looptest has
// another one.
type Host interface {
	// Call makes a host call. A status other than 0 comes with a text that says why. The
	// answer is good until the next call.
	Call(name string, request []byte) (status int32, answer []byte)
	Now() time.Time
}

// Tool is a tool that the loop lends to the agent. Its name, description and parameters
// are in the manifest under provides. What it returns is said to the agent: a string as it
// is, anything else as JSON.
type Tool func(k *Kit, input json.RawMessage) (any, error)

var (
	body  func(*Kit) error
	tools = map[string]Tool{}
)

// Main says what a run does. Call it in init.
func Main(run func(*Kit) error) { body = run }

// Provide says what a provided tool does. Call it in init.
func Provide(name string, do Tool) { tools[name] = do }

// RunOn does a run on a host. It is what a build of a loop exports as "run".
func RunOn(h Host) (err error) {
	if body == nil {
		return errors.New("the loop did not call loop.Main in init")
	}
	defer caught(&err)
	return body(&Kit{host: h})
}

// caught takes the error that Trigger cannot return.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case noTrigger:
		*err = r.error
	default:
		panic(r)
	}
}

// ServeOn answers a call of a provided tool, on a host. It is what a build of a loop
// exports as "tool".
func ServeOn(h Host, request []byte) []byte {
	out, err := serve(h, request)
	if err == nil {
		var raw []byte
		if raw, err = json.Marshal(out); err == nil {
			return raw
		}
	}
	raw, err := json.Marshal(abi.Failed{Error: err.Error()})
	if err != nil {
		return nil // a string can always be written
	}
	return raw
}

func serve(h Host, raw []byte) (out any, err error) {
	var req abi.ToolCall
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, err
	}
	do, there := tools[req.Name]
	if !there {
		return nil, errors.New("the loop does not implement the tool " + req.Name)
	}
	defer caught(&err)
	return do(&Kit{host: h}, req.Input)
}

// Kit is what a run can do. Each method that reaches something needs the host function of
// its name in the manifest.
type Kit struct {
	host Host
	t    *Trigger
	room []byte // of requests
}

// object begins a request. It is good until the next one.
func (k *Kit) object() object { return append(object(k.room[:0]), '{') }

// send makes a host call with a request. The answer is good until the next call.
func (k *Kit) send(name string, o object) ([]byte, error) {
	k.room = append(o, '}')
	return k.bare(name, k.room)
}

// do is send for a call whose answer says nothing.
func (k *Kit) do(name string, o object) error {
	_, err := k.send(name, o)
	return err
}

// text is send for a call whose answer has one text.
func (k *Kit) text(name string, o object, field string) (string, error) {
	answer, err := k.send(name, o)
	if err != nil {
		return "", err
	}
	return textOf(answer, field)
}

func textOf(answer []byte, field string) (out string, err error) {
	err = read(answer, func(s *scanner, name string) {
		if name == field {
			out = s.text()
		} else {
			s.skip()
		}
	})
	return out, err
}

// bare is send for a request that is no object.
func (k *Kit) bare(name string, req []byte) ([]byte, error) {
	status, answer := k.host.Call(name, req)
	if status == 0 {
		return answer, nil
	}
	err := errors.New(string(answer))
	switch abi.Status(status) {
	case abi.StatusUndeclared:
		err = fmt.Errorf("%w: %w", ErrUndeclared, err)
	case abi.StatusRefused:
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	case abi.StatusUnknown:
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}
