package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// Root reaches the files under one directory and no others: a link that leads out
// is refused by os.Root, also if it is put there between check and use. It follows
// links that stay inside, and judges by Sensitive what they lead to; what was opened
// is held against that once more, so a link put inside between check and use leads
// nowhere either. A hard link cannot be told from the file itself: a file that has
// several names is read only where a sensitive one would be.
type Root struct {
	given     string // as asked for, cleaned
	dir       string // without links
	root      *os.Root
	sensitive *Sensitive
}

// OpenRoot opens dir, which has to exist.
func OpenRoot(dir string, s *Sensitive) (*Root, error) {
	given, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault.New(fault.Internal, "root %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(given)
	if err != nil {
		return nil, fileFault("open root", given, err)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fileFault("open root", given, err)
	}
	return &Root{given: given, dir: real, root: root, sensitive: s}, nil
}

// Close releases the directory.
func (r *Root) Close() error { return r.root.Close() }

// Dir returns the directory without links.
func (r *Root) Dir() string { return r.dir }

// Resolve returns the absolute path, with slashes and without links, that path
// leads to. Path is relative to the root, or absolute and within it. What does not
// exist yet resolves to where it would be made. It is what a scope is made of.
func (r *Root) Resolve(path string) (string, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return "", err
	}
	return r.abs(rel), nil
}

// Readable is Resolve for what is to be read or listed; it refuses sensitive files.
func (r *Root) Readable(path string) (string, error) {
	abs, err := r.Resolve(path)
	if err != nil {
		return "", err
	}
	return abs, r.sensitive.Read(abs)
}

// Writable is Resolve for what is to be written; it refuses sensitive files.
func (r *Root) Writable(path string) (string, error) {
	abs, err := r.Resolve(path)
	if err != nil {
		return "", err
	}
	return abs, r.sensitive.Write(abs)
}

// Removable is Writable for what is to be removed: a link is not followed.
func (r *Root) Removable(path string) (string, error) {
	rel, err := r.removable(path)
	if err != nil {
		return "", err
	}
	return r.abs(rel), nil
}

func (r *Root) removable(path string) (rel string, err error) {
	rel, err = r.resolve(path, false)
	if err != nil {
		return "", err
	}
	if rel == "." {
		return "", fault.New(fault.Denied, "the workspace itself is not deleted")
	}
	return rel, r.sensitive.Write(r.abs(rel))
}

func (r *Root) abs(rel string) string { return filepath.ToSlash(filepath.Join(r.dir, rel)) }

// maxLinks bounds the links of one path, as the kernel does.
const maxLinks = 40

// resolve returns path relative to the root with its links followed, the last
// part's only if follow is set.
func (r *Root) resolve(path string, follow bool) (string, error) {
	rest, err := r.within(path)
	if err != nil {
		return "", err
	}
	var done []string
	todo := split(rest)
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		if part == ".." {
			if len(done) == 0 {
				return "", escapes(path)
			}
			done = done[:len(done)-1]
			continue
		}
		at := filepath.Join(append(slices.Clone(done), part)...)
		info, err := r.root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		case err != nil:
			return "", fileFault("resolve", path, err)
		case info.Mode()&fs.ModeSymlink != 0 && (follow || len(todo) > 0):
			if links++; links > maxLinks {
				return "", fault.New(fault.Invalid, "%s: too many links", path)
			}
			target, err := r.root.Readlink(at)
			if err != nil {
				return "", fileFault("resolve", path, err)
			}
			if filepath.IsAbs(target) {
				if target, err = r.within(target); err != nil {
					return "", escapes(path)
				}
				done = nil
			}
			todo = append(split(target), todo...)
			continue
		}
		done = append(done, part)
	}
	return filepath.Join(append([]string{"."}, done...)...), nil
}

// split returns the parts of a relative path; `..` stays, to be taken where it
// stands, behind the links before it.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(p string) bool { return p == "" || p == "." })
}

// within returns path relative to the root, by its text alone.
func (r *Root) within(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fault.New(fault.Invalid, "a path holds a NUL")
	}
	if !filepath.IsAbs(path) {
		if path = filepath.Clean(path); path != "." && !filepath.IsLocal(path) {
			return "", escapes(path)
		}
		return path, nil
	}
	for _, base := range []string{r.given, r.dir} {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", escapes(path)
}

func escapes(path string) error {
	return fault.New(fault.Denied, "%s leads out of the workspace", path)
}

// Open opens a regular file for reading. A pipe, a socket or a device is refused
// without waiting for its other end.
func (r *Root) Open(path string) (*os.File, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, err
	}
	if err := r.sensitive.Read(r.abs(rel)); err != nil {
		return nil, err
	}
	f, err := r.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileFault("open", path, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = r.unmoved(rel, info)
	}
	switch {
	case err != nil:
		err = fileFault("open", path, err)
	case names(info) > 1 && !info.IsDir() && !r.sensitive.allowed(r.abs(rel)):
		err = fault.New(fault.Denied, "%s has several names, and one of them may be a sensitive file's", path).
			WithHint("a path can be excepted in tools.fs.allow_sensitive, or copied by you")
	case info.IsDir():
		err = fault.New(fault.Invalid, "%s is a directory", path)
	case !info.Mode().IsRegular():
		err = fault.New(fault.Invalid, "%s is not a regular file", path)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// List returns up to max entries of a directory in the order of their names, and
// whether there are more, in which case it is not said which ones are missing.
func (r *Root) List(path string, max int) (entries []fs.DirEntry, more bool, err error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, false, err
	}
	if err := r.sensitive.Read(r.abs(rel)); err != nil {
		return nil, false, err
	}
	f, err := r.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, fileFault("list", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = r.unmoved(rel, info)
	}
	if err != nil {
		return nil, false, fileFault("list", path, err)
	}
	entries, err = f.ReadDir(max + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fileFault("list", path, err)
	}
	if more = len(entries) > max; more {
		entries = entries[:max]
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, more, nil
}

// Stat describes what path leads to. It tells nothing that reading would not need
// a check for, so sensitive files can be seen but not read.
func (r *Root) Stat(path string) (fs.FileInfo, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, err
	}
	info, err := r.root.Stat(rel)
	if err != nil {
		return nil, fileFault("stat", path, err)
	}
	return info, nil
}

