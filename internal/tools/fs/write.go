package fs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const maxWrite = 1 << 20 // bytes

const writeSchema = `{"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096,"description":"file, relative to the working directory"},
"content":{"type":"string","maxLength":1048576,"description":"the whole new content"}}}`

type writeInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (t *Tools) writeDefinition() tool.Definition {
	return tool.Definition{
		Name: "fs.write",
		Description: "Write a text file in the working directory. An existing file is replaced as a whole; missing " +
			"directories are made. At most 1 MiB.",
		Input: json.RawMessage(writeSchema), Kind: tool.Effect, Irreversible: true, Repeat: tool.Probed,
		Timeout: timeout, MaxOutput: 4 << 10, Source: label.Own,
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[writeInput](input)
			if err != nil {
				return nil, err
			}
			path, err := t.root.Writable(in.Path)
			return need("fs.write", path, err)
		},
		Undoable:    t.isNew,
		Destination: inWorkspace,
		Touches: func(input json.RawMessage) []string {
			in, _ := tool.Decode[writeInput](input) // validated
			return touched(t.root.Writable(in.Path))
		},
		Summary: t.writeSummary,
		Probe:   t.probeWrite,
	}
}

// isNew reports whether a write makes a file: that can be taken back, while what a
// replaced file held is gone.
func (t *Tools) isNew(input json.RawMessage) bool {
	in, err := tool.Decode[writeInput](input)
	if err != nil {
		return false
	}
	there, err := t.root.Exists(in.Path)
	return err == nil && !there
}

// writeSummary tells a person also what would be lost.
func (t *Tools) writeSummary(input json.RawMessage) string {
	in, _ := tool.Decode[writeInput](input) // validated; an empty path is shown as ""
	if info, err := t.root.Stat(in.Path); err == nil {
		return fmt.Sprintf("replace %s (%d bytes by %d)", tool.Show(in.Path), info.Size(), len(in.Content))
	}
	return fmt.Sprintf("write %s (%d bytes)", tool.Show(in.Path), len(in.Content))
}

func (t *Tools) write(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[writeInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if len(in.Content) > maxWrite {
		return tool.Output{}, fault.New(fault.Invalid, "the content has %d bytes, at most %d", len(in.Content), maxWrite)
	}
	if err := ctx.Err(); err != nil {
		return tool.Output{}, err
	}
	if err := t.root.Write(in.Path, []byte(in.Content), inv.Key); err != nil {
		return tool.Output{}, err
	}
	return written(in), t.note(ctx, in, inv)
}

func written(in writeInput) tool.Output {
	return tool.Output{Text: fmt.Sprintf("wrote %s (%d bytes)", tool.Show(in.Path), len(in.Content))}
}

// probeWrite compares what is there with what was to be written.
func (t *Tools) probeWrite(ctx context.Context, inv tool.Invocation) (tool.ProbeResult, error) {
	in, err := tool.Decode[writeInput](inv.Input)
	if err != nil {
		return tool.ProbeResult{State: tool.Unclear}, err
	}
	same, err := t.holds(in)
	switch {
	case fault.Is(err, fault.NotFound):
		return tool.ProbeResult{State: tool.NotDone}, nil
	case err != nil:
		return tool.ProbeResult{State: tool.Unclear}, err
	case !same:
		return tool.ProbeResult{State: tool.NotDone}, nil
	}
	return tool.ProbeResult{State: tool.Done, Output: written(in)}, t.note(ctx, in, inv)
}

func (t *Tools) holds(in writeInput) (bool, error) {
	f, err := t.root.Open(in.Path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	have, want := sha256.New(), sha256.Sum256([]byte(in.Content))
	if _, err := io.Copy(have, io.LimitReader(f, maxWrite+1)); err != nil {
		return false, unreadable(in.Path, err)
	}
	return bytes.Equal(have.Sum(nil), want[:]), nil
}
