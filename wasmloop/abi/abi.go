// Package abi is what a loop and its host say to each other: the request and the answer of
// each host call, as JSON. Both sides are written with it, so that neither can say what
// the other does not read. Where a field has a capital in JSON, KARMAX writes it so.
package abi

import "encoding/json"

// Trigger answers "trigger": what started the run. Payload is an object or null.
type Trigger struct {
	Loop    string          `json:"loop"`
	Kind    string          `json:"kind"` // schedule, event, webhook, timer, manual or retry
	Payload json.RawMessage `json:"payload"`
}

// Value answers "config" and "hosttool", whose request is the bare name.
type Value struct {
	Value string `json:"value"`
}

// Chats answers "operator_chats".
type Chats struct {
	Chats []string `json:"chats"`
}

// Recall is the request of "recall". A limit of 0 is 5.
type Recall struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

// Hits answers it.
type Hits struct {
	Hits []string `json:"hits"`
}

// Fact is the request of "remember".
type Fact struct {
	Fact string `json:"fact"`
}

// Notice is the request of "notify".
type Notice struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

// Prompt is the request of "ask", "harness", "summarize" and "gateway". Only a gateway
// lends.
type Prompt struct {
	Prompt string   `json:"prompt"`
	Lend   []string `json:"lend,omitempty"`
}

// Answer answers it.
type Answer struct {
	Answer string `json:"answer"`
}

// Proposal is the request of "propose".
type Proposal struct {
	Title, Summary, Action string
}

// Reminder is the request of "remind". Due is a time in RFC 3339.
type Reminder struct {
	Title, Due, Notes string
}

// Request is that of "http". No method is GET.
type Request struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Response answers it.
type Response struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// ToolCall is the request of "tool", and of a tool that the loop provides. Input is an
// object.
type ToolCall struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// ToolResult answers "tool". An empty error means that it worked.
type ToolResult struct {
	Output string `json:"output"`
	Error  string `json:"error"`
}

// Failed is what a provided tool answers that failed.
type Failed struct {
	Error string `json:"error"`
}

// Note is the request of "short_set". 0 seconds or less is for good.
type Note struct {
	Group, Key, Value string
	TTLSeconds        int64 `json:"ttl_seconds"`
}

// NoteKey is the request of "short_get" and "short_forget".
type NoteKey struct {
	Group, Key string
}

// Kept answers "short_get".
type Kept struct {
	Value string `json:"value"`
	Found bool   `json:"found"`
}

// Group is the request of "short_all".
type Group struct {
	Group string
}

// Entries answers it.
type Entries struct {
	Entries []ShortMemory `json:"entries"`
}

// ShortMemory is one short-term working note.
type ShortMemory struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Chat is the request of "chat_summary_get".
type Chat struct {
	JID string
}

// Summary answers it.
type Summary struct {
	Found   bool         `json:"found"`
	Summary *ChatSummary `json:"summary"`
}

// ChatSummary is the stored summary of one chat, and the request of "chat_summary_save".
type ChatSummary struct {
	ChatJID         string `json:"jid"`
	ChatName        string `json:"name"`
	IsGroup         bool   `json:"is_group"`
	Summary         string `json:"summary"`
	MessageCount    int    `json:"message_count"`
	OwnMessageCount int    `json:"own_count"`
	// Unix seconds, because a guest and a host do not share a time.Time.
	LastMessageAt int64  `json:"last_message_at"`
	SummarizedAt  int64  `json:"summarized_at"`
	Status        string `json:"status"` // pending, summarized, hot or skipped
}