// Exists reports whether path, a last link not followed, is there.
func (r *Root) Exists(path string) (bool, error) {
	rel, err := r.removable(path)
	if err != nil {
		return false, err
	}
	_, err = r.root.Lstat(rel)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	}
	return false, fileFault("stat", path, err)
}

// Write makes or replaces a file in one step: after a crash it holds the old bytes
// or the new ones. Missing directories are made; the mode of a replaced file stays.
// A write repeated with its key, not empty, clears what a crash left of the first.
// An error of class unknown says the new bytes are there but may not be durable.
func (r *Root) Write(path string, data []byte, key string) error {
	rel, err := r.resolve(path, true)
	if err != nil {
		return err
	}
	if err := r.sensitive.Write(r.abs(rel)); err != nil {
		return err
	}
	mode, replaced := fs.FileMode(0o644), false
	switch info, err := r.root.Lstat(rel); {
	case err == nil && !info.Mode().IsRegular():
		return fault.New(fault.Invalid, "%s is not a regular file", path)
	case err == nil:
		mode, replaced = info.Mode().Perm(), true
	}
	if err := r.root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return fileFault("write", path, err)
	}
	dir, err := r.directory(filepath.Dir(rel))
	if err != nil {
		return fileFault("write", path, err)
	}
	defer func() { _ = dir.Close() }() // only ever read from
	tmp := tempName(rel, key)
	err = fill(dir, tmp, data, mode)
	if err == nil && replaced {
		err = dir.Chmod(tmp, mode) // the umask may have taken some of it
	}
	if err == nil {
		err = dir.Rename(tmp, filepath.Base(rel))
	}
	if err != nil {
		_ = dir.Remove(tmp) // the failed write is the error to tell
		return fileFault("write", path, err)
	}
	return r.settle(path, rel)
}

// directory opens a resolved directory to work in. It stays the one that was
// judged, whatever is put in its place meanwhile.
func (r *Root) directory(rel string) (*os.Root, error) {
	dir, err := r.root.OpenRoot(rel)
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat(".")
	if err == nil {
		err = r.unmoved(rel, info)
	}
	if err != nil {
		_ = dir.Close() // nothing was written
		return nil, err
	}
	return dir, nil
}

// unmoved refuses what was opened as rel, a resolved path, if a link had been put
// on the way to it meanwhile: what rel names without following any is another file.
func (r *Root) unmoved(rel string, opened fs.FileInfo) error {
	moved := fault.New(fault.Denied, "%s was exchanged while it was opened", rel)
	for at := rel; at != "."; at = filepath.Dir(at) {
		info, err := r.root.Lstat(at)
		switch {
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0, at == rel && !os.SameFile(info, opened):
			return moved
		}
	}
	return nil
}

func tempName(rel, key string) string {
	if key == "" {
		key = rand.Text()
	}
	sum := sha256.Sum256([]byte(key + "\x00" + rel))
	return ".ombud-" + hex.EncodeToString(sum[:8]) + ".tmp"
}

// settle makes a change of the name rel durable, and the directories above it,
// which may be new. The change itself is done.
func (r *Root) settle(path, rel string) error {
	for rel != "." {
		rel = filepath.Dir(rel)
		if err := r.syncDir(rel); err != nil {
			return fault.New(fault.Unknown, "%s is changed, but that may not be durable: %w", path, err)
		}
	}
	return nil
}

// fill makes the file tmp durable with data in it.
func fill(dir *os.Root, tmp string, data []byte, mode fs.FileMode) error {
	if err := dir.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Remove deletes a file, a link (not what it leads to) or an empty directory.
func (r *Root) Remove(path string) error {
	rel, err := r.removable(path)
	if err != nil {
		return err
	}
	dir, err := r.directory(filepath.Dir(rel))
	if err != nil {
		return fileFault("delete", path, err)
	}
	defer func() { _ = dir.Close() }() // only ever read from
	if err := dir.Remove(filepath.Base(rel)); err != nil {
		return fileFault("delete", path, err)
	}
	return r.settle(path, rel)
}

// fileFault gives an error of the file system its class. What os.Root says about
// leaving it has no sentinel of its own; resolve has found that before.
func fileFault(doing, path string, err error) error {
	if _, classified := errors.AsType[*fault.Error](err); classified {
		return err
	}
	class := fault.Unavailable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		class = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		class = fault.Permission
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		class = fault.Conflict
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EISDIR):
		class = fault.Invalid
	}
	return fault.New(class, "%s %s: %w", doing, path, err)
}
