package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// ample are the usual limits with more time: where a test is not about that, a disk that stands
// still for ten seconds would make the call one of which nothing is kept, and the next ones too.
func ample() bounds {
	l := usual()
	l.time = 10 * time.Minute
	return l
}

// plainGit is git without walls.
type plainGit struct {
	path   string
	starts *atomic.Int64 // may be nil
}

func (p plainGit) Run(ctx context.Context, c Command) error {
	if p.path == "" {
		return ErrNoGit
	}
	if p.starts != nil {
		p.starts.Add(1)
	}
	cmd := exec.CommandContext(ctx, p.path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, append([]string{"PATH=/usr/bin:/bin"}, c.Env...), c.Stdin, c.Stdout, c.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return ExitError{exit.String()}
	}
	return err
}

func gitPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal("git is needed for these tests: ", err)
	}
	return path
}

// userEnv is that of a person whose own configuration is not read.
func userEnv() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
		"GIT_AUTHOR_DATE=2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2024-01-01T00:00:00Z", "LC_ALL=C",
	}
}

// bench is a repository with checkpoints of it.
type bench struct {
	t      testing.TB
	dir    string // the work tree
	c      *Checkpoints
	db     *db.DB
	vault  *vault.Vault
	o      Options
	starts atomic.Int64
	n      int
}

func setup(t testing.TB) *bench {
	t.Helper()
	b := bare(t)
	b.git("init", "-q", "-b", "main", ".")
	return b
}

// bare is a bench whose directory is no repository yet.
func bare(t testing.TB) *bench {
	t.Helper()
	return bareOn(t, dbtest.SQLite(t))
}

func bareOn(t testing.TB, d *db.DB) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: filepath.Join(dir, "work"), db: d}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if b.vault, err = vault.OpenKeyFile(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	b.o = Options{Dir: filepath.Join(dir, "cache"), limits: ample()}
	b.boot()
	return b
}

// boot forgets what is known in memory, as a new process would.
func (b *bench) boot() {
	b.t.Helper()
	b.c = New(Deps{DB: b.db, Vault: b.vault, Git: plainGit{gitPath(b.t), &b.starts}, Logger: slog.New(slog.DiscardHandler)}, b.o)
}

func (b *bench) git(args ...string) string {
	b.t.Helper()
	return b.gitIn(b.dir, args...)
}

