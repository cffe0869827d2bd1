package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// snapshot is a work tree at one moment. It does not change once it is taken.
type snapshot struct {
	tree    string            // "" if it was only looked at
	files   map[string]*entry // by path below the top, with slashes
	skipped map[string]string // files that are there and not in it, and why
	hidden  hidden            // what git ignores
}

// scanning says how a tree is taken.
type scanning struct {
	bounds
	store bool     // write its objects and its tree
	known bool     // find out what git ignores
	extra []string // paths to take though git may ignore them
}

// tooMuch is a limit that a work tree goes over.
type tooMuch struct{ why string }

func (e tooMuch) Error() string { return e.why }

// scan takes the tree. The caller holds the lock.
func (r *repo) scan(ctx context.Context, s scanning) (*snapshot, error) {
	paths, snap, err := r.list(ctx, s)
	if err != nil {
		return nil, err
	}
	todo, err := r.look(paths, s, snap)
	if err != nil {
		return nil, err
	}
	err = r.hash(ctx, todo, s, snap)
	known := maps.Clone(snap.files)
	if err != nil { // what was read so far need not be read again
		for p, e := range r.files {
			if known[p] == nil {
				known[p] = e
			}
		}
	}
	r.files = known
	if err != nil || !s.store {
		return snap, err
	}
	snap.tree, err = r.write(ctx, snap.files)
	return snap, err
}

// listed is a path as git lists it.
type listed struct {
	path    string
	tracked bool
}

// list asks git what is in the work tree. It reads the user's index and the rules
// of what is ignored, and runs nothing.
func (r *repo) list(ctx context.Context, s scanning) ([]listed, *snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	files := &splitter{most: s.files}
	ignored := &splitter{most: maxHidden, quiet: true}
	var ofFiles, ofIgnored error
	var both sync.WaitGroup
	both.Go(func() {
		ofFiles = r.git(ctx, gitCall{args: []string{"ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard"}, out: files})
		if ofFiles != nil {
			cancel()
		}
	})
	both.Go(func() {
		if !s.known {
			return
		}
		ofIgnored = r.git(ctx, gitCall{args: []string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"}, out: ignored})
	})
	both.Wait()
	if files.over {
		return nil, nil, tooMuch{fmt.Sprintf("the work tree has over %d files", s.files)}
	}
	if ofFiles != nil {
		return nil, nil, ofFiles
	}
	if ofIgnored != nil && !ignored.over {
		return nil, nil, ofIgnored
	}
	snap := &snapshot{skipped: map[string]string{}, hidden: newHidden(ignored.parts, ignored.over || !s.known)}
	out := make([]listed, 0, len(files.parts)+len(s.extra))
	seen := make(map[string]bool, len(files.parts)+len(s.extra))
	add := func(path string, tracked bool) {
		if path = strings.TrimSuffix(path, "/"); !seen[path] && sound(path) {
			seen[path] = true
			out = append(out, listed{path, tracked})
		}
	}
	for _, part := range files.parts {
		tag, path, ok := strings.Cut(part, " ")
		if !ok {
			return nil, nil, fault.New(fault.Internal, "git ls-files answered %q", part)
		}
		add(path, tag != "?")
	}
	for _, path := range s.extra {
		add(path, false)
	}
	return out, snap, nil
}

// sound reports whether a path is one that may be kept and restored: relative,
// without "..", nowhere in a .git, and none of our own files.
func sound(path string) bool {
	if path == "" || strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 || filepath.Separator != '/' && strings.ContainsAny(path, `\:`) {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || isDotGit(part) || strings.HasPrefix(part, workName) {
			return false
		}
	}
	return true
}

// isDotGit knows the spellings that some file system takes for .git.
func isDotGit(part string) bool {
	if !strings.HasPrefix(part, ".") && !strings.HasPrefix(part, "g") && !strings.HasPrefix(part, "G") && part[0] < 0x80 {
		return false
	}
	folded := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, part))
	if filepath.Separator != '/' {
		folded, _, _ = strings.Cut(folded, ":")
		folded = strings.TrimRight(folded, ". ")
		if strings.HasPrefix(folded, "git~") {
			return true
		}
	}
	return folded == ".git"
}

// work is a file whose content has to be read.
type work struct {
	path string
	name string // what git is told to read, from the top
	entry
}

