// Package fs is the tools that read and change files below one directory: fs.read,
// fs.list, fs.write and fs.delete.
//
// Two things keep them there. A path is resolved, links and all, before policy
// sees it, so the scope of a call names the file that is really meant; and every
// file is opened through an os.Root, so a link put in between the decision and the
// call still cannot lead out. Files that hold secrets or start programs are
// refused by the Guard whatever the grants say.
//
// After a crash fs.write and fs.delete look at the file to find out whether they
// had happened. If somebody else changed the same file in between, a write is
// made again and wins.
package fs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const timeout = 30 * time.Second

// Guard refuses paths that no grant opens. Its paths are absolute and resolved.
type Guard interface {
	Read(path string) error
	Write(path string) error
}

// Config says where the tools work.
type Config struct {
	Root   string       // an existing directory, absolute
	Source label.Source // who wrote what is read there; default untrusted:file
}

// Tools is the four tools over one open directory.
type Tools struct {
	root   *os.Root
	real   string // resolved absolute path of root
	given  string // as configured
	guard  Guard
	source label.Source
}

// New opens the directory. Close closes it.
func New(cfg Config, g Guard) (*Tools, error) {
	if !filepath.IsAbs(cfg.Root) {
		return nil, fault.New(fault.Config, "the root of the file tools, %q, is not an absolute path", cfg.Root)
	}
	real, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fault.New(fault.Config, "root of the file tools: %w", err)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fault.New(fault.Config, "root of the file tools: %w", err)
	}
	source := cfg.Source
	if source == "" {
		source = label.Untrusted("file")
	}
	return &Tools{root: root, real: real, given: filepath.Clean(cfg.Root), guard: g, source: source}, nil
}

// Close closes the directory; calls fail after it.
func (t *Tools) Close() error { return t.root.Close() }

// Register makes the tools known to r.
func (t *Tools) Register(r *tool.Registry) error {
	return errors.Join(
		r.Add(t.readDefinition(), t.read),
		r.Add(t.listDefinition(), t.list),
		r.Add(t.writeDefinition(), t.write),
		r.Add(t.deleteDefinition(), t.delete),
	)
}

// place is a resolved path.
type place struct {
	rel  string // below the root, for os.Root
	real string // absolute, for scopes and the guard
}

// locate resolves a path that a caller gave, relative to the root or absolute
// within it. Links are followed, except a last one if keepLast. What does not
// exist yet is resolved as far as it does.
func (t *Tools) locate(path string, keepLast bool) (place, error) {
	rel, err := t.relative(path)
	if err != nil {
		return place{}, err
	}
	full := filepath.Join(t.real, rel)
	var resolved string
	if keepLast && rel != "." {
		resolved, err = resolve(filepath.Dir(full))
		resolved = filepath.Join(resolved, filepath.Base(full))
	} else {
		resolved, err = resolve(full)
	}
	if err != nil {
		return place{}, classify(path, err)
	}
	inside, err := filepath.Rel(t.real, resolved)
	if err != nil || !filepath.IsLocal(inside) {
		return place{}, outside(path)
	}
	return place{rel: inside, real: resolved}, nil
}

func (t *Tools) relative(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fault.New(fault.Invalid, "the path %s holds a NUL byte", tool.Show(path))
	}
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		if !filepath.IsLocal(path) {
			return "", outside(path)
		}
		return path, nil
	}
	for _, root := range []string{t.real, t.given} {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", outside(path)
}

func outside(path string) error {
	return fault.New(fault.Denied, "%s is outside the directory the file tools work in", tool.Show(path))
}

// resolve is EvalSymlinks for a path whose last parts need not exist. A link that
// points nowhere is an error: what it would create is not what its name says.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if _, lerr := os.Lstat(path); lerr == nil {
		return "", fault.New(fault.Invalid, "%s is a link that points nowhere", tool.Show(path))
	}
	parent := filepath.Dir(path)
	if parent == path {
		return "", err
	}
	parent, err = resolve(parent)
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

func (t *Tools) readable(path string) (place, error) {
	p, err := t.locate(path, false)
	if err != nil {
		return place{}, err
	}
	return p, t.guard.Read(p.real)
}

func (t *Tools) writable(path string, keepLast bool) (place, error) {
	p, err := t.locate(path, keepLast)
	if err != nil {
		return place{}, err
	}
	if p.rel == "." {
		return place{}, fault.New(fault.Denied, "the root of the file tools itself cannot be changed")
	}
	return p, t.guard.Write(p.real)
}

// need returns the one scope of a call on p.
func need(base string, p place, err error) ([]scope.Scope, error) {
	if err != nil {
		return nil, err
	}
	s, err := scope.Of(base, filepath.ToSlash(p.real))
	if err != nil {
		return nil, err
	}
	return []scope.Scope{s}, nil
}

// classify gives an error of the file system the class that is true of it. The
// text names the path as the caller wrote it.
func classify(path string, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // its path is ours, not the caller's
	}
	class := fault.Internal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		class = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		class = fault.Permission
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		class = fault.Conflict
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		class = fault.Invalid
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EMFILE):
		class = fault.Unavailable
	case err.Error() == "path escapes from parent": // os.Root has no error value for it
		class = fault.Denied
	}
	return fault.New(class, "%s: %w", tool.Show(path), err)
}
