package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// roundTrip makes a call in a work tree and takes it back.
func (b *bench) roundTrip(dir, what string) Row {
	b.t.Helper()
	full := filepath.Join(dir, "touched.txt")
	before := files(b.t, dir)
	x := b.call(func() {
		if err := os.WriteFile(full, []byte("touched"), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}, dir)
	if x.State != Held || x.Changed != 1 {
		b.t.Fatalf("%s: %+v", what, x)
	}
	b.mustUndo(x, Choice{})
	if got := files(b.t, dir); len(got) != len(before) || got["touched.txt"] != "" {
		b.t.Errorf("%s: undone is %v", what, got)
	}
	return x
}

func TestRepositoriesOfEveryKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "a")
	b.roundTrip(b.dir, "without a commit")
	b.commit()
	linked := filepath.Join(filepath.Dir(b.dir), "linked")
	b.git("worktree", "add", "-q", linked)
	x := b.roundTrip(linked, "a linked work tree")
	if x.CommonDir == x.GitDir {
		t.Error("it is not known as a linked one")
	}
	if list := b.git("worktree", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("work trees: %s", list)
	}

	b.git("checkout", "-q", "-b", "other")
	b.put("a", "other")
	b.commit()
	b.git("checkout", "-q", "main")
	b.put("a", "main")
	b.commit()
	if out, err := gitOf(t, b.dir, "merge", "other"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	state := b.gitState()
	b.roundTrip(b.dir, "in the middle of a merge")
	b.git("merge", "--abort")
	if out, err := gitOf(t, b.dir, "rebase", "other"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	b.roundTrip(b.dir, "in the middle of a rebase")
	b.git("rebase", "--abort")
	if state == b.gitState() {
		t.Error("the test compares nothing")
	}

	b.put(".git/index.lock", "")
	b.roundTrip(b.dir, "while somebody holds the index")
	b.rm(".git/index.lock")
	b.git("sparse-checkout", "set", "nothing")
	b.roundTrip(b.dir, "a sparse checkout")
	b.git("sparse-checkout", "disable")
	b.git("update-index", "--split-index")
	b.roundTrip(b.dir, "a split index")
	b.git("pack-refs", "--all")
	b.git("gc", "-q")
	b.roundTrip(b.dir, "packed")
}

func TestARepositoryOfSHA256(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.git("init", "-q", "--object-format=sha256", ".")
	b.put("a", "a")
	if x := b.roundTrip(b.dir, "sha256"); len(x.BeforeTree) != 64 {
		t.Errorf("tree %s", x.BeforeTree)
	}
	b.put("b", "b")
	x := b.call(func() { b.put("a", "2"); b.rm("b") })
	b.mustUndo(x, Choice{})
	if got := b.files(); got["a"] != `644 "a"` || got["b"] != `644 "b"` {
		t.Error(got)
	}
}

func TestASubmoduleIsKeptAsItsCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lib := filepath.Join(filepath.Dir(b.dir), "lib")
	b.gitIn(filepath.Dir(lib), "init", "-q", "-b", "main", "lib")
	b.gitIn(lib, "commit", "-q", "--allow-empty", "-m", "1")
	b.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "sub")
	b.put("own/.keep", "")
	b.gitIn(b.path("own"), "init", "-q", "-b", "main", "nested")
	b.gitIn(b.path("own/nested"), "commit", "-q", "--allow-empty", "-m", "1")
	b.commit()
	x := b.call(func() {
		b.gitIn(b.path("sub"), "commit", "-q", "--allow-empty", "-m", "2")
		b.put("sub/file", "not the outer repository's")
		b.put("own/nested/file", "not either")
		b.put("a", "a")
	})
	if x.Changed != 2 {
		t.Errorf("changed %d", x.Changed)
	}
	p, err := b.c.Preview(t.Context(), Choice{Checkpoint: x.ID})
	if err != nil || len(p.Changes) != 2 || !strings.Contains(p.Changes[1].Never, "repository of its own") {
		t.Fatalf("%+v, %v", p, err)
	}
	done, err := b.undo(x, Choice{})
	if err != nil || done.Removed != 1 || len(done.Left) != 1 || exists(b.path("a")) || !exists(b.path("sub/file")) {
		t.Errorf("%+v, %v", done, err)
	}
	in := b.roundTrip(b.path("sub"), "inside the submodule")
	if in.Top != b.path("sub") {
		t.Errorf("a call in the submodule is kept for %s", in.Top)
	}
	b.roundTrip(b.path("own/nested"), "inside the nested repository")
}

