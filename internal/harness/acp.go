package harness

import (
	"encoding/json"
	"strings"
)

// acp reads the agent's side of the Agent Client Protocol, version 1.
type acp struct {
	fresh  bool // the next words begin a new text
	denied bool // the last thing that happened is that a tool was refused

	edits map[string][]string // the files of editing tools that have not ended, by their ids
}

type acpLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Session string      `json:"sessionId"`
		Update  acpUpdate   `json:"update"`
		Call    acpToolCall `json:"toolCall"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  struct {
		Message string `json:"message"`
	} `json:"error"`
}

type acpToolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"`
	Input     json.RawMessage `json:"rawInput"`
	Output    json.RawMessage `json:"rawOutput"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
}

type acpUpdate struct {
	acpToolCall
	Type    string          `json:"sessionUpdate"`
	Content json.RawMessage `json:"content"` // of a message one block, of a tool a list
}

type acpResult struct {
	Session string `json:"sessionId"`
	Agent   struct {
		Version string `json:"version"`
	} `json:"agentInfo"`
	Models struct {
		Current string `json:"currentModelId"`
	} `json:"models"`
	Stop  string `json:"stopReason"`
	Usage *struct {
		Input  count `json:"inputTokens"`
		Output count `json:"outputTokens"`
		Read   count `json:"cachedReadTokens"`
		Write  count `json:"cachedWriteTokens"`
	} `json:"usage"`
	Meta struct {
		Quota struct {
			Tokens *struct {
				Input  count `json:"input_tokens"`
				Output count `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

func (a *acp) line(b *book, raw []byte) {
	var l acpLine
	b.decode(raw, &l)
	b.session(l.Params.Session)
	switch l.Method {
	case "":
		a.answer(b, &l)
	case "session/update":
		a.update(b, &l.Params.Update)
	case "session/request_permission":
		c := l.Params.Call
		if b.find(c.ID) == nil { // its input here is made for a person to read
			b.call(c.ID, c.Title, string(c.Input))
		}
		b.permission(Permission{ToolID: c.ID, Tool: c.Title, Input: string(c.Input), Decision: Asked})
	case "fs/write_text_file", "fs/read_text_file": // asked of us, even by an agent that was told we cannot
	default:
		b.unknown(l.Method)
	}
}

func (a *acp) update(b *book, u *acpUpdate) {
	switch u.Type {
	case "agent_message_chunk":
		b.open()
		a.denied = false
		if a.fresh {
			b.say("")
			a.fresh = false
		}
		var block struct{ Text string }
		b.decode(u.Content, &block)
		b.add(block.Text)
	case "tool_call", "tool_call_update":
		b.open()
		a.fresh = true
		a.tool(b, u)
	case "available_commands_update", "agent_thought_chunk", "user_message_chunk", "usage_update":
	default:
		b.unknown("session/update/" + u.Type)
	}
}

func (a *acp) tool(b *book, u *acpUpdate) {
	b.call(u.ID, u.Title, string(u.Input))
	a.denied = false
	a.edit(b, u)
	switch u.Status {
	case "completed":
		b.result(u.ID, ToolOK, a.output(b, u))
		b.decided(u.ID, Allowed)
		if t := b.find(u.ID); t != nil && t.path != "" {
			break // its input named the file
		}
		for _, path := range a.edits[word(u.ID)] {
			b.touched(path, "edit")
		}
	case "failed":
		output := a.output(b, u)
		if strings.Contains(output, rejected) {
			b.decided(u.ID, Refusal)
			a.denied = true
		}
		b.result(u.ID, ToolError, output)
	}
}

// edit remembers which files a tool edits: the update that says it is done need not.
func (a *acp) edit(b *book, u *acpUpdate) {
	if u.Kind != "edit" || len(u.Locations) == 0 {
		return
	}
	if a.edits == nil {
		a.edits = map[string][]string{}
	}
	id := word(u.ID)
	if _, had := a.edits[id]; !had && len(a.edits) >= maxTools {
		return
	}
	a.edits[id] = nil
	for _, at := range u.Locations[:min(len(u.Locations), maxFiles)] {
		a.edits[id] = append(a.edits[id], b.cut(at.Path, maxPath, "path"))
	}
}

// output is what the tool's content shows, else its raw output.
func (a *acp) output(b *book, u *acpUpdate) string {
	var shown []struct {
		Content struct{ Text string }
	}
	if len(u.Content) > 0 && u.Content[0] == '[' {
		b.decode(u.Content, &shown)
	}
	var all []string
	for _, s := range shown {
		if s.Content.Text != "" {
			all = append(all, s.Content.Text)
		}
	}
	if len(all) == 0 {
		return string(u.Output)
	}
	return strings.Join(all, "\n")
}

// answer reads the answer to a request of ours: the one to a prompt closes it.
func (a *acp) answer(b *book, l *acpLine) {
	if l.Error.Message != "" {
		b.warn(WarnNotice, l.Error.Message)
	}
	if len(l.Result) == 0 || l.Result[0] != '{' {
		return
	}
	var r acpResult
	b.decode(l.Result, &r)
	b.session(r.Session)
	b.version(r.Agent.Version)
	b.model(r.Models.Current)
	if r.Session != "" {
		b.begun = true
	}
	if r.Stop == "" {
		return
	}
	b.rec.Turns++
	a.usage(b, &r)
	v := verdict{outcome: Failed, reason: r.Stop}
	switch r.Stop {
	case "end_turn":
		if v.outcome = Completed; a.denied {
			v.outcome = Denied // opencode stops there, and calls it an end like any other
		}
	case "cancelled":
		v.outcome = Interrupted
	case "refusal":
		v.outcome = Refused
	case "max_tokens", "max_turn_requests":
		v.outcome = Limit
	}
	b.end(v)
	a.fresh, a.denied = true, false
}

func (a *acp) usage(b *book, r *acpResult) {
	if u := r.Usage; u != nil {
		b.spent(Usage{Input: int64(u.Input), CacheRead: int64(u.Read), CacheWrite: int64(u.Write), Output: int64(u.Output)})
		b.rec.Usage.Partial = true // opencode tells that of its last step only
	}
	if t := r.Meta.Quota.Tokens; t != nil {
		b.spent(Usage{Input: int64(t.Input), Output: int64(t.Output)})
		b.warn(WarnCachedInput, "")
	}
}
