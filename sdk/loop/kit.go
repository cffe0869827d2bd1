package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Trigger is what started the run.
type Trigger = abi.Trigger

// noTrigger carries an error out of a loop's code, which Trigger cannot return.
type noTrigger struct{ error }

// Trigger returns what started the run. It is the same in every attempt. Without the host
// function trigger in the manifest the run fails here.
func (k *Kit) Trigger() Trigger {
	if k.t == nil {
		var t Trigger
		if err := k.bare("trigger", nil, &t); err != nil {
			panic(noTrigger{err})
		}
		k.t = &t
	}
	return *k.t
}

// Payload reads what the run was started with into a value, as JSON is read. With nothing
// it leaves the value as it is.
func (k *Kit) Payload(into any) error {
	raw := k.Trigger().Payload
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}

// Level is how much a line of the log matters.
type Level string

// The levels.
const (
	Debug Level = "debug"
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// Log keeps a line with fields, given as key, value, key, value. It needs the host function
// write_log.
func (k *Kit) Log(level Level, text string, fields ...string) {
	var m map[string]string
	if len(fields) > 1 {
		m = make(map[string]string, len(fields)/2)
	}
	for n := 0; n+1 < len(fields); n += 2 {
		m[fields[n]] = fields[n+1]
	}
	_ = k.call("write_log", abi.Line{Level: string(level), Text: text, Fields: m}, nil) // a log that fails has nobody to tell
}

// Progress says how far a long run is.
func (k *Kit) Progress(text string, done, total int) {
	_ = k.call("progress", abi.Progress{Text: text, Done: done, Total: total}, nil) // as with Log
}

// Config is a setting that the operator gave the loop, "" if it is not set.
func (k *Kit) Config(key string) (string, error) {
	var out abi.Value
	err := k.bare("config", []byte(key), &out)
	return out.Value, err
}

// Recall searches the memory: at most limit hits, 5 if it is 0.
func (k *Kit) Recall(query string, limit int) ([]string, error) {
	var out abi.Hits
	err := k.call("recall", abi.Recall{Query: query, Limit: limit}, &out)
	return out.Hits, err
}

// Remember keeps a fact.
func (k *Kit) Remember(fact string) error {
	return k.call("remember", abi.Fact{Fact: fact}, nil)
}

// Notify sends the operator a notice.
func (k *Kit) Notify(title, body string) error {
	return k.call("notify", abi.Notice{Title: title, Body: body}, nil)
}

// Ask gives the agent an instruction and returns its answer. Meanwhile the agent has the
// tools that the loop provides.
func (k *Kit) Ask(prompt string) (string, error) { return k.prompted("ask", prompt) }

// Harness gives a coding agent an instruction and returns its answer.
func (k *Kit) Harness(prompt string) (string, error) { return k.prompted("harness", prompt) }

// Summarize has a model summarise.
func (k *Kit) Summarize(prompt string) (string, error) { return k.prompted("summarize", prompt) }

// Gateway asks a model once. It has no tools but those that lend names and the host lends.
func (k *Kit) Gateway(prompt string, lend ...string) (string, error) {
	return k.prompted("gateway", prompt, lend...)
}

func (k *Kit) prompted(fn, prompt string, lend ...string) (string, error) {
	var out abi.Answer
	err := k.call(fn, abi.Prompt{Prompt: prompt, Lend: lend}, &out)
	return out.Answer, err
}

// Propose puts an action before the operator. The run goes on; once it is accepted, the
// agent is told to do it.
func (k *Kit) Propose(title, summary, action string) error {
	return k.call("propose", abi.Proposal{Title: title, Summary: summary, Action: action}, nil)
}

// Remind sets a reminder; due is a time in RFC 3339.
func (k *Kit) Remind(title, due, notes string) error {
	return k.call("remind", abi.Reminder{Title: title, Due: due, Notes: notes}, nil)
}

// Request is a web request.
type Request = abi.Request

// Response is the answer to a Request.
type Response = abi.Response

// HTTP makes a web request to a host that the manifest names under capabilities, as
// http:HOST. A status of 400 and above is an answer and no error.
func (k *Kit) HTTP(r Request) (out Response, err error) {
	err = k.call("http", r, &out)
	return out, err
}

// Tool calls a tool that the manifest names under tools. input is anything that JSON can
// hold as an object, or nil.
func (k *Kit) Tool(name string, input any) (string, error) {
	var raw json.RawMessage
	if input != nil {
		var err error
		if raw, err = json.Marshal(input); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	var out abi.ToolResult
	if err := k.call("tool", abi.ToolCall{Name: name, Input: raw}, &out); err != nil {
		return "", err
	}
	if out.Error != "" {
		return out.Output, fmt.Errorf("%s: %s", name, out.Error)
	}
	return out.Output, nil
}

// Keep keeps a short note under a group and a key, for ttl, or for good if it is 0. It
// outlives the run. It needs the host function short_set, and the others of its kind
// short_get, short_all and short_forget.
func (k *Kit) Keep(group, key, value string, ttl time.Duration) error {
	return k.call("short_set", abi.Note{Group: group, Key: key, Value: value, TTLSeconds: seconds(ttl)}, nil)
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
	err = k.call("short_get", abi.NoteKey{Group: group, Key: key}, &out)
	return out.Value, out.Found, err
}

// AllKept returns the notes of a group by their keys.
func (k *Kit) AllKept(group string) (map[string]string, error) {
	var out abi.Entries
	if err := k.call("short_all", abi.Group{Group: group}, &out); err != nil {
		return nil, err
	}
	all := make(map[string]string, len(out.Entries))
	for _, e := range out.Entries {
		all[e.Key] = e.Value
	}
	return all, nil
}

// Forget deletes a note.
func (k *Kit) Forget(group, key string) error {
	return k.call("short_forget", abi.NoteKey{Group: group, Key: key}, nil)
}

// RunLoop starts another loop.
func (k *Kit) RunLoop(name string) error { return k.bare("run_loop", []byte(name), nil) }

// Fence marks a text as what somebody else wrote, for a prompt.
func (k *Kit) Fence(text, from string) (string, error) {
	var out abi.Fenced
	err := k.call("fence", abi.Foreign{Text: text, From: from}, &out)
	return out.Text, err
}

// ChatSummary is the stored summary of one chat.
type ChatSummary = abi.ChatSummary

// ChatSummary returns the stored summary of a chat, nil if there is none. It needs the host
// function chat_summary_get, and SaveChatSummary chat_summary_save.
func (k *Kit) ChatSummary(jid string) (*ChatSummary, error) {
	var out abi.Summary
	if err := k.call("chat_summary_get", abi.Chat{JID: jid}, &out); err != nil {
		return nil, err
	}
	return out.Summary, nil
}

// SaveChatSummary stores the summary of a chat.
func (k *Kit) SaveChatSummary(s ChatSummary) error { return k.call("chat_summary_save", s, nil) }

// OperatorChats are the chats that are the operator's own.
func (k *Kit) OperatorChats() ([]string, error) {
	var out abi.Chats
	err := k.bare("operator_chats", nil, &out)
	return out.Chats, err
}

// HostTool tells where a helper program of the host is, by its name.
func (k *Kit) HostTool(name string) (string, error) {
	var out abi.Value
	err := k.bare("hosttool", []byte(name), &out)
	return out.Value, err
}