func TestWhereThereIsNoCheckpointTheRecordSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "a")
	b.commit()
	why := func(what, want string, paths ...string) {
		t.Helper()
		ran := false
		x := b.call(func() { ran = true }, paths...)
		if !ran || x.State != None || !strings.Contains(x.Why, want) || x.Run != fmt.Sprintf("run_%d", b.n) {
			t.Errorf("%s: %+v, want %q", what, x, want)
		}
	}
	none := b.call(func() {}, filepath.Dir(b.dir))
	if none.ID != "" {
		t.Errorf("outside of a repository: %+v", none)
	}
	bareRepo := filepath.Join(filepath.Dir(b.dir), "bare.git")
	b.gitIn(filepath.Dir(b.dir), "init", "-q", "--bare", "bare.git")
	why("bare", "bare repository", bareRepo)
	why("bare, below", "bare repository", filepath.Join(bareRepo, "refs"))
	why("git's own", "git's own files", b.path(".git/config"))

	b.put(".git/refs/ombud", "a file where a directory has to be")
	why("refs that cannot be written", "keep the tree")
	b.rm(".git/refs/ombud")

	b.put("big", strings.Repeat("x", 3000))
	b.o.limits = ample()
	b.o.limits.fresh = 2000
	b.boot()
	why("much untracked data", "MiB of untracked files")
	b.commit()
	b.roundTrip(b.dir, "the same once it is tracked")
	b.o.limits = ample()
	b.o.limits.files = 2
	b.boot()
	b.put("more/files", "x")
	why("many files", "over 2 files")

	b.o.limits = ample()
	b.o.limits.time = time.Nanosecond
	b.boot()
	why("no time", "took too long")
	why("no time again", "took too long: the last one did")
	b.o.limits = ample()

	b.boot()
	b.c.git = plainGit{}
	b.c.repos = map[string]*repo{}
	why("no git", "git is not on this machine")
	if items, err := b.c.List(t.Context(), 50, true); err != nil || len(items) < 8 || items[0].Gone == "" {
		t.Errorf("list: %v, %v", items, err)
	}
}

// TestAWorkTreeCannotNameSomebodyElsesRepository: what is in it is written by whoever
// works there.
func TestAWorkTreeCannotNameSomebodyElsesRepository(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "a")
	b.commit()
	victim := b.path(".git")
	base := filepath.Dir(b.dir)
	forge := map[string]func(dir string) error{
		"a pointer": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: "+victim+"\n"), 0o600)
		},
		"a link": func(dir string) error { return os.Symlink(victim, filepath.Join(dir, ".git")) },
		"a common directory": func(dir string) error {
			b.gitIn(dir, "init", "-q", ".")
			return os.WriteFile(filepath.Join(dir, ".git/commondir"), []byte(victim+"\n"), 0o600)
		},
		"a common directory below": func(dir string) error {
			b.gitIn(dir, "init", "-q", "real")
			if err := os.MkdirAll(filepath.Join(dir, "real/.git/worktrees/x"), 0o700); err != nil {
				return err
			}
			for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "commondir": victim + "\n", "gitdir": filepath.Join(dir, ".git") + "\n"} {
				if err := os.WriteFile(filepath.Join(dir, "real/.git/worktrees/x", name), []byte(text), 0o600); err != nil {
					return err
				}
			}
			return os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: "+filepath.Join(dir, "real/.git/worktrees/x")+"\n"), 0o600)
		},
	}
	for what, fn := range forge {
		dir := filepath.Join(base, strings.ReplaceAll(what, " ", "-"))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fn(dir); err != nil {
			t.Fatal(err)
		}
		x := b.call(func() {}, dir)
		if x.State != None || !strings.Contains(x.Why, "does not know of it") || x.Run != fmt.Sprintf("run_%d", b.n) {
			t.Errorf("%s: %+v", what, x)
		}
	}
	if refs := b.refs(); len(refs) != 0 {
		t.Errorf("refs in the other repository: %v", refs)
	}
}

func TestARepositoryOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	if err := os.Chown(b.path(".git"), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if x := b.call(func() {}); x.State != None || !strings.Contains(x.Why, "another user") {
		t.Errorf("%+v", x)
	}
}

