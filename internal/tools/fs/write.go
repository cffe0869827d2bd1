package fs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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
			p, err := t.writable(in.Path, false)
			return need("fs.write", p, err)
		},
		Summary: t.writeSummary,
		Probe:   t.probeWrite,
	}
}

// writeSummary tells a person also what would be lost.
func (t *Tools) writeSummary(input json.RawMessage) string {
	in, _ := tool.Decode[writeInput](input) // validated; an empty path is shown as ""
	if p, err := t.locate(in.Path, false); err == nil {
		if info, err := t.root.Lstat(p.rel); err == nil {
			return fmt.Sprintf("replace %s (%d bytes by %d)", tool.Show(in.Path), info.Size(), len(in.Content))
		}
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
	p, err := t.writable(in.Path, false)
	if err != nil {
		return tool.Output{}, err
	}
	mode, err := t.target(p, in.Path)
	if err != nil {
		return tool.Output{}, err
	}
	if err := t.makeParents(p.rel); err != nil {
		return tool.Output{}, classify(in.Path, err)
	}
	if err := t.replace(ctx, p, inv.Key, []byte(in.Content), mode); err != nil {
		return tool.Output{}, classify(in.Path, err)
	}
	return written(in), nil
}

func written(in writeInput) tool.Output {
	return tool.Output{Text: fmt.Sprintf("wrote %s (%d bytes)", tool.Show(in.Path), len(in.Content))}
}

// target returns the mode the new file gets: that of the file it replaces, else
// private to the user.
func (t *Tools) target(p place, shown string) (fs.FileMode, error) {
	info, err := t.root.Lstat(p.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o600, nil
	case err != nil:
		return 0, classify(shown, err)
	case !info.Mode().IsRegular():
		return 0, fault.New(fault.Invalid, "%s is there and not a regular file", tool.Show(shown))
	}
	return info.Mode().Perm(), nil
}

// makeParents makes the missing directories above rel, each durable before
// something is put into it.
func (t *Tools) makeParents(rel string) error {
	dir := filepath.Dir(rel)
	if _, err := t.root.Stat(dir); err == nil {
		return nil
	}
	if err := t.makeParents(dir); err != nil {
		return err
	}
	if err := t.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return t.syncDir(filepath.Dir(dir))
}

// replace puts content at p, whole or not at all: a file beside it, synced, then
// renamed over it. An error after the rename is of class Unknown.
func (t *Tools) replace(ctx context.Context, p place, key string, content []byte, mode fs.FileMode) error {
	temp := tempName(p.rel, key)
	if err := t.writeTemp(temp, content, mode); err != nil {
		return errors.Join(err, t.removeIfThere(temp))
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, t.removeIfThere(temp))
	}
	if err := t.root.Rename(temp, p.rel); err != nil {
		return errors.Join(err, t.removeIfThere(temp))
	}
	if err := t.syncDir(filepath.Dir(p.rel)); err != nil {
		return fault.New(fault.Unknown, "the file was renamed into place, but that may not be durable: %w", err)
	}
	return nil
}

func (t *Tools) writeTemp(temp string, content []byte, mode fs.FileMode) error {
	if err := t.removeIfThere(temp); err != nil { // left by a crash
		return err
	}
	f, err := t.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// tempName is the same for every attempt of a call, so that what a crash left is
// found again.
func tempName(rel, key string) string {
	sum := sha256.Sum256([]byte(key + "\x00" + rel))
	return filepath.Join(filepath.Dir(rel), ".ombud-"+hex.EncodeToString(sum[:8])+".tmp")
}

func (t *Tools) removeIfThere(rel string) error {
	if err := t.root.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *Tools) syncDir(rel string) error {
	if !syncsDirectories {
		return nil
	}
	d, err := t.root.Open(rel)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// probeWrite compares what is there with what was to be written and clears what a
// crash left half done.
func (t *Tools) probeWrite(_ context.Context, inv tool.Invocation) (tool.ProbeResult, error) {
	in, err := tool.Decode[writeInput](inv.Input)
	if err != nil {
		return tool.ProbeResult{State: tool.Unclear}, err
	}
	p, err := t.writable(in.Path, false)
	if err != nil {
		return tool.ProbeResult{State: tool.Unclear}, err
	}
	same, err := t.holds(p, in)
	switch {
	case fault.Is(err, fault.NotFound):
		same = false
	case err != nil:
		return tool.ProbeResult{State: tool.Unclear}, err
	}
	if err := t.removeIfThere(tempName(p.rel, inv.Key)); err != nil {
		return tool.ProbeResult{State: tool.Unclear}, classify(in.Path, err)
	}
	if !same {
		return tool.ProbeResult{State: tool.NotDone}, nil
	}
	if err := t.syncDir(filepath.Dir(p.rel)); err != nil {
		return tool.ProbeResult{State: tool.Unclear}, classify(in.Path, err)
	}
	return tool.ProbeResult{State: tool.Done, Output: written(in)}, nil
}

func (t *Tools) holds(p place, in writeInput) (bool, error) {
	f, size, err := t.openRegular(p, in.Path)
	if err != nil || size != int64(len(in.Content)) {
		if f != nil {
			f.Close()
		}
		return false, err
	}
	defer f.Close()
	have, want := sha256.New(), sha256.Sum256([]byte(in.Content))
	if _, err := io.Copy(have, f); err != nil {
		return false, classify(in.Path, err)
	}
	return bytes.Equal(have.Sum(nil), want[:]), nil
}
