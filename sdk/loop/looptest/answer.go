package looptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

// The bounds of a group of notes.
const (
	maxNotes     = 1000
	maxNoteBytes = 256 << 10
)

// answer does what a host function does.
func (h *Host) answer(name string, request []byte) (int32, []byte) {
	out, err := h.do(name, request)
	var status int32
	var known statusError
	switch {
	case errors.As(err, &known):
		status = known.status
	case err != nil:
		status = failed
	}
	if err != nil {
		return status, []byte(err.Error())
	}
	if out == nil {
		return ok, nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return failed, []byte(err.Error())
	}
	return ok, raw
}

// statusError is an error with a status of its own.
type statusError struct {
	status int32
	error
}

// read reads a request and hands it on.
func read[Req any](raw []byte, do func(Req) (any, error)) (any, error) {
	var req Req
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, statusError{malformed, err}
	}
	return do(req)
}

// keep appends to a list.
func keep[T any](list *[]T) func(T) (any, error) {
	return func(v T) (any, error) {
		*list = append(*list, v)
		return nil, nil
	}
}

func (h *Host) do(name string, raw []byte) (any, error) {
	switch name {
	case "log":
		h.log(abi.Line{Level: "info", Text: string(raw)}, len(raw))
		return nil, nil
	case "write_log":
		return read(raw, func(l abi.Line) (any, error) {
			h.log(l, len(raw))
			return nil, nil
		})
	case "progress":
		return read(raw, keep(&h.Progress))
	case "trigger":
		t := h.Trigger
		if t.Kind == "" {
			t.Kind = "manual"
		}
		t.Loop = h.m.name
		return t, nil
	case "config":
		return abi.Value{Value: h.Config[string(raw)]}, nil
	case "hosttool":
		return abi.Value{Value: h.HostTools[string(raw)]}, nil
	case "operator_chats":
		return abi.Chats{Chats: h.OperatorChats}, nil
	case "fence":
		return read(raw, func(f abi.Foreign) (any, error) {
			return abi.Fenced{Text: "<<<FOREIGN from " + f.From + "\n" + f.Text + "\nFOREIGN>>>"}, nil
		})
	case "step_begin":
		return read(raw, h.stepBegin)
	case "step_end":
		return read(raw, h.stepEnd)
	case "notify":
		return read(raw, keep(&h.Notices))
	case "propose":
		return read(raw, keep(&h.Proposals))
	case "remind":
		return read(raw, h.remind)
	}
	return h.reach(name, raw)
}

// reach does what needs an answer of the test, or of what is kept.
func (h *Host) reach(name string, raw []byte) (any, error) {
	switch name {
	case "ask":
		return h.prompted("Ask", h.Ask, raw)
	case "harness":
		return h.prompted("Harness", h.Harness, raw)
	case "gateway":
		return h.prompted("Gateway", h.Gateway, raw)
	case "summarize":
		return h.prompted("Summarize", h.Summarize, raw)
	case "http":
		return read(raw, h.http)
	case "tool":
		return read(raw, h.tool)
	case "run_loop":
		if h.RunLoop == nil {
			return nil, errors.New("the test sets no Host.RunLoop")
		}
		return nil, h.RunLoop(string(raw))
	case "recall":
		return read(raw, h.recall)
	case "remember":
		return read(raw, func(f abi.Fact) (any, error) { return keep(&h.Facts)(f.Fact) })
	case "after":
		return read(raw, h.after)
	case "cancel_after":
		return read(raw, func(a abi.CancelAfter) (any, error) {
			delete(h.Timers, a.ID)
			return nil, nil
		})
	case "wait_signal":
		return read(raw, h.waitSignal)
	case "chat_summary_get":
		return read(raw, func(c abi.Chat) (any, error) {
			s, there := h.Chats[c.JID]
			if !there {
				return abi.Summary{}, nil
			}
			return abi.Summary{Found: true, Summary: &s}, nil
		})
	case "chat_summary_save":
		return read(raw, func(s loop.ChatSummary) (any, error) {
			h.Chats[s.ChatJID] = s
			return nil, nil
		})
	}
	return h.note(name, raw)
}

func (h *Host) remind(r abi.Reminder) (any, error) {
	due, err := time.Parse(time.RFC3339, r.Due)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not a time; write it like 2026-03-04T17:00:00+01:00", r.Due)
	case !due.After(h.Time):
		return nil, fmt.Errorf("%s is in the past: it is %s now", r.Due, h.Time.Format(time.RFC3339))
	}
	return keep(&h.Reminders)(r)
}

func (h *Host) after(a abi.After) (any, error) {
	var object map[string]json.RawMessage
	if len(a.Payload) > 0 && json.Unmarshal(a.Payload, &object) != nil {
		return nil, statusError{malformed, errors.New("the payload of a timer is an object")}
	}
	h.Timers[a.ID] = Timer{h.Time.Add(milliseconds(a.Milliseconds)), a.Payload}
	return nil, nil
}

func (h *Host) log(l abi.Line, n int) {
	if h.printed > maxOutput || h.lines >= maxLines {
		return
	}
	h.lines++
	if h.printed += n; h.printed > maxOutput || h.lines >= maxLines {
		h.t.Logf("looptest: the loop logs more than %d bytes or %d lines; ombud drops the rest", maxOutput, maxLines-1)
		return
	}
	h.Logs = append(h.Logs, l)
}

func (h *Host) prompted(field string, answer func(string) (string, error), raw []byte) (any, error) {
	return read(raw, func(p abi.Prompt) (any, error) {
		if answer == nil {
			return nil, errors.New("the test sets no Host." + field)
		}
		text, err := answer(p.Prompt)
		return abi.Answer{Answer: text}, err
	})
}