func (b *bench) gitIn(dir string, args ...string) string {
	b.t.Helper()
	out, err := gitOf(b.t, dir, args...)
	if err != nil {
		b.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

func gitOf(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(gitPath(t), args...)
	cmd.Dir, cmd.Env = dir, userEnv()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *bench) path(rel string) string { return filepath.Join(b.dir, rel) }

func (b *bench) put(rel, content string) { b.putMode(rel, content, 0o644) }

func (b *bench) putMode(rel, content string, mode os.FileMode) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(rel)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(rel), []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(b.path(rel), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) rm(rel string) {
	b.t.Helper()
	if err := os.RemoveAll(b.path(rel)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) commit() {
	b.t.Helper()
	b.git("add", "-A")
	b.git("commit", "-q", "-m", "x", "--allow-empty")
}

// begun is a call whose intent is committed.
func (b *bench) begin(paths ...string) tool.Kept {
	b.t.Helper()
	b.n++
	if len(paths) == 0 {
		paths = []string{b.dir}
	}
	return b.beginAs(tool.Touch{
		Run: fmt.Sprintf("run_%d", b.n), Step: "tool/1", Tool: "shell.exec", Subject: "agent:main", Summary: fmt.Sprintf("call %d", b.n), Paths: paths,
	})
}

func (b *bench) beginAs(t tool.Touch) tool.Kept {
	b.t.Helper()
	k := b.c.Before(b.t.Context(), t)
	if k != nil {
		b.tx(k.OpenTx)
	}
	return k
}

func (b *bench) end(k tool.Kept) {
	b.t.Helper()
	if k == nil {
		return
	}
	k.After(b.t.Context())
	b.tx(k.CloseTx)
	k.Done()
}

func (b *bench) tx(fn func(context.Context, *db.Tx) error) {
	b.t.Helper()
	if err := b.db.InTx(b.t.Context(), fn); err != nil {
		b.t.Fatal(err)
	}
}

// call makes a call that does what fn does, and returns its checkpoint.
func (b *bench) call(fn func(), paths ...string) Row {
	b.t.Helper()
	k := b.begin(paths...)
	fn()
	b.end(k)
	return b.newest()
}

// newest is the newest row.
func (b *bench) newest() Row {
	b.t.Helper()
	rows, err := b.c.rows(b.t.Context(), "state <> '' ORDER BY seq DESC LIMIT 1")
	if err != nil {
		b.t.Fatal(err)
	}
	if len(rows) == 0 {
		return Row{}
	}
	return rows[0]
}

// undo takes a checkpoint back as act would.
func (b *bench) undo(x Row, ch Choice) (Restored, error) {
	b.t.Helper()
	b.n++
	ch.Checkpoint = x.ID
	return b.undoAs(fmt.Sprintf("run_%d", b.n), ch, false)
}

func (b *bench) undoAs(run string, ch Choice, again bool) (done Restored, err error) {
	b.t.Helper()
	in, err := b.c.InputOf(b.t.Context(), ch)
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		b.t.Fatal(err)
	}
	top, err := unshow(in.Repository)
	if err != nil {
		b.t.Fatal(err)
	}
	touch := tool.Touch{Run: run, Step: "restore", Tool: RestoreTool, Subject: Operator, Input: raw, Paths: []string{top}, Again: again}
	k := b.c.Before(b.t.Context(), touch)
	if k != nil && !again {
		b.tx(k.OpenTx)
	}
	out, err := b.c.restore(b.t.Context(), tool.Invocation{Run: run, Step: "restore", Input: raw})
	b.end(k)
	if err != nil {
		return done, err
	}
	return done, json.Unmarshal(out.JSON, &done)
}

func (b *bench) mustUndo(x Row, ch Choice) Restored {
	b.t.Helper()
	done, err := b.undo(x, ch)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(done.Left) > 0 {
		b.t.Fatalf("left: %v", done.Left)
	}
	return done
}

// files is every file of a directory but git's own: its kind, permissions and content.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			out[rel] = "link " + target
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[rel] = fmt.Sprintf("%o %q", info.Mode().Perm(), content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bench) files() map[string]string {
	b.t.Helper()
	return files(b.t, b.dir)
}

func (b *bench) is(want map[string]string, what string) {
	b.t.Helper()
	got := b.files()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] {
			b.t.Errorf("%s: %q is %.80s, want %.80s", what, p, got[p], want[p])
		}
	}
	for p := range got {
		if want[p] == "" {
			b.t.Errorf("%s: %q is there", what, p)
		}
	}
}

// gitState is what of a repository belongs to its user.
func (b *bench) gitState() string {
	b.t.Helper()
	var out bytes.Buffer
	for _, name := range []string{"index", "HEAD", "config", "ORIG_HEAD", "MERGE_HEAD", "logs/HEAD", "logs/refs/heads/main", "logs/refs/stash", "packed-refs"} {
		raw, err := os.ReadFile(filepath.Join(b.dir, ".git", name))
		fmt.Fprintf(&out, "%s %v %x\n", name, err == nil, raw)
	}
	out.WriteString(b.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes"))
	hooks, err := os.ReadDir(filepath.Join(b.dir, ".git", "hooks"))
	fmt.Fprint(&out, hooks, err)
	return out.String()
}

func (b *bench) refs() []string {
	b.t.Helper()
	return strings.Fields(b.git("for-each-ref", "--format=%(refname)", "refs/ombud"))
}

// tick passes a moment between two looks.
func tick(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
