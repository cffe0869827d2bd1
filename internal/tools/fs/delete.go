package fs

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const deleteSchema = `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096,"description":"file, relative to the working directory"}}}`

type deleteInput struct {
	Path string `json:"path"`
}

func (t *Tools) deleteDefinition() tool.Definition {
	return tool.Definition{
		Name:        "fs.delete",
		Description: "Delete one file, link or empty directory of the working directory. A link goes, not what it points to.",
		Input:       json.RawMessage(deleteSchema), Kind: tool.Effect, Irreversible: true, Repeat: tool.Probed,
		Timeout: timeout, MaxOutput: 4 << 10, Source: label.Own,
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[deleteInput](input)
			if err != nil {
				return nil, err
			}
			path, err := t.root.Removable(in.Path)
			return need("fs.delete", path, err)
		},
		Summary: func(input json.RawMessage) string {
			in, _ := tool.Decode[deleteInput](input) // validated; an empty path is shown as ""
			return "delete " + tool.Show(in.Path)
		},
		Destination: inWorkspace,
		Touches: func(input json.RawMessage) []string {
			in, _ := tool.Decode[deleteInput](input) // validated
			return touched(t.root.Removable(in.Path))
		},
		Probe: t.probeDelete,
	}
}

func (t *Tools) delete(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[deleteInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return tool.Output{}, err
	}
	path, err := t.root.Removable(in.Path)
	if err != nil {
		return tool.Output{}, err
	}
	if err := t.root.Remove(in.Path); err != nil {
		return tool.Output{}, err
	}
	return deleted(in), t.labels.Drop(ctx, path)
}

func deleted(in deleteInput) tool.Output {
	return tool.Output{Text: "deleted " + tool.Show(in.Path)}
}

// probeDelete takes a path that is gone for deleted.
func (t *Tools) probeDelete(_ context.Context, inv tool.Invocation) (tool.ProbeResult, error) {
	in, err := tool.Decode[deleteInput](inv.Input)
	if err != nil {
		return tool.ProbeResult{State: tool.Unclear}, err
	}
	there, err := t.root.Exists(in.Path)
	switch {
	case err != nil:
		return tool.ProbeResult{State: tool.Unclear}, err
	case !there:
		return tool.ProbeResult{State: tool.Done, Output: deleted(in)}, nil
	}
	return tool.ProbeResult{State: tool.NotDone}, nil
}