func TestAReadOnlyRepositoryHasNoCheckpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if os.Geteuid() == 0 {
		t.Skip("nothing is read-only for root")
	}
	b.put("a", "a")
	for _, mode := range []os.FileMode{0o500, 0o700} {
		for _, dir := range []string{".git/objects", ".git/refs"} {
			if err := os.Chmod(b.path(dir), mode); err != nil {
				t.Fatal(err)
			}
		}
		x := b.call(func() { b.put("b", "b") })
		if want := map[os.FileMode]State{0o500: None, 0o700: Held}[mode]; x.State != want {
			t.Errorf("%o: %+v", mode, x)
		}
		b.rm("b")
	}
	if err := os.WriteFile(b.path("secret"), nil, 0); err != nil {
		t.Fatal(err)
	}
	x := b.call(func() { b.put("c", "c") })
	if x.State != Held || x.Skipped["secret"] == "" {
		t.Errorf("a file that cannot be read: %+v", x)
	}
}

func TestBigFilesAreLeftOutByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.o.limits = ample()
	b.o.limits.file = 1000
	b.boot()
	b.put("big", strings.Repeat("x", 2000))
	b.put("small", "s")
	x := b.call(func() { b.put("big", "small now"); b.put("small", "t") })
	if x.Skipped["big"] == "" {
		t.Fatalf("%+v", x)
	}
	done, err := b.undo(x, Choice{Force: true})
	if err != nil || len(done.Left) != 1 || done.Restored != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := b.files(); got["big"] != `644 "small now"` || got["small"] != `644 "s"` {
		t.Error(got)
	}
	// A file that grew too big cannot be kept before it is overwritten.
	y := b.call(func() { b.put("small", "2") })
	b.put("small", strings.Repeat("x", 2000))
	if done, err := b.undo(y, Choice{Force: true}); err != nil || len(done.Left) != 1 || !strings.Contains(done.Left[0], "cannot be kept first") {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestNothingARepositoryNamesIsRun: its config and its attributes are others' words.
func TestNothingARepositoryNamesIsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mark := filepath.Join(filepath.Dir(b.dir), "ran")
	script := filepath.Join(filepath.Dir(b.dir), "evil.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >>"+mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.put("a.txt", "a\n")
	b.put("sub/b.lfs", "b\n")
	b.commit()
	for _, hook := range []string{"reference-transaction", "post-index-change", "pre-commit", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"} {
		if err := os.MkdirAll(b.path(".git/hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(script, b.path(".git/hooks/"+hook)); err != nil {
			t.Fatal(err)
		}
	}
	config := "[core]\n\tfsmonitor = " + script + "\n\thooksPath = " + b.path(".git/hooks") + "\n\tsshCommand = " + script + "\n\tpager = " + script +
		"\n\tlogAllRefUpdates = always\n\tuntrackedCache = true\n[filter \"evil\"]\n\tclean = " + script + "\n\tsmudge = " + script + "\n\tprocess = " + script +
		"\n\trequired = true\n[diff \"evil\"]\n\ttextconv = " + script + "\n\tcommand = " + script + "\n[diff]\n\texternal = " + script +
		"\n[remote \"origin\"]\n\turl = ext::" + script + "\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\tuploadpack = " + script +
		"\n[credential]\n\thelper = " + script + "\n[alias]\n\tls-files = !" + script + "\n\thash-object = !" + script + "\n[gc]\n\tauto = 1\n"
	f, err := os.OpenFile(b.path(".git/config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(config); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b.put(".gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf working-tree-encoding=UTF-16 ident\n")
	b.put("a.txt", "changed $Id$\n")
	before := b.files()
	x := b.call(func() { b.put("a.txt", "again\n"); b.rm("sub"); b.put("new.lfs", "n") })
	if x.State != Held {
		t.Fatalf("%+v", x)
	}
	if _, err := b.c.Preview(t.Context(), Choice{Checkpoint: x.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.List(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	b.mustUndo(x, Choice{})
	b.is(before, "undone")
	if raw, err := os.ReadFile(mark); err == nil {
		t.Errorf("it ran:\n%s", raw)
	}
	if exists(b.path(".git/logs/refs/ombud")) {
		t.Error("a reflog was written")
	}
	// A content that is gone is not fetched from where the config says.
	for _, oid := range strings.Fields(b.gitIn(b.dir, "-c", "alias.ls-files=", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "rev-parse", x.AfterTree+":new.lfs")) {
		b.rm(".git/objects/" + oid[:2] + "/" + oid[2:])
	}
	_ = os.Remove(mark) // the test's own git may have run it
	if _, err := b.undo(b.newest(), Choice{}); !fault.Is(err, fault.Verification) && !fault.Is(err, fault.Unavailable) {
		t.Errorf("a content that is gone: %v", err)
	}
	b.is(before, "nothing was changed")
	if raw, err := os.ReadFile(mark); err == nil {
		t.Errorf("it ran:\n%s", raw)
	}
}

func TestStrayRefsAreSwept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "1")
	x := b.call(func() { b.put("a", "2") })
	b.put("a", "3")
	k := b.c.Before(t.Context(), tool.Touch{Run: "run_x", Step: "s", Tool: "shell.exec", Paths: []string{b.dir}}) // and the process ends
	k.Done()
	foreign := "refs/ombud/checkpoints/another00000/chk_000000000000700080000000000000aa"
	b.git("update-ref", foreign, x.BeforeTree)
	if refs := b.refs(); len(refs) != 4 {
		t.Fatalf("refs: %v", refs)
	}
	b.boot()
	b.call(func() {})
	refs := b.refs()
	for _, ref := range []string{foreign, x.BeforeRef, x.AfterRef} {
		if !strings.Contains(strings.Join(refs, " "), ref) {
			t.Errorf("%s was swept", ref)
		}
	}
	if len(refs) != 4 { // and the one that the last call made
		t.Errorf("refs: %v", refs)
	}
	b.put("a", "2")
	b.mustUndo(x, Choice{})
}

func TestOldCheckpointsGoButNeverTheNewest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.o.Most, b.o.Least = 6, 3
	b.boot()
	var rows []Row
	for i := range 10 {
		rows = append(rows, b.call(func() { b.put("a", fmt.Sprint(i)) }))
	}
	sweep := func(want int) {
		t.Helper()
		if _, err := b.c.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := b.c.rows(t.Context(), "state <> '' ORDER BY seq")
		if err != nil || len(left) != want || left[len(left)-1].ID != rows[9].ID {
			t.Errorf("%d left, want %d: %v", len(left), want, err)
		}
	}
	sweep(6)
	b.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE checkpoints SET at = 1")
		return err
	})
	sweep(3)
	b.boot()
	b.call(func() {}) // sweeps the refs: none is young any more for a new process
	if refs := b.refs(); len(refs) != 4 {
		t.Errorf("refs: %v", refs)
	}
	b.git("gc", "-q", "--prune=now")
	b.mustUndo(rows[7], Choice{})
	if got := b.files()["a"]; got != `644 "6"` {
		t.Error(got)
	}
	b.rm(".git")
	if _, err := b.c.Sweep(t.Context()); err != nil {
		t.Errorf("a repository that is gone: %v", err)
	}
	if items, err := b.c.List(t.Context(), 10, false); err != nil || !strings.Contains(items[0].Gone, "gone") {
		t.Errorf("%v, %v", items, err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 20 {
		b.put(fmt.Sprintf("f%d", i), "0")
	}
	before := b.files()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 3 {
				path := fmt.Sprintf("f%d", i)
				touch := tool.Touch{Run: fmt.Sprintf("run_%d_%d", i, n), Step: "s", Tool: "fs.write", Paths: []string{b.path(path)}}
				if i%2 == 0 {
					touch.Paths = []string{b.dir}
				}
				k := b.c.Before(t.Context(), touch)
				if err := b.db.InTx(t.Context(), k.OpenTx); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(b.path(path), fmt.Append(nil, n+1), 0o644); err != nil {
					t.Error(err)
				}
				k.After(t.Context())
				if err := b.db.InTx(t.Context(), k.CloseTx); err != nil {
					t.Error(err)
				}
				k.Done()
			}
		})
	}
	all.Wait()
	rows, err := b.c.rows(t.Context(), "state = 'kept' ORDER BY seq")
	if err != nil || len(rows) != 24 {
		t.Fatal(len(rows), err)
	}
	b.mustUndo(rows[0], Choice{Force: true})
	b.is(before, "all undone")
}
