package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	defaultList = 200
	maxEntries  = 100_000 // of one directory; more are not looked at
)

const listSchema = `{"type":"object","additionalProperties":false,"properties":{
"path":{"type":"string","maxLength":4096,"description":"directory, default the working directory"},
"after":{"type":"string","maxLength":1024,"description":"list only names after this one"},
"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"most names to list, default 200"}}}`

type listInput struct {
	Path  string `json:"path"`
	After string `json:"after"`
	Limit int    `json:"limit"`
}

func decodeList(input json.RawMessage) (listInput, error) {
	in, err := tool.Decode[listInput](input)
	if in.Path == "" {
		in.Path = "."
	}
	if in.Limit == 0 {
		in.Limit = defaultList
	}
	return in, err
}

func (t *Tools) listDefinition() tool.Definition {
	return tool.Definition{
		Name: "fs.list",
		Description: "List a directory of the working directory, ordered by name: a directory ends with /, a link with @, " +
			"a file is followed by its size in bytes. A last line in brackets says how to go on if there are more.",
		Input: json.RawMessage(listSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 1 << 20, Source: t.source,
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			in, err := decodeList(input)
			if err != nil {
				return nil, err
			}
			path, err := t.root.Readable(in.Path)
			return need("fs.list", path, err)
		},
		Summary: func(input json.RawMessage) string {
			in, _ := decodeList(input) // validated; an empty path is the root
			return "list " + tool.Show(in.Path)
		},
	}
}

func (t *Tools) list(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := decodeList(inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return tool.Output{}, err
	}
	found, more, err := t.root.List(in.Path, maxEntries)
	if err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: render(found, in, more)}, nil
}

func render(found []fs.DirEntry, in listInput, more bool) string {
	start, _ := slices.BinarySearchFunc(found, in.After, func(e fs.DirEntry, after string) int {
		if e.Name() <= after && after != "" {
			return -1
		}
		return 1
	})
	rest := found[start:]
	shown := rest[:min(in.Limit, len(rest))]
	var b strings.Builder
	for _, e := range shown {
		b.WriteString(line(e) + "\n")
	}
	switch {
	case len(found) == 0:
		b.WriteString("[empty]\n")
	case len(shown) < len(rest):
		fmt.Fprintf(&b, "[%d more; go on with after %q]\n", len(rest)-len(shown), shown[len(shown)-1].Name())
	}
	if more {
		fmt.Fprintf(&b, "[the directory has over %d entries; the others were not looked at]\n", maxEntries)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func line(e fs.DirEntry) string {
	name := tool.Show(e.Name())
	switch {
	case e.IsDir():
		return name + "/"
	case e.Type()&fs.ModeSymlink != 0:
		return name + "@"
	case !e.Type().IsRegular():
		return name + "  special"
	}
	info, err := e.Info()
	if err != nil {
		return name + "  gone" // removed while we looked
	}
	return fmt.Sprintf("%s  %d", name, info.Size())
}
