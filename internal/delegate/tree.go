package delegate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Tree is the worktree a session writes in.
type Tree struct {
	Path   string `json:"path"`    // of the worktree
	Repo   string `json:"repo"`    // top of the work tree it was made from
	GitDir string `json:"git_dir"` // of Repo
	Common string `json:"common"`  // the repository of both
	Base   string `json:"base"`    // commit
	Below  string `json:"below"`   // where in it the session works
	Dirty  int    `json:"dirty"`   // files of Repo with changes that are not in Base

	State   string `json:"state,omitempty"`   // git's id of what was there when a run ended
	Applied string `json:"applied,omitempty"` // the one that was put into Repo last
}

// There reports whether there is one.
func (t Tree) There() bool { return t.Path != "" }

// dir is where the session works.
func (t Tree) dir() string { return filepath.Join(t.Path, t.Below) }

// place is dir, where it is as it was made. What works in a worktree can put a link in the
// place of a directory, and the walls of the next run would open what that points to.
func (t Tree) place() (string, error) {
	top, err := filepath.EvalSymlinks(t.Path)
	if err != nil {
		return "", fault.New(fault.NotFound, "the worktree %s is gone: %w", t.Path, err).WithHint("forget its session, and begin a new one: ombud delegate drop")
	}
	dir, err := filepath.EvalSymlinks(t.dir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fault.New(fault.NotFound, "%s is not in the worktree %s: it is in no commit, or was removed there", t.Below, t.Path).
			WithHint("commit something in it first, or work from the top of the repository")
	case err != nil:
		return "", fault.New(fault.Permission, "work in %s: %w", t.dir(), err)
	case dir != filepath.Join(top, t.Below):
		return "", fault.New(fault.Denied, "%s of the worktree %s has become a link to elsewhere", t.Below, t.Path)
	}
	return dir, nil
}

