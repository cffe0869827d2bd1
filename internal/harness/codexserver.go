package harness

import (
	"encoding/json"
	"strings"
)

type codexParams struct {
	Thread codexThread     `json:"thread"`
	Item   codexServerItem `json:"item"`
	Turn   struct {
		Status string `json:"status"`
		Error  struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"turn"`
	Usage struct {
		Total struct {
			Input     count `json:"inputTokens"`
			Cached    count `json:"cachedInputTokens"`
			Write     count `json:"cacheWriteInputTokens"`
			Output    count `json:"outputTokens"`
			Reasoning count `json:"reasoningOutputTokens"`
		} `json:"total"`
	} `json:"tokenUsage"`
	ItemID  string          `json:"itemId"`
	Delta   string          `json:"delta"`
	Command json.RawMessage `json:"command"`
}

type codexThread struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Version string `json:"cliVersion"`
}

// codexServerItem is the item of exec in other words.
type codexServerItem struct {
	codexItem
	Output string `json:"aggregatedOutput"`
}

// server reads a line of app-server: JSON-RPC without its "jsonrpc".
func (c *codex) server(b *book, l *codexLine) {
	if l.Method == "" {
		c.answer(b, l)
		return
	}
	var p codexParams
	b.decode(l.Params, &p)
	switch l.Method {
	case "thread/started":
		c.thread(b, p.Thread)
	case "turn/started":
		b.open()
		b.rec.Turns++
	case "item/started", "item/completed":
		c.serverItem(b, &p.Item)
	case "thread/tokenUsage/updated":
		t := p.Usage.Total
		b.told(codexUsage(t.Input, t.Cached, t.Write, t.Output, t.Reasoning))
	case "item/agentMessage/delta":
		if c.speaking != p.ItemID {
			c.speaking = p.ItemID
			b.say("")
		}
		b.add(p.Delta)
	case "turn/completed":
		b.end(codexTurn(p.Turn.Status, p.Turn.Error.Message))
	case "configWarning", "remoteControl/status/changed", "thread/status/changed", "account/rateLimits/updated",
		"serverRequest/resolved", "deprecationNotice":
	default:
		if !strings.HasSuffix(l.Method, "/requestApproval") {
			b.unknown(l.Method)
			return
		}
		b.permission(Permission{ToolID: p.ItemID, Tool: approvalTool(l.Method), Input: textOf(p.Command), Decision: Asked})
	}
}

// approvalTool is "commandExecution" of "item/commandExecution/requestApproval".
func approvalTool(method string) string {
	return strings.TrimPrefix(strings.TrimSuffix(method, "/requestApproval"), "item/")
}

func codexTurn(status, message string) verdict {
	switch status {
	case "completed":
		return verdict{outcome: Completed, reason: status}
	case "interrupted":
		return verdict{outcome: Interrupted, reason: status, err: message}
	}
	v := codexFailed(message)
	v.reason = status
	return v
}

func (c *codex) thread(b *book, t codexThread) {
	b.session(t.ID)
	b.model(t.Model)
	b.version(t.Version)
	b.begun = true
}

// answer reads the answer to a request of ours; only those about a thread say
// something of the run.
func (c *codex) answer(b *book, l *codexLine) {
	var e struct{ Message string }
	if b.decode(l.Error, &e); e.Message != "" {
		b.warn(WarnNotice, e.Message)
	}
	var r struct {
		Thread codexThread `json:"thread"`
		Model  string      `json:"model"`
	}
	if len(l.Result) > 0 && l.Result[0] == '{' {
		b.decode(l.Result, &r)
	}
	if r.Thread.ID != "" {
		c.thread(b, r.Thread)
		b.model(r.Model)
	}
}

func (c *codex) serverItem(b *book, i *codexServerItem) {
	item := i.codexItem
	item.Output = i.Output
	switch i.Type {
	case "userMessage", "reasoning":
		return
	case "agentMessage":
		if item.Type = "agent_message"; item.Text == "" {
			return // it only began
		}
	case "commandExecution":
		item.Type = "command_execution"
	case "fileChange":
		item.Type = "file_change"
	case "mcpToolCall":
		item.Type = "mcp_tool_call"
	}
	c.item(b, &item)
	switch codexOutcome(i.Status) {
	case ToolOK, ToolError:
		b.decided(i.ID, Allowed)
	case ToolDenied:
		b.decided(i.ID, Refusal)
	}
}
