package model

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/guard"
)

const maxBadInput = 4 << 10

// cleanJSON returns the JSON text raw as guard leaves it, compact. It reports false
// if raw is no JSON.
func cleanJSON(raw []byte) (json.RawMessage, bool) {
	clean, err := guard.CleanJSON(raw)
	if err != nil {
		return nil, false
	}
	var out bytes.Buffer
	if json.Compact(&out, clean) != nil {
		return nil, false
	}
	return out.Bytes(), true
}

// NewCall makes a ToolCall of what a provider sent as its arguments. Nothing at
// all is an empty object; what is no JSON object goes into BadInput.
func NewCall(id, name, arguments string) ToolCall {
	call := ToolCall{ID: guard.CleanText(id), Name: guard.CleanText(name)}
	if strings.TrimSpace(arguments) == "" {
		arguments = "{}"
	}
	if input, ok := cleanJSON([]byte(arguments)); ok && input[0] == '{' {
		call.Input = input
		return call
	}
	bad := guard.CleanText(arguments)
	if len(bad) > maxBadInput {
		bad = strings.ToValidUTF8(bad[:maxBadInput], "")
	}
	call.BadInput = bad
	return call
}

// NumberCalls gives every call of one answer an ID of its own; some servers send
// none, or one for all.
func NumberCalls(calls []ToolCall) {
	seen := map[string]bool{}
	for i := range calls {
		id := calls[i].ID
		for n := i + 1; id == "" || seen[id]; n++ {
			id = "call_" + strconv.Itoa(n)
		}
		calls[i].ID, seen[id] = id, true
	}
}