// mend sets the file right that ties the worktree to its repository, and reports whether
// it was another: a program that works there can put a repository of its own in its place,
// whose configuration would run commands as soon as a person says git status there.
func (t Tree) mend() (was bool, err error) {
	root, err := os.OpenRoot(t.Path)
	if err != nil {
		return false, fault.New(fault.NotFound, "the worktree %s: %w", t.Path, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	want := "gitdir: " + t.own() + "\n"
	if st, err := root.Lstat(".git"); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(want)) {
		if got, err := root.ReadFile(".git"); err == nil && string(got) == want {
			return false, nil
		}
	}
	err = root.RemoveAll(".git")
	if err == nil {
		err = root.WriteFile(".git", []byte(want), 0o644)
	}
	if err != nil {
		return true, fault.New(fault.Permission, "tie the worktree %s to its repository: %w", t.Path, err)
	}
	return true, nil
}

// own is git's directory of the worktree. The program of a session can write the file
// that points there and not the directory, so that file is never read.
func (t Tree) own() string { return filepath.Join(t.Common, "worktrees", filepath.Base(t.Path)) }

// maxPatch bounds the patch that is kept, in bytes.
const maxPatch = 4 << 20

// maxFiles bounds the changed files that are told singly.
const maxFiles = 200

// Changed is a file a session changed. Lines are -1 for a binary file.
type Changed struct {
	Path    string `json:"path"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// gitCall is one start of git in a repository.
type gitCall struct {
	gitDir, workTree string
	dir              string
	write            []string
	env              []string
	args             []string
	stdin            []byte
	most             int // of the answer that is kept; 0: 1 MiB
}

const maxGitAnswer = 1 << 20

// git runs git with nothing of a repository's configuration that would run a program.
func (s *Service) git(ctx context.Context, owner confine.Owner, c gitCall) (out []byte, cut bool, err error) {
	if c.most == 0 {
		c.most = maxGitAnswer
	}
	answer, said := &head{most: c.most}, &head{most: 4 << 10}
	p := confine.GitProfile(c.workTree)
	p.Write = append(p.Write, c.write...)
	err = s.Git.Run(ctx, checkpoint.Command{
		Profile: p, Owner: owner, Dir: c.dir, Args: append(checkpoint.SafeArgs("filter.lfs.smudge=", "filter.lfs.clean=", "filter.lfs.process=", "filter.lfs.required=false", "diff.orderFile="+os.DevNull), c.args...),
		Env: append(checkpoint.SafeEnv("", c.gitDir, c.workTree), c.env...), Stdin: bytes.NewReader(c.stdin), Stdout: answer, Stderr: said,
	})
	if exit, ok := errors.AsType[checkpoint.ExitError](err); ok {
		text := strings.TrimSpace(said.String())
		if text == "" {
			text = exit.How
		}
		err = fault.New(fault.Unavailable, "git %s: %s", c.args[0], fault.Cut(text, 500))
	}
	return answer.buf.Bytes(), answer.cut, err
}

// head keeps the beginning of what is written to it.
type head struct {
	most int
	buf  bytes.Buffer
	cut  bool
}

func (h *head) Write(p []byte) (int, error) {
	if room := h.most - h.buf.Len(); room < len(p) {
		h.cut = true
		h.buf.Write(p[:max(0, room)])
	} else {
		h.buf.Write(p)
	}
	return len(p), nil
}

func (h *head) String() string { return strings.ToValidUTF8(h.buf.String(), "\uFFFD") }

// placeOf is where the repository of a directory is.
func placeOf(dir string) (checkpoint.Place, error) {
	place, err := checkpoint.Find(dir)
	if err != nil {
		return place, fault.New(fault.Invalid, "%s is in no git repository: what a coding agent writes is kept apart in a worktree", dir).
			WithHint("git init there and commit, or let it only read")
	}
	return place, nil
}

// main is a call of git in the repository a worktree is made from.
func (t Tree) main(write []string, args ...string) gitCall {
	return gitCall{gitDir: t.GitDir, workTree: t.Repo, dir: t.Repo, write: append(write, t.GitDir, t.Common), args: args}
}

// inBase is the directory the session works in, as git names it in a commit.
func (t Tree) inBase() string {
	if t.Below == "." {
		return ""
	}
	return filepath.ToSlash(t.Below)
}

// ground is what a worktree for a directory would be made from.
func (s *Service) ground(ctx context.Context, owner confine.Owner, dir string) (Tree, error) {
	place, err := placeOf(dir)
	if err != nil {
		return Tree{}, err
	}
	below, err := filepath.Rel(place.Top, dir)
	if err != nil {
		return Tree{}, fault.New(fault.Invalid, "%s is not in %s: %w", dir, place.Top, err)
	}
	t := Tree{Repo: place.Top, GitDir: place.GitDir, Common: place.CommonDir, Below: below}
	base, _, err := s.git(ctx, owner, t.main(nil, "rev-parse", "--verify", "--end-of-options", "HEAD^{commit}"))
	switch {
	case errors.Is(err, checkpoint.ErrNoGit):
		return t, fault.New(fault.Unavailable, "%w, and what a coding agent writes is kept apart in a worktree of git", err).
			WithHint("install git, or let it only read")
	case err != nil:
		return t, fault.New(fault.Invalid, "%s has no commit to work from: %w", place.Top, err).WithHint("make a first commit")
	}
	t.Base = strings.TrimSpace(string(base))
	return t, nil
}

// plant makes the worktree of a session whose row has none.
func (s *Service) plant(ctx context.Context, owner confine.Owner, session, dir string) (Tree, error) {
	if err := os.MkdirAll(s.cfg.Trees, 0o700); err != nil {
		return Tree{}, fault.New(fault.Permission, "make the directory of worktrees: %w", err)
	}
	t, err := s.ground(ctx, owner, dir)
	if err != nil {
		return Tree{}, err
	}
	t.Path = filepath.Join(s.cfg.Trees, strings.TrimPrefix(session, "ses_"))
	main := func(args ...string) gitCall { return t.main([]string{s.cfg.Trees}, args...) }
	dirty, _, err := s.git(ctx, owner, main("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames"))
	if err != nil {
		return Tree{}, err
	}
	t.Dirty = bytes.Count(dirty, []byte{0})
	release, err := s.alone(ctx, t.Common)
	if err != nil {
		return Tree{}, err
	}
	defer release()
	// What is there from before a crash may lack files, and nobody has worked in it.
	if err := errors.Join(s.fell(t), s.clear(ctx, t.Common)); err != nil {
		return Tree{}, err
	}
	if _, _, err := s.git(ctx, owner, main("worktree", "add", "--detach", "--quiet", t.Path, t.Base)); err != nil {
		return Tree{}, err
	}
	_, err = t.mend() // git may have written it another way
	return t, err
}

// found is what a session changed in its worktree, as a patch.
type found struct {
	patch string
	cut   bool
	files []Changed
	more  int
	state string // git's id of the tree that is there
	lacks []string
}

// left is what a session changed in its worktree, against its base or what was applied of it
// since. What git cannot take in is said, and the rest is told all the same.
func (s *Service) left(ctx context.Context, owner confine.Owner, t Tree) (f found, err error) {
	// One run at a time works in it, so what is there is of one that died.
	private := filepath.Join(s.cfg.Trees, ".index-"+filepath.Base(t.Path))
	if err := errors.Join(os.RemoveAll(private), os.Mkdir(private, 0o700)); err != nil {
		return f, fault.New(fault.Permission, "a place for an index: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	in := func(most int, args ...string) gitCall {
		return gitCall{
			gitDir: t.own(), workTree: t.Path, dir: t.Path, write: []string{t.Common, private}, args: args, most: most,
			env: []string{"GIT_INDEX_FILE=" + filepath.Join(private, "index"), "GIT_COMMON_DIR=" + t.Common},
		}
	}
	base := t.Base
	if t.Applied != "" {
		// Nothing refers to it, so git may have removed it after some weeks.
		if _, _, err := s.git(ctx, owner, in(0, "cat-file", "-e", t.Applied)); err == nil {
			base = t.Applied
		}
	}
	if _, _, err = s.git(ctx, owner, in(0, "read-tree", base)); err != nil {
		return f, err
	}
	if _, _, err = s.git(ctx, owner, in(0, "add", "--all", "--ignore-errors", "--", ".")); err != nil {
		if ctx.Err() != nil {
			return f, err
		}
		f.lacks = append(f.lacks, fmt.Sprintf("not all it changed is in the patch: %v", err))
	}
	state, _, err := s.git(ctx, owner, in(0, "write-tree"))
	if err != nil {
		return f, err
	}
	f.state = strings.TrimSpace(string(state))
	diff := []string{"diff", "--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"}
	raw, _, err := s.git(ctx, owner, in(0, append(diff, "--ignore-submodules=none", "--raw", "-z", base)...))
	if err != nil {
		return f, err
	}
	if n := readRepositories(raw); n > 0 {
		f.lacks = append(f.lacks, fmt.Sprintf("%d directories of the worktree are git repositories of their own; what is in them is not in the patch", n))
	}
	diff = append(diff, "--ignore-submodules=all")
	numbers, _, err := s.git(ctx, owner, in(0, append(diff, "--numstat", "-z", base)...))
	if err != nil {
		return f, err
	}
	f.files, f.more = readNumbers(numbers)
	patch, cut, err := s.git(ctx, owner, in(maxPatch, append(diff, "--binary", base)...))
	f.patch, f.cut = string(patch), cut
	return f, err
}

// readRepositories counts in `git diff --raw -z` what has become a repository of its own.
func readRepositories(raw []byte) (n int) {
	for record := range bytes.SplitSeq(raw, []byte{0}) {
		parts := bytes.Fields(record)
		if len(parts) == 5 && bytes.HasPrefix(record, []byte(":")) && string(parts[1]) == "160000" {
			n++
		}
	}
	return n
}

// readNumbers reads `git diff --numstat -z`: added, removed and path of each file.
func readNumbers(raw []byte) (files []Changed, more int) {
	for record := range bytes.SplitSeq(raw, []byte{0}) {
		parts := strings.SplitN(string(record), "\t", 3)
		if len(parts) != 3 {
			continue
		}
		if len(files) == maxFiles {
			more++
			continue
		}
		c := Changed{Path: strings.ToValidUTF8(parts[2], "\uFFFD"), Added: -1, Removed: -1}
		if parts[0] != "-" {
			_, _ = fmt.Sscan(parts[0], &c.Added) // git writes numbers
			_, _ = fmt.Sscan(parts[1], &c.Removed)
		}
		files = append(files, c)
	}
	return files, more
}

// apply puts a patch into the work tree the session was made from: all of it or nothing.
func (s *Service) apply(ctx context.Context, owner confine.Owner, t Tree, patch string) error {
	_, _, err := s.git(ctx, owner, gitCall{
		gitDir: t.GitDir, workTree: t.Repo, dir: t.Repo, write: []string{t.GitDir, t.Common},
		args: []string{"apply", "--whitespace=nowarn", "--binary", "-"}, stdin: []byte(patch),
	})
	if fault.Is(err, fault.Unavailable) {
		err = fault.New(fault.Conflict, "the patch does not fit %s as it is now: %w; nothing was changed", t.Repo, err).
			WithHint("commit or take back what differs there, or merge by hand from %s", t.Path)
	}
	return err
}

// alone waits until nobody else changes the worktrees of a repository: git reads those of
// all whenever it makes one, and gives up on one that is half there.
func (s *Service) alone(ctx context.Context, common string) (release func(), err error) {
	s.mu.Lock()
	turn := s.turns[common]
	if turn == nil {
		turn = make(chan struct{}, 1)
		s.turns[common] = turn
	}
	s.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// clear removes what git had begun of the worktrees of other sessions when the daemon died.
// Their own runs make them anew.
func (s *Service) clear(ctx context.Context, common string) error {
	all, err := os.ReadDir(filepath.Join(common, "worktrees"))
	if err != nil {
		return nil //nolint:nilerr // there are none, or git says what is wrong with them
	}
	for _, e := range all {
		t := Tree{Path: filepath.Join(s.cfg.Trees, e.Name()), Common: common}
		session := "ses_" + e.Name()
		if !id.Valid("ses", session) || finished(t.own()) {
			continue
		}
		x, err := s.SessionOf(ctx, session)
		switch {
		case fault.Is(err, fault.NotFound): // it is not ours
			continue
		case err != nil:
			return err
		case x.Body.Home != s.cfg.Home || x.Body.Tree.There():
			continue
		}
		if err := s.fell(t); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether git has come to the end of making a worktree, by git's directory
// of it: until then it holds a lock.
func finished(own string) bool {
	_, err := os.Stat(filepath.Join(own, "locked"))
	common, unread := os.Stat(filepath.Join(own, "commondir"))
	return err != nil && unread == nil && common.Size() > 0
}

// fell removes the worktree of a session and what the repository knows of it. Both are
// named by the session: git's own pruning would look at the worktrees of others.
func (s *Service) fell(t Tree) error {
	if !t.There() {
		return nil
	}
	for _, dir := range []string{t.Path, t.own()} {
		if err := removeAll(dir); err != nil {
			return fault.New(fault.Permission, "remove the worktree %s: %w", t.Path, err)
		}
	}
	return nil
}

// removeAll removes what programs left, also from directories it may not be removed from:
// the modules of Go that a build fetched lie in such.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, opened := os.OpenRoot(dir)
	if opened != nil {
		return err
	}
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, _ error) error { // what is not opened is told below
		if d != nil && d.IsDir() {
			_ = root.Chmod(filepath.FromSlash(name), 0o700)
		}
		return nil
	})
	return errors.Join(root.Close(), os.RemoveAll(dir))
}
