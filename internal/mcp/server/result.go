package server

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// record is a call's result in structuredContent. The text is in it too: some clients
// show their model this and nothing else.
type record struct {
	Status   string      `json:"status"` // ok, failed, refused, waiting, unknown
	Text     string      `json:"text"`
	Tool     string      `json:"tool,omitempty"`
	Run      string      `json:"run,omitempty"`      // `ombud explain` tells its life
	Class    fault.Class `json:"class,omitempty"`    // of what is not ok
	Approval string      `json:"approval,omitempty"` // the question it waits for or was decided by
	Handle   string      `json:"handle,omitempty"`   // of the whole result, where text is not all of it
	Cut      bool        `json:"cut,omitempty"`      // the result went over the tool's limit
	Label    string      `json:"label,omitempty"`    // who wrote the result and who may read it
}

// resultOf is what a call came to as the protocol has it. What is not ok is an error
// that the model is shown, so that it can do something else.
func resultOf(r wire.JobCallResult) *mcp.CallToolResult {
	out := record{
		Status: r.Status, Text: r.Text, Tool: r.Tool, Run: r.RunID, Class: r.Class, Approval: r.Approval, Handle: r.BlobID, Cut: r.Cut, Label: r.Label,
	}
	waits := r.Class == fault.Waiting
	if waits {
		out.Status = "waiting"
		out.Text = "not done yet: it waits for the operator's approval " + r.Approval + " (ombud approve " + r.Approval + "). " +
			"Make the same call with the same arguments again to learn what became of it."
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: out.Text}}, StructuredContent: out, IsError: r.Status != "ok" && !waits,
	}
}
