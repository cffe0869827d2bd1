package checkpoint

import (
	"bufio"
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
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// RestoreTool is the tool that brings a work tree back. Only the operator calls it.
const RestoreTool = "git.restore"

// Operator is the one subject that may.
const Operator = "operator"

// workName begins the names of the files a restore works in, beside what it restores.
const workName = ".ombud-undo-"

const restoreSchema = `{"type":"object","additionalProperties":false,"required":["checkpoint","repository"],"properties":{
"checkpoint":{"type":"string","minLength":1,"maxLength":64,"description":"id of the checkpoint"},
"repository":{"type":"string","minLength":1,"maxLength":4096,"description":"its work tree"},
"paths":{"type":"array","maxItems":1000,"items":{"type":"string","minLength":1,"maxLength":4096},"description":"only these, from the top of the work tree"},
"only":{"type":"boolean","description":"only what this call changed, not the calls after it"},
"force":{"type":"boolean","description":"also files that somebody else changed since"}}}`

// RestoreInput is the input of git.restore. Paths are written by show.
type RestoreInput struct {
	Checkpoint string   `json:"checkpoint"`
	Repository string   `json:"repository"`
	Paths      []string `json:"paths,omitempty"`
	Only       bool     `json:"only,omitempty"`
	Force      bool     `json:"force,omitempty"`
}

// Restored is what a restore did.
type Restored struct {
	Restored int      `json:"restored"` // files brought back
	Removed  int      `json:"removed"`  // files taken away
	Already  int      `json:"already"`  // were so already
	Left     []string `json:"left,omitempty"`
	Undoes   []string `json:"undoes,omitempty"` // checkpoints
}

// Register makes git.restore known to r.
func (c *Checkpoints) Register(r *tool.Registry) error {
	return r.Add(tool.Definition{
		Name: RestoreTool, Only: Operator,
		Description: "Bring files of a git work tree back to what they were before a call. Only the operator can call it.",
		Input:       json.RawMessage(restoreSchema), Kind: tool.Effect, Repeat: tool.Repeatable,
		Timeout: patience, MaxOutput: 1 << 20, Source: label.Own,
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[RestoreInput](input)
			if err != nil {
				return nil, err
			}
			top, err := unshow(in.Repository)
			if err != nil {
				return nil, err
			}
			s, err := scope.Of("git.write", filepath.ToSlash(top))
			return []scope.Scope{s}, err
		},
		Touches: func(input json.RawMessage) []string {
			in, err := tool.Decode[RestoreInput](input)
			if err != nil {
				return nil
			}
			top, err := unshow(in.Repository)
			if err != nil {
				return nil
			}
			return []string{top}
		},
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		Summary: func(input json.RawMessage) string {
			in, _ := tool.Decode[RestoreInput](input) // validated
			s := "undo " + tool.Show(in.Checkpoint) + " in " + tool.Show(in.Repository)
			if len(in.Paths) > 0 {
				s += fmt.Sprintf(", %d chosen paths", len(in.Paths))
			}
			if in.Force {
				s += ", also over what others changed"
			}
			return s
		},
	}, c.restore)
}

func choiceOf(in RestoreInput) (ch Choice, err error) {
	ch = Choice{Checkpoint: in.Checkpoint, Only: in.Only, Force: in.Force}
	for _, p := range in.Paths {
		plain, err := unshow(p)
		if err != nil {
			return ch, err
		}
		plain = path.Clean(plain)
		if plain != "." && !sound(plain) {
			return ch, fault.New(fault.Invalid, "%s is no path of a work tree", show(plain))
		}
		ch.Paths = append(ch.Paths, plain)
	}
	return ch, nil
}