// look compares every path with what is known of it and returns those to be read.
func (r *repo) look(paths []listed, s scanning, snap *snapshot) (todo []work, err error) {
	snap.files = make(map[string]*entry, len(paths))
	dirs := realDirs{top: r.top, known: map[string]bool{".": true}}
	var fresh, read int64
	for _, l := range paths {
		info, err := dirs.lstat(l.path)
		if err != nil {
			continue // gone, or behind a link
		}
		st := stampOf(info)
		if e := r.files[l.path]; e != nil && e.sure && e.stamp == st && (e.stored || !s.store) {
			snap.files[l.path] = e
			continue
		}
		w := work{path: l.path, name: l.path, entry: entry{perm: info.Mode().Perm(), stamp: st, mode: modeFile}}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			if mode&0o111 != 0 {
				w.mode = modeExec
			}
			if info.Size() > s.file {
				snap.skipped[l.path] = "it is over the limit of " + megabytes(s.file)
				continue
			}
			read += info.Size()
			if !l.tracked {
				fresh += info.Size()
			}
		case mode&fs.ModeSymlink != 0:
			w.mode = modeLink
		case mode.IsDir():
			if oid := headOf(filepath.Join(r.top, filepath.FromSlash(l.path))); oid != "" {
				snap.files[l.path] = &entry{mode: modeRepo, oid: oid, stored: true}
			}
			continue
		default:
			continue // a pipe, a socket, a device
		}
		todo = append(todo, w)
	}
	switch {
	case fresh > s.fresh:
		return nil, tooMuch{fmt.Sprintf("%s of untracked files would have to be kept, the limit is %s; what .gitignore names does not count",
			megabytes(fresh), megabytes(s.fresh))}
	case read > s.read:
		return nil, tooMuch{fmt.Sprintf("%s would have to be read, the limit is %s", megabytes(read), megabytes(s.read))}
	}
	return todo, nil
}

func megabytes(n int64) string { return strconv.FormatInt((n+1<<20-1)>>20, 10) + " MiB" }

// realDirs tells paths in real directories from those behind a symbolic link, which
// git takes for gone.
type realDirs struct {
	top   string
	known map[string]bool
}

func (d realDirs) lstat(path string) (fs.FileInfo, error) {
	if i := strings.LastIndexByte(path, '/'); i > 0 && !d.real(path[:i]) {
		return nil, fs.ErrNotExist
	}
	return os.Lstat(filepath.Join(d.top, filepath.FromSlash(path)))
}

func (d realDirs) real(dir string) bool {
	if is, ok := d.known[dir]; ok {
		return is
	}
	is := true
	if i := strings.LastIndexByte(dir, '/'); i > 0 {
		is = d.real(dir[:i])
	}
	if is {
		info, err := os.Lstat(filepath.Join(d.top, filepath.FromSlash(dir)))
		is = err == nil && info.IsDir()
	}
	d.known[dir] = is
	return is
}

// maxGone is how many files may vanish while they are read.
const maxGone = 50

// hash lets git read what has to be read, as it is, without any filter.
func (r *repo) hash(ctx context.Context, todo []work, s scanning, snap *snapshot) error {
	todo, err := r.readable(todo, s, snap)
	if err != nil {
		return err
	}
	for gone := 0; len(todo) > 0; {
		done, err := r.hashSome(ctx, todo, s, snap)
		todo = todo[done:]
		if err == nil || len(todo) == 0 {
			return err
		}
		var exit ExitError
		if !errors.As(err, &exit) || gone == maxGone {
			return err
		}
		gone++ // it could not be read: it went away, or it is what git cannot read
		if _, err := os.Lstat(filepath.Join(r.top, filepath.FromSlash(todo[0].path))); err == nil {
			if todo[0].mode == modeLink {
				return fault.New(fault.Unavailable, "git cannot keep %s", todo[0].path)
			}
			if done == 0 && gone > 1 { // not this file: the object database
				return fmt.Errorf("keep %s: %w", show(todo[0].path), errorOf(ctx, exit))
			}
			snap.skipped[todo[0].path] = "it cannot be read"
		}
		todo = todo[1:]
	}
	return nil
}

func errorOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// readable opens every file once, so that one which is no file any more, or not
// ours to read, does not stop git on its way. Links are put into files of ours.
func (r *repo) readable(todo []work, s scanning, snap *snapshot) ([]work, error) {
	links := 0
	out := todo[:0]
	for _, w := range todo {
		full := filepath.Join(r.top, filepath.FromSlash(w.path))
		if w.mode == modeLink {
			target, err := os.Readlink(full)
			if err != nil {
				continue // gone
			}
			w.name = filepath.Join(r.private, "link-"+strconv.Itoa(links))
			links++
			if err := os.WriteFile(w.name, []byte(target), 0o600); err != nil {
				return nil, fault.New(fault.Unavailable, "keep a link: %w", err)
			}
			out = append(out, w)
			continue
		}
		f, err := os.OpenFile(full, openFlags, 0)
		if errors.Is(err, fs.ErrPermission) {
			snap.skipped[w.path] = "it cannot be read"
			continue
		}
		if err != nil {
			continue // gone, or a link now
		}
		info, err := f.Stat()
		_ = f.Close() // it was only read
		if err != nil || !info.Mode().IsRegular() || info.Size() > s.file {
			continue
		}
		out = append(out, w)
	}
	return out, nil
}

// syncedFiles is up to how many new objects git flushes one by one.
const syncedFiles = 100

