package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// place is where a repository is. Paths are absolute and without links.
type place struct {
	top       string // the work tree
	gitDir    string // of this work tree
	commonDir string // of all its work trees; the same, but for a linked one
}

// notKept is why a path has no checkpoint.
type notKept struct{ why string }

func (e notKept) Error() string { return e.why }

// errNoRepository says that a path is in no repository at all, so that there is
// nothing to say about it.
var errNoRepository = errors.New("no repository")

// find looks for the repository a path is in: the innermost one. The path need not
// exist. The place is filled in as far as it is known also with a notKept.
func find(path string) (place, error) {
	dir, err := existing(path)
	if err != nil {
		return place{}, errNoRepository
	}
	for {
		if filepath.Base(dir) == ".git" || isGitDir(dir) {
			p := place{top: dir, gitDir: dir, commonDir: dir}
			if filepath.Base(dir) == ".git" {
				return p, notKept{"the call works on git's own files, which a checkpoint does not hold"}
			}
			return p, notKept{"it is a bare repository, which has no work tree"}
		}
		p, found, err := at(dir)
		if found || err != nil {
			return p, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return place{}, errNoRepository
		}
		dir = up
	}
}

// existing is the nearest directory above path, or path, that exists.
func existing(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errNoRepository
	}
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			return filepath.EvalSymlinks(path)
		}
		if path == filepath.Dir(path) {
			return "", errNoRepository
		}
	}
}

// at looks at one directory.
func at(dir string) (p place, found bool, err error) {
	dotGit := filepath.Join(dir, ".git")
	info, err := os.Stat(dotGit)
	if err != nil {
		return p, false, nil //nolint:nilerr // also a broken link: git goes on above as well
	}
	p = place{top: dir, gitDir: dotGit}
	if !info.IsDir() {
		if p.gitDir, err = pointed(dotGit, "gitdir: ", dir); err != nil {
			return place{}, false, nil //nolint:nilerr // names no repository, so there is none here
		}
	}
	if p.gitDir, err = filepath.EvalSymlinks(p.gitDir); err != nil || !isGitDir(p.gitDir) && !isLinked(p.gitDir) {
		return place{}, false, nil //nolint:nilerr // names no repository, so there is none here
	}
	p.commonDir = p.gitDir
	if common, err := pointed(filepath.Join(p.gitDir, "commondir"), "", p.gitDir); err == nil {
		if p.commonDir, err = filepath.EvalSymlinks(common); err != nil {
			return p, true, notKept{"the repository of this work tree is gone: " + common}
		}
	}
	if !p.belongs() {
		return p, true, notKept{"its git directory is elsewhere and does not know of it: " + p.gitDir}
	}
	for _, d := range []string{p.top, p.gitDir, p.commonDir} {
		if !ownedByUs(d) {
			return p, true, notKept{"the repository belongs to another user: " + d}
		}
	}
	return p, true, nil
}

// belongs reports whether the git directory of a work tree knows of it. What is in a
// work tree can be written by whoever works there: it must not make us write into
// somebody else's repository.
func (p place) belongs() bool {
	if p.commonDir != p.gitDir && !below(p.gitDir, filepath.Join(p.commonDir, "worktrees")) {
		return false
	}
	dotGit := filepath.Join(p.top, ".git")
	if p.gitDir == dotGit {
		return true
	}
	if back, err := pointed(filepath.Join(p.gitDir, "gitdir"), "", p.gitDir); err == nil && p.commonDir != p.gitDir {
		back, err = filepath.EvalSymlinks(filepath.Dir(back))
		return err == nil && back == p.top // a linked work tree
	}
	for dir := filepath.Dir(p.top); ; dir = filepath.Dir(dir) { // a submodule: its git directory is its superproject's
		if above, found, err := at(dir); found && err == nil && (below(p.gitDir, above.gitDir) || below(p.gitDir, above.commonDir)) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

const maxPointer = 8 << 10 // bytes of a file that holds a path

// pointed reads a path from a file; a relative one is meant from base.
func pointed(file, prefix, base string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPointer {
		return "", fs.ErrInvalid
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	path, ok := strings.CutPrefix(strings.TrimRight(string(raw), "\r\n"), prefix)
	if !ok || path == "" {
		return "", fs.ErrInvalid
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return path, nil
}

// isGitDir goes by what git itself goes by.
func isGitDir(dir string) bool {
	return exists(filepath.Join(dir, "HEAD")) && isDir(filepath.Join(dir, "objects")) && isDir(filepath.Join(dir, "refs"))
}

func isLinked(dir string) bool {
	return exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "commondir"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// headOf returns the commit the repository in dir is at, "" if it cannot be told
// from plain files: an unborn branch, or references kept in another form.
func headOf(dir string) string {
	p, found, err := at(dir)
	if !found || err != nil {
		return ""
	}
	name := "HEAD"
	for range 5 { // a reference to a reference
		raw, err := readSmall(filepath.Join(p.gitDir, name))
		if err != nil {
			raw, err = readSmall(filepath.Join(p.commonDir, name))
		}
		if err != nil {
			return packed(p.commonDir, name)
		}
		target, isRef := strings.CutPrefix(raw, "ref: ")
		if !isRef {
			return oidOr(raw)
		}
		if target = strings.TrimSpace(target); !filepath.IsLocal(target) {
			return ""
		}
		name = target
	}
	return ""
}

func oidOr(s string) string {
	if s = strings.TrimSpace(s); isOID(s) {
		return s
	}
	return ""
}

func isOID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func readSmall(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPointer {
		return "", fs.ErrInvalid
	}
	raw, err := os.ReadFile(path)
	return string(raw), err
}

const maxPacked = 32 << 20

func packed(commonDir, name string) string {
	path := filepath.Join(commonDir, "packed-refs")
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxPacked {
		return ""
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if oid, ref, ok := strings.Cut(line, " "); ok && ref == name {
			return oidOr(oid)
		}
	}
	return ""
}