// restoreScope is the files an undo may change, and what it takes back.
func (c *Checkpoints) restoreScope(ctx context.Context, r *repo, repository []byte, t tool.Touch) (paths, undoes []string, err error) {
	in, err := tool.Decode[RestoreInput](t.Input)
	if err != nil {
		return nil, nil, err
	}
	ch, err := choiceOf(in)
	if err != nil {
		return nil, nil, err
	}
	x, err := c.Find(ctx, ch.Checkpoint)
	if err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(x.repository, repository) {
		return nil, nil, fault.New(fault.Invalid, "%s is not of %s", x.ID, show(r.top))
	}
	before, err := c.ownSeq(ctx, t.Run, t.Step, repository)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.pastOf(ctx, r, x, before, ch, "")
	if err != nil {
		return nil, nil, err
	}
	for path := range p.changes {
		if under(ch.Paths, path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 { // an undo of nothing changes nothing
		paths = []string{workName}
	}
	slices.Sort(paths)
	for _, s := range p.spans {
		undoes = append(undoes, s.ids()...)
	}
	return paths, undoes, nil
}

// ownSeq is the place of the undo's own checkpoint in the order, 0 if it has none yet.
func (c *Checkpoints) ownSeq(ctx context.Context, run, step string, repository []byte) (int64, error) {
	own, err := c.Of(ctx, run, step)
	for _, x := range own {
		if bytes.Equal(x.repository, repository) {
			return x.Seq, err
		}
	}
	return 0, err
}

func (c *Checkpoints) pastOf(ctx context.Context, r *repo, x Row, before int64, ch Choice, now string) (*past, error) {
	if err := x.holds(); err != nil {
		return nil, err
	}
	spans, err := c.history(ctx, x, before, ch.Only)
	if err != nil {
		return nil, err
	}
	return r.past(ctx, spans, now)
}

// holds says whether there is anything to go back to.
func (x Row) holds() error {
	if x.State == None || x.BeforeTree == "" {
		return fault.New(fault.NotFound, "there is no checkpoint of this call: %s", x.Why)
	}
	return nil
}

// restore is the handler of git.restore. Interrupted, it is called again: what it
// finds as it was before goes on, what it finds done is done.
func (c *Checkpoints) restore(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[RestoreInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	ch, err := choiceOf(in)
	if err != nil {
		return tool.Output{}, err
	}
	x, err := c.Find(ctx, ch.Checkpoint)
	if err != nil {
		return tool.Output{}, err
	}
	if err := x.holds(); err != nil {
		return tool.Output{}, err
	}
	r, err := c.repoOf(x)
	if err != nil {
		return tool.Output{}, err
	}
	own, err := c.Of(ctx, inv.Run, inv.Step)
	if err != nil {
		return tool.Output{}, err
	}
	i := slices.IndexFunc(own, func(o Row) bool { return bytes.Equal(o.repository, x.repository) })
	if i < 0 || own[i].State == None {
		why := "no checkpoint of it was taken"
		if i >= 0 {
			why = own[i].Why
		}
		return tool.Output{}, fault.New(fault.Unavailable, "nothing was changed: the present state could not be kept first: %s", why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if busy := r.busy(own[i].ID); len(busy) > 0 && !ch.Force {
		return tool.Output{}, fault.New(fault.Conflict, "a call is at work in %s: %s", x.Top, strings.Join(busy, ", ")).
			WithHint("wait for its end, or use --force")
	}
	p, err := c.pastOf(ctx, r, x, own[i].Seq, ch, own[i].BeforeTree)
	if err != nil {
		return tool.Output{}, err
	}
	now, err := r.treeFiles(ctx, own[i].BeforeTree)
	if err != nil {
		return tool.Output{}, err
	}
	todo := p.against(now, own[i].Skipped, ch.Paths)
	if err := refuse(todo, ch.Force); err != nil {
		return tool.Output{}, err
	}
	done, err := c.apply(ctx, r, todo)
	done.Undoes = own[i].Undoes
	if err != nil {
		return tool.Output{}, err
	}
	raw, err := json.Marshal(done)
	return tool.Output{JSON: raw}, err
}

// busy names the calls at work in the repository but one. The caller holds the lock.
func (r *repo) busy(but string) (ids []string) {
	for k := range r.active {
		if k.row.ID != but {
			ids = append(ids, k.row.Tool+" in "+k.row.Run)
		}
	}
	slices.Sort(ids)
	return ids
}

// maxNamed is how many files a refusal names.
const maxNamed = 20

// refuse keeps an undo from changing what is not the calls' doing.
func refuse(todo []change, force bool) error {
	var bad []string
	for _, c := range todo {
		if c.conflict != "" && c.never == "" && !force {
			bad = append(bad, show(c.path)+": "+c.conflict)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	n := len(bad)
	if n > maxNamed {
		bad = append(bad[:maxNamed], fmt.Sprintf("and %d more", n-maxNamed))
	}
	return fault.New(fault.Conflict, "nothing was changed: %s", strings.Join(bad, "; ")).
		WithHint("name the files that are to be undone, or use --force: what is there now is kept and can be had back")
}

// apply brings files back. Nothing is changed before it is known that every content
// is there. Each file changes at one instant; one that is not as it was when the
// checkpoint of the undo was taken is left and named.
func (c *Checkpoints) apply(ctx context.Context, r *repo, todo []change) (done Restored, err error) {
	root, err := os.OpenRoot(r.top)
	if err != nil {
		return done, fault.New(fault.Permission, "open the work tree: %w", err)
	}
	defer func() { _ = root.Close() }() // holds nothing that could still be written
	w := &worker{c: c, r: r, root: root, done: &done}
	for _, ch := range todo {
		switch {
		case ch.never != "":
			w.leave(ch, ch.never)
		case ch.to == nil:
			w.away = append(w.away, ch)
		default:
			w.back = append(w.back, ch)
		}
	}
	if err := r.allThere(ctx, w.back); err != nil {
		return done, err
	}
	c.point("checkpoint.restore")
	slices.Reverse(w.away) // what is in a directory before the directory
	for _, ch := range w.away {
		if ctx.Err() != nil {
			return done, w.interrupted(ctx, len(todo))
		}
		w.remove(ch)
		c.point("checkpoint.restore.removed")
	}
	if err := w.bring(ctx); err != nil {
		if ctx.Err() != nil {
			return done, w.interrupted(ctx, len(todo))
		}
		return done, fault.New(fault.Unavailable, "%d of %d files are undone, the others are as they were: %w", done.sum(), len(todo), err)
	}
	c.point("checkpoint.restore.end")
	return done, nil
}

func (d *Restored) sum() int { return d.Restored + d.Removed + d.Already }

// worker is one restore.
type worker struct {
	c          *Checkpoints
	r          *repo
	root       *os.Root
	away, back []change
	done       *Restored
}

func (w *worker) interrupted(ctx context.Context, all int) error {
	return fault.New(fault.Timeout, "interrupted: %d of %d files are undone, the others are as they were: %w", w.done.sum(), all, context.Cause(ctx)).
		WithHint("undo again for the rest")
}

// maxLeft is how many files that are left are named.
const maxLeft = 200

func (w *worker) leave(c change, why string) {
	switch n := len(w.done.Left); {
	case n < maxLeft:
		w.done.Left = append(w.done.Left, show(c.path)+": "+why)
	case n == maxLeft:
		w.done.Left = append(w.done.Left, "and more")
	}
}

// allThere makes sure that every content is in the repository.
func (r *repo) allThere(ctx context.Context, back []change) error {
	if len(back) == 0 {
		return nil
	}
	var in bytes.Buffer
	for _, c := range back {
		in.WriteString(c.to.oid + "\n")
	}
	out, err := r.ask(ctx, gitCall{args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)"}, in: &in})
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(lines) != len(back) {
		return fault.New(fault.Internal, "git cat-file answered %d of %d", len(lines), len(back))
	}
	for i, line := range lines {
		if line != back[i].to.oid+" blob" {
			return fault.New(fault.Verification, "nothing was changed: the content of %s is not in the repository any more", show(back[i].path)).
				WithHint("the checkpoint is damaged; choose other files")
		}
	}
	return nil
}

// state is what is at a path now; nil for nothing. Something that is no file is an
// error.
func (w *worker) state(p string, oidLen int) (*entry, error) {
	for dir := range above(p) {
		info, err := w.root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // nothing is there
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, nil //nolint:nilnil // it is behind a link or a file, which is not there for git
		}
	}
	info, err := w.root.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is there
	}
	if err != nil {
		return nil, err
	}
	e := &entry{mode: modeFile, perm: info.Mode().Perm()}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := w.root.Readlink(p)
		if err != nil {
			return nil, err
		}
		e.mode = modeLink
		e.oid, err = blobName(strings.NewReader(target), int64(len(target)), oidLen)
		return e, err
	case mode.IsRegular():
		if mode&0o111 != 0 {
			e.mode = modeExec
		}
		f, err := w.root.OpenFile(p, openFlags, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil {
			return nil, err
		}
		e.oid, err = blobName(f, info.Size(), oidLen)
		return e, err
	case mode.IsDir():
		return nil, errDirectory
	}
	return nil, fault.New(fault.Conflict, "it is no file")
}

var errDirectory = fault.New(fault.Conflict, "a directory is there now")

// check compares a path with what undo expects. todo is false if there is nothing
// left to do, or nothing may be done.
func (w *worker) check(c change) (todo bool) {
	oidLen := 40
	for _, e := range []*entry{c.from, c.to} {
		if e != nil {
			oidLen = len(e.oid)
		}
	}
	is, err := w.state(c.path, oidLen)
	switch {
	case errors.Is(err, errDirectory) && c.from == nil && w.emptied(c.path):
		return true
	case err != nil:
		w.leave(c, plain(err))
		return false
	case is.same(c.to):
		w.done.Already++
		return false
	case !is.same(c.from):
		w.leave(c, "it was changed while the undo was under way")
		return false
	}
	return true
}

// emptied removes a directory that nothing is left in.
func (w *worker) emptied(dir string) bool { return w.root.Remove(dir) == nil }

// plain is an error without the path that is named before it.
func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func (w *worker) remove(c change) {
	if !w.check(c) {
		return
	}
	if err := w.root.Remove(c.path); err != nil {
		w.leave(c, plain(err))
		return
	}
	w.done.Removed++
	for dir := range above(c.path) { // as git does: a directory that lost its last file goes
		if !w.emptied(dir) {
			break
		}
	}
}

// bring writes what is to be back. The contents come from one git, in the order of
// the files.
func (w *worker) bring(ctx context.Context) error {
	var want []change
	for _, c := range w.back {
		w.clear(c.path)
		if w.check(c) {
			want = append(want, c)
		}
	}
	if len(want) == 0 {
		return nil
	}
	var in bytes.Buffer
	for _, c := range want {
		in.WriteString(c.to.oid + "\n")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, into := io.Pipe()
	ended := make(chan error, 1)
	go func() { // ends with git, which ends with ctx
		err := w.r.git(ctx, gitCall{args: []string{"cat-file", "--batch"}, in: &in, out: into})
		_ = into.CloseWithError(errors.Join(err, io.ErrUnexpectedEOF)) // it never fails
		ended <- err
	}()
	src := bufio.NewReaderSize(out, 64<<10)
	var failed error
	for _, c := range want {
		if failed = ctx.Err(); failed != nil {
			break
		}
		if failed = w.one(c, src); failed != nil {
			break
		}
		w.c.point("checkpoint.restore.file")
	}
	if failed != nil {
		cancel()
	}
	_ = out.Close() // git is not waited for by what it still has to say
	err := <-ended
	if failed != nil {
		return failed
	}
	return err
}

// one writes one file from the stream of contents. Its error is the stream's; what
// goes wrong with the file is noted.
func (w *worker) one(c change, src *bufio.Reader) error {
	head, err := src.ReadString('\n')
	if err != nil {
		return fault.New(fault.Unavailable, "read %s: %w", show(c.path), err)
	}
	var oid, kind string
	var size int64
	if n, _ := fmt.Sscanf(head, "%s %s %d", &oid, &kind, &size); n != 3 || oid != c.to.oid || kind != "blob" {
		return fault.New(fault.Internal, "git cat-file answered %q", head)
	}
	content := io.LimitReader(src, size)
	if err := w.write(c, content); err != nil {
		w.leave(c, plain(err))
		w.clear(c.path)
	} else {
		w.done.Restored++
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return fault.New(fault.Unavailable, "read %s: %w", show(c.path), err)
	}
	if end, err := src.ReadByte(); err != nil || end != '\n' {
		return fault.New(fault.Unavailable, "read %s: the content is cut", show(c.path))
	}
	return nil
}

// workFile is where the content of a file is written before it takes its place.
func workFile(p string) string {
	sum := sha256.Sum256([]byte(p))
	return path.Join(path.Dir(p), workName+hex.EncodeToString(sum[:8]))
}

// clear removes what an interrupted restore left.
func (w *worker) clear(p string) { _ = w.root.Remove(workFile(p)) } // mostly there is nothing

func (w *worker) write(c change, content io.Reader) error {
	if err := w.parents(c.path); err != nil {
		return err
	}
	tmp := workFile(c.path)
	if c.to.mode == modeLink {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		if err := w.root.Symlink(string(target), tmp); err != nil {
			return err
		}
		return w.root.Rename(tmp, c.path)
	}
	f, err := w.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(c.perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return w.root.Rename(tmp, c.path)
}

// parents makes the directories of a path. A link is not followed: what is behind it
// is not what the checkpoint held.
func (w *worker) parents(p string) error {
	dirs := slices.Collect(above(p))
	slices.Reverse(dirs)
	for _, dir := range dirs {
		info, err := w.root.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := w.root.Mkdir(dir, 0o777); err != nil {
				return err
			}
		case err != nil:
			return err
		case !info.IsDir():
			return fault.New(fault.Conflict, "%s is no directory now", show(dir))
		}
	}
	return nil
}