// hashSome reads files until one cannot be read and returns how many it has read.
func (r *repo) hashSome(ctx context.Context, todo []work, s scanning, snap *snapshot) (done int, err error) {
	var names bytes.Buffer
	for _, w := range todo {
		names.WriteString(quote(w.name) + "\n")
	}
	args := []string{"hash-object", "--no-filters", "--stdin-paths"}
	if s.store {
		args = []string{"hash-object", "-w", "--no-filters", "--stdin-paths"}
	}
	began := time.Now()
	out := &lines{each: func(line string) {
		if done == len(todo) || !isOID(line) {
			return
		}
		w := todo[done]
		done++
		e := w.entry
		e.oid, e.stored = line, s.store
		info, err := os.Lstat(filepath.Join(r.top, filepath.FromSlash(w.path)))
		if err != nil {
			return // gone
		}
		// A file that was changed so shortly before it was read may change once more
		// within the same tick of the file system's clock.
		now := stampOf(info)
		e.sure = now == w.stamp && max(now.ctime, now.mtime) < began.Add(-settled).UnixNano()
		snap.files[w.path] = &e
	}}
	err = r.git(ctx, gitCall{args: args, config: r.syncing(len(todo)), in: &names, out: out})
	if err == nil && done < len(todo) {
		err = fault.New(fault.Internal, "git hash-object named %d of %d files", done, len(todo))
	}
	return done, err
}

func (r *repo) syncing(objects int) []string {
	if objects <= syncedFiles {
		return []string{"core.fsync=loose-object,reference"}
	}
	return nil
}

// write makes a tree of files in our own index, from what the index held before.
func (r *repo) write(ctx context.Context, files map[string]*entry) (string, error) {
	if r.inIndex == nil || !exists(r.index()) {
		for _, left := range []string{r.index(), r.index() + ".lock"} { // the lock of a git that was killed
			if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fault.New(fault.Unavailable, "our index: %w", err)
			}
		}
		r.inIndex, r.tree = map[string]*entry{}, ""
	}
	var gone, fresh []string
	for p := range r.inIndex {
		if files[p] == nil {
			gone = append(gone, p)
		}
	}
	for p, e := range files {
		if !e.same(r.inIndex[p]) {
			fresh = append(fresh, p)
		}
	}
	changed := len(gone) + len(fresh)
	if changed == 0 && r.tree != "" {
		return r.tree, nil
	}
	slices.Sort(fresh)
	var info bytes.Buffer
	for _, p := range gone { // first: a file may have taken the place of a directory
		fmt.Fprintf(&info, "0 %s\t%s\x00", strings.Repeat("0", len(r.inIndex[p].oid)), p)
	}
	for _, p := range fresh {
		fmt.Fprintf(&info, "%o %s\t%s\x00", files[p].mode, files[p].oid, p)
	}
	tree, err := r.writeTree(ctx, &info, changed)
	if err != nil {
		r.inIndex, r.tree = nil, ""
		_ = os.Remove(r.index()) // it is made anew
		return "", err
	}
	r.inIndex, r.tree = files, tree
	return tree, nil
}

func (r *repo) writeTree(ctx context.Context, info io.Reader, changed int) (string, error) {
	if changed > 0 {
		if err := r.git(ctx, gitCall{args: []string{"update-index", "-z", "--index-info"}, ownIndex: true, in: info}); err != nil {
			return "", err
		}
	}
	out, err := r.ask(ctx, gitCall{args: []string{"write-tree"}, config: r.syncing(changed), ownIndex: true})
	if err != nil {
		return "", err
	}
	tree := strings.TrimSpace(string(out))
	if !isOID(tree) {
		return "", fault.New(fault.Internal, "git write-tree answered %q", tree)
	}
	if changed > syncedFiles {
		flush(r.commonDir)
	}
	return tree, nil
}

// hidden is what git ignores in a work tree: files, and directories with all below.
type hidden struct {
	names map[string]bool
	cut   bool // there is more than is known
}

func newHidden(parts []string, cut bool) hidden {
	h := hidden{names: make(map[string]bool, len(parts)), cut: cut}
	for _, p := range parts {
		h.names[strings.TrimSuffix(p, "/")] = true
	}
	// git also names a directory in which it ignores each file that is there now, and
	// then those files. It does not ignore what else comes to be there.
	for _, p := range parts {
		for dir := range above(strings.TrimSuffix(p, "/")) {
			delete(h.names, dir)
		}
	}
	return h
}

// holds reports whether a path was ignored, or may have been.
func (h hidden) holds(path string) bool {
	if h.cut {
		return true
	}
	for {
		if h.names[path] {
			return true
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}

// splitter takes what git separates by NUL, and stops git when it is too much.
type splitter struct {
	most  int
	quiet bool // what is over the limit is only noted
	over  bool
	parts []string
	rest  []byte
}

var errOver = errors.New("more than is wanted")

func (s *splitter) Write(p []byte) (int, error) {
	if s.over && s.quiet {
		return len(p), nil
	}
	s.rest = append(s.rest, p...)
	for {
		i := bytes.IndexByte(s.rest, 0)
		if i < 0 {
			return len(p), nil
		}
		if len(s.parts) == s.most {
			s.over, s.rest = true, nil
			if s.quiet {
				return len(p), nil
			}
			return 0, errOver
		}
		s.parts = append(s.parts, string(s.rest[:i]))
		s.rest = s.rest[i+1:]
	}
}

// lines hands each line on as it comes.
type lines struct {
	each func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		l.each(string(l.rest[:i]))
		l.rest = l.rest[i+1:]
	}
}
