// Package fs is the tools that read and change files below one directory: fs.read,
// fs.list, fs.write and fs.delete. What keeps them there, and away from sensitive
// files, is guard.Root; the scope of a call names the file that is really meant,
// links resolved.
//
// After a crash fs.write and fs.delete look at the file to find out whether they
// had happened. If somebody else changed the same file in between, a write is made
// again and wins.
package fs

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const timeout = 30 * time.Second

// Tools is the four tools over one directory.
type Tools struct {
	root   *guard.Root
	source label.Source
	labels Labels
}

// New returns the tools over root, which stays its owner's to close. What is read
// there was written by source; nobody vouches for it if that is empty. Files the
// tools wrote themselves have the label that is kept of them; labels may be nil.
func New(root *guard.Root, source label.Source, labels Labels) *Tools {
	if source == "" {
		source = label.Untrusted("file")
	}
	if labels == nil {
		labels = noLabels{}
	}
	return &Tools{root: root, source: source, labels: labels}
}

// Register makes the tools known to r.
func (t *Tools) Register(r *tool.Registry) error {
	return errors.Join(
		r.Add(t.readDefinition(), t.read),
		r.Add(t.listDefinition(), t.list),
		r.Add(t.writeDefinition(), t.write),
		r.Add(t.deleteDefinition(), t.delete),
	)
}

// need returns the one scope of a call on a resolved path.
func need(base, path string, err error) ([]scope.Scope, error) {
	if err != nil {
		return nil, err
	}
	s, err := scope.Of(base, path)
	if err != nil {
		return nil, err
	}
	return []scope.Scope{s}, nil
}

// touched is what a call changes: a path that cannot be resolved is changed by none.
func touched(path string, err error) []string {
	if err != nil {
		return nil
	}
	return []string{filepath.FromSlash(path)}
}

// inWorkspace is who reads what is written: the operator, whose directory it is.
func inWorkspace(json.RawMessage) tool.Destination {
	return tool.Destination{Readers: label.OperatorOnly, Name: "the working directory"}
}
