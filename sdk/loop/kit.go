package loop

import (
	"bytes"
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
		answer, err := k.bare("trigger", nil)
		if err != nil {
			panic(noTrigger{err})
		}
		var t Trigger
		err = read(answer, func(s *scanner, name string) {
			switch name {
			case "loop":
				t.Loop = s.text()
			case "kind":
				t.Kind = s.text()
			case "payload":
				t.Payload = bytes.Clone(s.skip())
			default:
				s.skip()
			}
		})
		if err != nil {
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
	o := k.object().str("level", string(level)).str("text", text)
	if len(fields) > 1 {
		m := make(map[string]string, len(fields)/2)
		for n := 0; n+1 < len(fields); n += 2 {
			m[fields[n]] = fields[n+1]
		}
		o = o.texts("fields", m)
	}
	_ = k.do("write_log", o) // a log that fails has nobody to tell
}

// Progress says how far a long run is.
func (k *Kit) Progress(text string, done, total int) {
	_ = k.do("progress", k.object().str("text", text).int("done", int64(done)).int("total", int64(total))) // as with Log
}

// Config is a setting that the operator gave the loop, "" if it is not set.
func (k *Kit) Config(key string) (string, error) {
	answer, err := k.bare("config", []byte(key))
	if err != nil {
		return "", err
	}
	return textOf(answer, "value")
}

// Recall searches the memory: at most limit hits, 5 if it is 0.
func (k *Kit) Recall(query string, limit int) ([]string, error) {
	answer, err := k.send("recall", k.object().str("query", query).int("limit", int64(limit)))
	if err != nil {
		return nil, err
	}
	return textsOf(answer, "hits")
}

func textsOf(answer []byte, field string) (out []string, err error) {
	err = read(answer, func(s *scanner, name string) {
		if name != field {
			s.skip()
			return
		}
		s.items(func() { out = append(out, s.text()) })
	})
	return out, err
}

// Remember keeps a fact.
func (k *Kit) Remember(fact string) error {
	return k.do("remember", k.object().str("fact", fact))
}

// Notify sends the operator a notice.
func (k *Kit) Notify(title, body string) error {
	return k.do("notify", k.object().str("title", title).str("body", body))
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
	o := k.object().str("prompt", prompt)
	if len(lend) > 0 {
		raw, err := json.Marshal(lend)
		if err != nil {
			return "", fmt.Errorf("%s: %w", fn, err)
		}
		o = o.raw("lend", raw)
	}
	return k.text(fn, o, "answer")
}

// Propose puts an action before the operator. The run goes on; once it is accepted, the
// agent is told to do it.
func (k *Kit) Propose(title, summary, action string) error {
	return k.do("propose", k.object().str("Title", title).str("Summary", summary).str("Action", action))
}

// Remind sets a reminder; due is a time in RFC 3339.
func (k *Kit) Remind(title, due, notes string) error {
	return k.do("remind", k.object().str("Title", title).str("Due", due).str("Notes", notes))
}

// Request is a web request.
type Request = abi.Request

// Response is the answer to a Request.
type Response = abi.Response

// HTTP makes a web request to a host that the manifest names under capabilities, as
// http:HOST. A status of 400 and above is an answer and no error.
func (k *Kit) HTTP(r Request) (out Response, err error) {
	answer, err := k.send("http", k.object().str("method", r.Method).str("url", r.URL).texts("headers", r.Headers).str("body", r.Body))
	if err != nil {
		return out, err
	}
	err = read(answer, func(s *scanner, name string) {
		switch name {
		case "status":
			out.Status = s.number()
		case "body":
			out.Body = s.text()
		default:
			s.skip()
		}
	})
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
	answer, err := k.send("tool", k.object().str("name", name).raw("input", raw))
	if err != nil {
		return "", err
	}
	var output, failure string
	err = read(answer, func(s *scanner, field string) {
		switch field {
		case "output":
			output = s.text()
		case "error":
			failure = s.text()
		default:
			s.skip()
		}
	})
	if err == nil && failure != "" {
		err = fmt.Errorf("%s: %s", name, failure)
	}
	return output, err
}

// Keep keeps a short note under a group and a key, for ttl, or for good if it is 0. It
// outlives the run. It needs the host function short_set, and the others of its kind
// short_get, short_all and short_forget.
func (k *Kit) Keep(group, key, value string, ttl time.Duration) error {
	return k.do("short_set", k.object().str("Group", group).str("Key", key).str("Value", value).int("ttl_seconds", seconds(ttl)))
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
	answer, err := k.send("short_get", k.object().str("Group", group).str("Key", key))
	if err != nil {
		return "", false, err
	}
	err = read(answer, func(s *scanner, name string) {
		switch name {
		case "value":
			value = s.text()
		case "found":
			found = s.truth()
		default:
			s.skip()
		}
	})
	return value, found, err
}

// AllKept returns the notes of a group by their keys.
func (k *Kit) AllKept(group string) (map[string]string, error) {
	answer, err := k.send("short_all", k.object().str("Group", group))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	err = read(answer, func(s *scanner, name string) {
		if name != "entries" {
			s.skip()
			return
		}
		s.items(func() {
			var key, value string
			s.fields(func(name string) {
				switch name {
				case "key":
					key = s.text()
				case "value":
					value = s.text()
				default:
					s.skip()
				}
			})
			all[key] = value
		})
	})
	return all, err
}

// Forget deletes a note.
func (k *Kit) Forget(group, key string) error {
	return k.do("short_forget", k.object().str("Group", group).str("Key", key))
}

// RunLoop starts another loop.
func (k *Kit) RunLoop(name string) error {
	_, err := k.bare("run_loop", []byte(name))
	return err
}

// Fence marks a text as what somebody else wrote, for a prompt.
func (k *Kit) Fence(text, from string) (string, error) {
	return k.text("fence", k.object().str("text", text).str("from", from), "text")
}

// ChatSummary is the stored summary of one chat.
type ChatSummary = abi.ChatSummary

// ChatSummary returns the stored summary of a chat, nil if there is none. It needs the host
// function chat_summary_get, and SaveChatSummary chat_summary_save.
func (k *Kit) ChatSummary(jid string) (*ChatSummary, error) {
	answer, err := k.send("chat_summary_get", k.object().str("JID", jid))
	if err != nil || len(answer) == 0 {
		return nil, err
	}
	var out abi.Summary
	if err := json.Unmarshal(answer, &out); err != nil {
		return nil, fmt.Errorf("chat_summary_get: %w", err)
	}
	return out.Summary, nil
}

// SaveChatSummary stores the summary of a chat.
func (k *Kit) SaveChatSummary(s ChatSummary) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("chat_summary_save: %w", err)
	}
	_, err = k.bare("chat_summary_save", raw)
	return err
}

// OperatorChats are the chats that are the operator's own.
func (k *Kit) OperatorChats() ([]string, error) {
	answer, err := k.bare("operator_chats", nil)
	if err != nil {
		return nil, err
	}
	return textsOf(answer, "chats")
}

// HostTool tells where a helper program of the host is, by its name.
func (k *Kit) HostTool(name string) (string, error) {
	answer, err := k.bare("hosttool", []byte(name))
	if err != nil {
		return "", err
	}
	return textOf(answer, "value")
}
