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
	// ErrRefused is a call that the loop may not make: its manifest does not name it, or it
	// was not granted.
	ErrRefused = errors.New("refused")
	// ErrUnknown is a call that may or may not have happened. Do not repeat it.
	ErrUnknown = errors.New("outcome unknown")
)

// Kit is what a run can do. Each method that reaches something needs the host function of
// its name in the manifest.
type Kit struct{ t Trigger }

// Trigger is what started the run.
type Trigger = abi.Trigger

// Trigger returns what started the run. It is the same in every attempt.
func (k *Kit) Trigger() Trigger { return k.t }

// Level is how much a line of the log matters.
type Level string

// The levels.
const (
	Debug Level = "debug"
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// Log keeps a line with fields, given as key, value, key, value.
func (k *Kit) Log(level Level, text string, fields ...string) {
	m := map[string]string{}
	for n := 0; n+1 < len(fields); n += 2 {
		m[fields[n]] = fields[n+1]
	}
	_ = call("write_log", abi.Line{Level: string(level), Text: text, Fields: m}, nil) // a log that fails has nobody to tell
}

// Progress says how far a long run is.
func (k *Kit) Progress(text string, done, total int) {
	_ = call("progress", abi.Progress{Text: text, Done: done, Total: total}, nil) // as with Log
}

// Config is a setting of the loop, "" if it is not set.
func (k *Kit) Config(key string) (string, error) {
	var out abi.Value
	err := callRaw("config", []byte(key), &out)
	return out.Value, err
}

// Recall searches the memory: at most limit hits, 5 if it is 0.
func (k *Kit) Recall(query string, limit int) ([]string, error) {
	var out abi.Hits
	err := call("recall", abi.Recall{Query: query, Limit: limit}, &out)
	return out.Hits, err
}

// Remember keeps a fact.
func (k *Kit) Remember(fact string) error {
	return call("remember", abi.Fact{Fact: fact}, nil)
}

// Notify sends the operator a notice.
func (k *Kit) Notify(title, body string) error {
	return call("notify", abi.Notice{Title: title, Body: body}, nil)
}

// Ask gives the agent an instruction and returns its answer.
func (k *Kit) Ask(prompt string) (string, error) { return prompted("ask", prompt) }

// Harness gives a coding agent an instruction and returns its answer.
func (k *Kit) Harness(prompt string) (string, error) { return prompted("harness", prompt) }

// Summarize has a model summarise.
func (k *Kit) Summarize(prompt string) (string, error) { return prompted("summarize", prompt) }

// Gateway asks a model, without tools.
func (k *Kit) Gateway(prompt string) (string, error) { return prompted("gateway", prompt) }

func prompted(fn, prompt string) (string, error) {
	var out abi.Answer
	err := call(fn, abi.Prompt{Prompt: prompt}, &out)
	return out.Answer, err
}

// Propose puts an action before the operator, who accepts or refuses it.
func (k *Kit) Propose(title, summary, action string) error {
	return call("propose", abi.Proposal{Title: title, Summary: summary, Action: action}, nil)
}

// Remind sets a reminder; due is a time in RFC 3339.
func (k *Kit) Remind(title, due, notes string) error {
	return call("remind", abi.Reminder{Title: title, Due: due, Notes: notes}, nil)
}

// Request is a web request.
type Request = abi.Request

// Response is the answer to a Request.
type Response = abi.Response

// HTTP makes a web request to a host that the manifest names.
func (k *Kit) HTTP(r Request) (out Response, err error) {
	err = call("http", r, &out)
	return out, err
}

// Tool calls a tool that the manifest names. input is anything that JSON can hold.
func (k *Kit) Tool(name string, input any) (string, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	var out abi.ToolResult
	if err := call("tool", abi.ToolCall{Name: name, Input: raw}, &out); err != nil {
		return "", err
	}
	if out.Error != "" {
		return out.Output, fmt.Errorf("%s: %s", name, out.Error)
	}
	return out.Output, nil
}

// Keep keeps a short note under a group and a key, for ttl, or for good if it is 0.
func (k *Kit) Keep(group, key, value string, ttl time.Duration) error {
	return call("short_set", abi.Note{Group: group, Key: key, Value: value, TTLSeconds: seconds(ttl)}, nil)
}

// seconds is a time in whole seconds. One below a second is one: 0 would be for good.
func seconds(d time.Duration) int64 {
	if d > 0 && d < time.Second {
		return 1
	}
	return int64(d / time.Second)
}

// Kept returns a note.
func (k *Kit) Kept(group, key string) (value string, found bool, err error) {
	var out abi.Kept
	err = call("short_get", abi.NoteKey{Group: group, Key: key}, &out)
	return out.Value, out.Found, err
}

// AllKept returns the notes of a group by their keys.
func (k *Kit) AllKept(group string) (map[string]string, error) {
	var out abi.Entries
	if err := call("short_all", abi.Group{Group: group}, &out); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, e := range out.Entries {
		all[e.Key] = e.Value
	}
	return all, nil
}

// Forget deletes a note.
func (k *Kit) Forget(group, key string) error {
	return call("short_forget", abi.NoteKey{Group: group, Key: key}, nil)
}

// RunLoop starts another loop.
func (k *Kit) RunLoop(name string) error { return callRaw("run_loop", []byte(name), nil) }

// Sleep waits, for seconds or for months: the run is put away meanwhile.
func (k *Kit) Sleep(d time.Duration) error {
	return call("sleep", abi.Sleep{Milliseconds: d.Milliseconds()}, nil)
}

// After starts the loop again after d, with a trigger of kind timer that has the payload.
// The same id moves it.
func (k *Kit) After(id string, d time.Duration, payload any) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("after %s: %w", id, err)
	}
	return call("after", abi.After{ID: id, Milliseconds: d.Milliseconds(), Payload: raw}, nil)
}