func (h *Host) http(req loop.Request) (any, error) {
	if h.HTTP == nil {
		return nil, errors.New("the test sets no Host.HTTP")
	}
	if req.Method == "" {
		req.Method = "GET"
	}
	return h.HTTP(req)
}

// tool calls a tool. That it failed is an answer.
func (h *Host) tool(req abi.ToolCall) (any, error) {
	do, there := h.Tools[req.Name]
	if !there {
		return abi.ToolResult{Error: "the test sets no Host.Tools[" + req.Name + "]"}, nil
	}
	text, err := do(req.Input)
	if err != nil {
		return abi.ToolResult{Output: text, Error: err.Error()}, nil //nolint:nilerr // the loop is told
	}
	return abi.ToolResult{Output: text}, nil
}

func (h *Host) recall(req abi.Recall) (any, error) {
	if req.Limit <= 0 {
		req.Limit = 5
	}
	if h.Recall != nil {
		hits, err := h.Recall(req.Query, req.Limit)
		return abi.Hits{Hits: hits}, err
	}
	out := abi.Hits{Hits: []string{}}
	for _, f := range h.Facts {
		if len(out.Hits) < req.Limit && slices.ContainsFunc(strings.Fields(strings.ToLower(req.Query)), func(w string) bool {
			return strings.Contains(strings.ToLower(f), w)
		}) {
			out.Hits = append(out.Hits, f)
		}
	}
	return out, nil
}

func (h *Host) waitSignal(req abi.WaitSignal) (any, error) {
	payload, there := h.Signals[req.Name]
	switch {
	case there:
		delete(h.Signals, req.Name)
		return abi.Signal{Payload: payload}, nil
	case req.Milliseconds > 0:
		h.Time = h.Time.Add(milliseconds(req.Milliseconds))
		return nil, fmt.Errorf("no signal %q came in time", req.Name)
	}
	h.t.Errorf("looptest: the run waits for ever for the signal %q: set Host.Signals", req.Name)
	return nil, fmt.Errorf("no signal %q comes", req.Name)
}

// note does what has to do with notes.
func (h *Host) note(name string, raw []byte) (any, error) {
	switch name {
	case "short_set":
		return read(raw, h.setNote)
	case "short_get":
		return read(raw, func(key abi.NoteKey) (any, error) {
			n, there := h.group(key.Group)[key.Key]
			return abi.Kept{Value: n.value, Found: there}, nil
		})
	case "short_all":
		return read(raw, func(g abi.Group) (any, error) {
			out := abi.Entries{Entries: []abi.ShortMemory{}}
			group := h.group(g.Group)
			for _, key := range slices.Sorted(maps.Keys(group)) {
				out.Entries = append(out.Entries, abi.ShortMemory{Key: key, Value: group[key].value})
			}
			return out, nil
		})
	case "short_forget":
		return read(raw, func(key abi.NoteKey) (any, error) {
			delete(h.group(key.Group), key.Key)
			return nil, nil
		})
	}
	return nil, statusError{undeclared, fmt.Errorf("this test host does not have the function %q", name)}
}

// group is a group of notes without those whose time is over.
func (h *Host) group(name string) map[string]note {
	if name == "" {
		name = "default"
	}
	g := h.notes[name]
	if g == nil {
		g = map[string]note{}
		h.notes[name] = g
	}
	maps.DeleteFunc(g, func(_ string, n note) bool { return !n.until.IsZero() && !n.until.After(h.Time) })
	return g
}

func (h *Host) setNote(req abi.Note) (any, error) {
	g := h.group(req.Group)
	n := note{value: req.Value, read: h.read}
	if req.TTLSeconds > 0 {
		n.until = h.Time.Add(milliseconds(req.TTLSeconds * 1000))
	}
	size := len(req.Key) + len(req.Value)
	for key, other := range g {
		if key != req.Key {
			size += len(key) + len(other.value)
		}
	}
	if _, there := g[req.Key]; !there && len(g) >= maxNotes || size > maxNoteBytes {
		return nil, fmt.Errorf("the group %q is full: %d notes and %d bytes fit", req.Group, maxNotes, maxNoteBytes)
	}
	g[req.Key] = n
	return nil, nil
}

// Note returns a note that the loop keeps.
func (h *Host) Note(group, key string) (value string, found bool) {
	n, there := h.group(group)[key]
	return n.value, there
}

// stepBegin begins a step of the loop's own, or tells what it came to.
func (h *Host) stepBegin(req abi.StepBegin) (any, error) {
	s, begun := h.steps[req.Name]
	switch {
	case begun && s.done:
		h.at, h.kept = max(h.at, s.at), max(h.kept, s.kept)
		if s.read != "" {
			h.read = s.read
		}
		return abi.StepBegun{Done: true, Result: s.result}, nil
	case begun && s.cut && req.Once:
		return nil, statusError{unknown, fmt.Errorf("it cannot be told whether the step %s was done", req.Name)}
	}
	h.steps[req.Name] = &ownStep{}
	return abi.StepBegun{}, nil
}

func (h *Host) stepEnd(req abi.StepEnd) (any, error) {
	s := h.steps[req.Name]
	if s == nil || s.done {
		return nil, statusError{malformed, fmt.Errorf("the step %s is not begun", req.Name)}
	}
	if h.crashIn == req.Name {
		h.crashIn, s.cut = "", true
		h.stop(ErrCrashed)
	}
	h.keeps(len(req.Result))
	s.done, s.result, s.at, s.kept, s.read = true, slices.Clone(req.Result), h.at, h.kept, h.read
	return nil, nil
}
