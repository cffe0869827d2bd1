package recipe

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
)

// maxFiles is how many files are read.
const maxFiles = 500

// found is a file as it is now.
type found struct {
	path string
	text []byte
	err  error
}

// isRecipe reports whether a file of a directory is read: editors leave others there.
func isRecipe(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "#")
}

// look reads every file there is, in the order of their paths. A directory that cannot be
// trusted, or read, is an error: then nothing is known of what is in it.
func look(dir string, more []string) ([]found, error) {
	paths := slices.Clone(more)
	if dir != "" {
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && !dangling(dir) {
			info = nil
		} else if err != nil {
			return nil, fault.New(fault.Unavailable, "look at the recipes: %w", err)
		}
		if info != nil {
			if err := instance.CheckWritten(dir, info); err != nil {
				return nil, err
			}
			list, err := os.ReadDir(dir)
			if err != nil {
				return nil, fault.New(fault.Unavailable, "look at the recipes: %w", err)
			}
			for _, e := range list {
				if isRecipe(e.Name()) && !e.IsDir() {
					paths = append(paths, filepath.Join(dir, e.Name()))
				}
			}
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if len(paths) > maxFiles {
		return nil, fault.New(fault.Invalid, "there are %d recipes; at most %d are read", len(paths), maxFiles)
	}
	var out []found
	for _, path := range paths {
		text, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) && !slices.Contains(more, path) && !dangling(path) {
			continue // it went while we looked
		}
		out = append(out, found{path, text, err})
	}
	return out, nil
}

// dangling reports whether a link is there, though what it leads to is not: that may be
// away for a moment, so nobody has removed a recipe.
func dangling(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// readFile reads one file, of which nobody but this user may be the author.
func readFile(path string) (text []byte, err error) {
	before, err := os.Stat(path) // a pipe would block the opening
	if err != nil {
		return nil, diskFault(path, err)
	}
	if !before.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, diskFault(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, diskFault(path, err)
	}
	if err := instance.CheckWritten(path, info); err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, diskFault(path, err)
	}
	return text, nil
}

func diskFault(path string, err error) error {
	class := fault.Unavailable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		class = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		class = fault.Permission
	}
	return fault.New(class, "read %s: %w", path, err)
}