// CancelAfter takes back an After.
func (k *Kit) CancelAfter(id string) error {
	return call("cancel_after", abi.CancelAfter{ID: id}, nil)
}

// WaitSignal waits for what is sent to the run under a name.
func (k *Kit) WaitSignal(name string, timeout time.Duration) (json.RawMessage, error) {
	var out abi.Signal
	err := call("wait_signal", abi.WaitSignal{Name: name, Milliseconds: timeout.Milliseconds()}, &out)
	return out.Payload, err
}

// Fence marks a text as what somebody else wrote, for a prompt.
func (k *Kit) Fence(text, from string) (string, error) {
	var out abi.Fenced
	err := call("fence", abi.Foreign{Text: text, From: from}, &out)
	return out.Text, err
}

// Step does something of the loop's own once a run and keeps its result: randomness, the
// time, a long computation. After a crash within it, it is done again.
func Step[T any](k *Kit, name string, do func() (T, error)) (T, error) {
	return step(name, false, do)
}

// Once is Step for what must not be done again when a crash leaves it untold whether it
// was done: then its error is ErrUnknown.
func Once[T any](k *Kit, name string, do func() (T, error)) (T, error) {
	return step(name, true, do)
}

func step[T any](name string, once bool, do func() (T, error)) (out T, err error) {
	var begun abi.StepBegun
	if err := call("step_begin", abi.StepBegin{Name: name, Once: once}, &begun); err != nil {
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
	return out, call("step_end", abi.StepEnd{Name: name, Result: raw}, nil)
}

// Tool is a tool that the loop lends to the agent. Its name, description and parameters
// are in the manifest under provides.
type Tool func(k *Kit, input json.RawMessage) (any, error)

var (
	body  func(*Kit) error
	tools = map[string]Tool{}
)

// Main says what a run does. Call it in init.
func Main(run func(*Kit) error) { body = run }

// Provide says what a provided tool does. Call it in init.
func Provide(name string, do Tool) { tools[name] = do }

// call makes a host call with req as JSON, and reads its answer into out.
func call(name string, req, out any) error {
	raw, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return callRaw(name, raw, out)
}

func callRaw(name string, req []byte, out any) error {
	status, answer := host(name, req)
	switch status {
	case 0:
		if out == nil || len(answer) == 0 {
			return nil
		}
		return json.Unmarshal(answer, out)
	case 2, 3:
		return fmt.Errorf("%s: %w: %s", name, ErrRefused, answer)
	case 6:
		return fmt.Errorf("%s: %w: %s", name, ErrUnknown, answer)
	}
	return fmt.Errorf("%s: %s", name, answer)
}
