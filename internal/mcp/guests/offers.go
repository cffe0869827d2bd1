package guests

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/wire"
)

// Offers are the tools a client can try: those of which something was granted to it.
// What a single call needs is decided when it is made.
func (c *Clients) Offers(ctx context.Context, name string) ([]wire.MCPTool, error) {
	subject := Prefix + name
	held, err := c.Granted.For(ctx, subject, subject)
	if err != nil {
		return nil, err
	}
	in := c.Permit(subject, held)
	out := []wire.MCPTool{}
	if len(held.Rules) == 0 {
		return out, nil
	}
	for _, d := range c.Tools.List() {
		if d.Only != "" || d.Within || d.Lent || !c.reachable(&in, d) {
			continue
		}
		out = append(out, wire.MCPTool{
			Name: d.Name, Description: d.Description, Input: d.Input, ReadOnly: d.ReadOnly, Destructive: !d.ReadOnly && d.Irreversible,
			Repeatable: d.ReadOnly || d.Repeat == tool.Repeatable,
		})
	}
	return out, nil
}

// reachable reports whether a call of a tool may be allowed. What it needs depends on its
// input, so an example is asked. Where there is none the name tells, as that of shell.exec
// does; a tool of which nothing can be told is offered.
func (c *Clients) reachable(in *policy.Input, d tool.Definition) bool {
	needs, known := c.exampleNeeds(d)
	if !known {
		named, err := scope.Parse(d.Name)
		if err != nil {
			return true
		}
		needs = []scope.Scope{named}
	}
	for _, need := range needs {
		if most, _ := in.Reach(scope.Unqualified(need.Base())); most == policy.Deny {
			return false
		}
	}
	return true
}

func (c *Clients) exampleNeeds(d tool.Definition) (needs []scope.Scope, known bool) {
	input := example(d.Input)
	if input == nil || c.Tools.Validate(d.Name, input) != nil { // Scopes takes only what fits the schema
		return nil, false
	}
	input, err := tool.Canonical(input)
	if err != nil {
		return nil, false
	}
	needs, err = d.Scopes(input)
	return needs, err == nil
}

// shape is as much of a JSON Schema as an example needs.
type shape struct {
	Type       json.RawMessage   `json:"type"`
	Enum       []json.RawMessage `json:"enum"`
	Required   []string          `json:"required"`
	Properties map[string]shape  `json:"properties"`
	Items      *shape            `json:"items"`
	MinItems   int               `json:"minItems"`
	MinLength  int               `json:"minLength"`
	Minimum    json.Number       `json:"minimum"`
}

// maxDepth is how deep examples go.
const maxDepth = 8

// example is an input that may fit a schema, nil if the schema is none.
func example(schema json.RawMessage) json.RawMessage {
	var s shape
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	return s.value("", 0)
}

func (s shape) value(name string, depth int) json.RawMessage {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	var kind string
	if json.Unmarshal(s.Type, &kind) != nil && depth > 0 {
		return json.RawMessage(`"x"`) // several kinds, most often text among them
	}
	switch kind {
	case "array":
		list := []json.RawMessage{}
		for i := 0; i < min(max(1, s.MinItems), 4) && s.Items != nil && depth < maxDepth; i++ {
			list = append(list, s.Items.value(name, depth+1))
		}
		return encoded(list)
	case "integer", "number":
		if s.Minimum != "" {
			return json.RawMessage(s.Minimum)
		}
		return json.RawMessage("1")
	case "boolean":
		return json.RawMessage("false")
	case "string":
		if strings.Contains(name, "url") {
			return json.RawMessage(`"https://example.com/"`)
		}
		return encoded(strings.Repeat("x", min(max(1, s.MinLength), 256)))
	}
	object := map[string]json.RawMessage{}
	for _, key := range s.Required {
		if depth < maxDepth {
			object[key] = s.Properties[key].value(key, depth+1)
		}
	}
	return encoded(object)
}

func encoded(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null") // an enum of the schema was no JSON
	}
	return raw
}
