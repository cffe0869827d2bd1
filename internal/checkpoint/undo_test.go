package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestACallIsUndoneAndTheUndoIsUndone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := bareOn(t, d)
		b.git("init", "-q", "-b", "main", ".")
		b.put("a.txt", "one\n")
		b.put("dir/gone.txt", "crlf\r\n")
		b.putMode("tool.sh", "#!/bin/sh\n", 0o755)
		b.putMode("private", "p", 0o600)
		b.commit()
		b.put("untracked", "u")
		b.put("a.txt", "one and a half\n")
		b.git("add", "a.txt")
		before, state := b.files(), b.gitState()
		x := b.call(func() {
			b.put("a.txt", "two\n")
			b.rm("dir")
			b.rm("private")
			b.put("untracked", "changed")
			b.put("made/by/it", "m")
			if err := os.Chmod(b.path("tool.sh"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		after := b.files()
		if x.State != Held || x.AfterTree == "" || x.Changed != 6 || x.Why != "" {
			t.Fatalf("the checkpoint: %+v", x)
		}
		done := b.mustUndo(x, Choice{})
		if done.Restored != 5 || done.Removed != 1 {
			t.Errorf("did %+v", done)
		}
		b.is(before, "undone")
		if _, err := os.Stat(b.path("made")); err == nil {
			t.Error("the directory it made is left")
		}
		u := b.newest()
		if u.Tool != RestoreTool || len(u.Undoes) != 1 || u.Undoes[0] != x.ID {
			t.Errorf("the undo's own checkpoint: %+v", u)
		}
		b.mustUndo(u, Choice{})
		b.is(after, "undone again")
		if now := b.gitState(); now != state {
			t.Errorf("what is the user's has changed:\n%s\n%s", state, now)
		}
		b.git("fsck", "--strict")
		if log := b.git("log", "--all", "--format=%s"); log != "x" {
			t.Errorf("the log shows %q", log)
		}
		b.git("gc", "-q", "--prune=now")
		b.mustUndo(x, Choice{})
		b.is(before, "undone after a collection of garbage")
	})
}

func TestACallThatChangesNothingLeavesNoRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "a")
	b.call(func() {})
	if x := b.newest(); x.ID != "" {
		t.Errorf("a row: %+v", x)
	}
	var n int64
	for range 2000 { // a file that is this young is read again
		starts := b.starts.Load()
		b.call(func() {})
		if n = b.starts.Load() - starts; n == 3 {
			break
		}
		tick(t)
	}
	if n != 3 { // two lists before, one after
		t.Errorf("a call that changes nothing starts git %d times", n)
	}
	if refs := b.refs(); len(refs) != 1 {
		t.Errorf("refs: %v", refs)
	}
}

func TestWhatSomebodyElseChangedIsNotOverwritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "1")
	b.put("b", "1")
	b.put("c", "1")
	b.commit()
	x := b.call(func() { b.put("a", "2"); b.put("b", "2"); b.put("new", "2") })
	b.put("b", "mine")
	b.put("c", "mine")
	b.put("new2", "mine")
	now := b.files()
	_, err := b.undo(x, Choice{})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "b: "+whyLater) || strings.Contains(err.Error(), "a:") {
		t.Fatalf("undo over a change of somebody else: %v", err)
	}
	b.is(now, "refused")
	p, err := b.c.Preview(t.Context(), Choice{Checkpoint: x.ID})
	if err != nil || p.Others != 2 || len(p.Changes) != 3 || p.Changes[1].Conflict != whyLater || p.Changes[2].What != "remove" {
		t.Fatalf("preview: %+v, %v", p, err)
	}
	items, err := b.c.List(t.Context(), 10, false)
	if err != nil || len(items) != 1 || items[0].Since != 1 || items[0].Undone {
		t.Errorf("list: %+v, %v", items, err)
	}
	b.mustUndo(x, Choice{Paths: []string{"a", "new"}})
	if got := b.files(); got["a"] != `644 "1"` || got["b"] != `644 "mine"` || got["new"] != "" {
		t.Errorf("chosen files: %v", got)
	}
	b.mustUndo(x, Choice{Force: true})
	if got := b.files(); got["b"] != `644 "1"` || got["c"] != `644 "mine"` || got["new2"] != `644 "mine"` {
		t.Errorf("forced: %v", got)
	}
	b.mustUndo(b.newest(), Choice{})
	if got := b.files(); got["b"] != `644 "mine"` {
		t.Errorf("what force overwrote cannot be had back: %v", got)
	}
}

func TestLaterCallsAreTakenBackTooUnlessOnlyOneIsMeant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "0")
	b.put("b", "0")
	b.commit()
	before := b.files()
	one := b.call(func() { b.put("a", "1"); b.put("x", "1") })
	b.put("b", "mine") // before the second call changes it
	two := b.call(func() { b.put("b", "2"); b.put("x", "2") })
	three := b.call(func() { b.put("c", "3") })
	p, err := b.c.Preview(t.Context(), Choice{Checkpoint: one.ID})
	if err != nil || len(p.Also) != 2 || p.Also[0].ID != two.ID || p.Also[1].ID != three.ID {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := b.undo(one, Choice{Only: true}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "x:") {
		t.Fatalf("only the first, over the second: %v", err)
	}
	b.mustUndo(one, Choice{})
	before["b"] = `644 "mine"`
	b.is(before, "all three undone, what somebody wrote in between stays")
	items, err := b.c.List(t.Context(), 10, false)
	if err != nil || len(items) != 4 {
		t.Fatal(items, err)
	}
	for _, it := range items[1:] {
		if !it.Undone {
			t.Errorf("%s is not shown as undone", it.Summary)
		}
	}
	b.mustUndo(items[0].Row, Choice{Only: true})
	if got := b.files(); got["x"] != `644 "2"` || got["c"] != `644 "3"` {
		t.Errorf("the undo undone: %v", got)
	}
}

func TestAFileThatWasIgnoredBeforeIsNotTakenForMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(".gitignore", ".env\ncache/\n")
	b.put("a", "a")
	b.commit()
	b.put(".env", "precious")
	b.put("cache/deep/x", "precious")
	x := b.call(func() {
		b.put(".gitignore", "")
		b.git("add", "-f", ".env")
		b.put("made", "m")
	})
	done, err := b.undo(x, Choice{})
	if err != nil || len(done.Left) != 2 || done.Removed != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := b.files(); got[".env"] != `644 "precious"` || got["cache/deep/x"] != `644 "precious"` || got["made"] != "" {
		t.Errorf("%v", got)
	}
}

func TestAFileThatIsIgnoredAfterwardsIsNotTakenForDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("log", "1")
	b.put("a", "1")
	x := b.call(func() { b.put(".gitignore", "log\n"); b.put("a", "2") })
	b.put("log", "mine")
	if x.Changed != 2 {
		t.Errorf("changed %d files", x.Changed)
	}
	b.mustUndo(x, Choice{})
	if got := b.files(); got["log"] != `644 "mine"` || got["a"] != `644 "1"` || got[".gitignore"] != "" {
		t.Errorf("%v", got)
	}
}

func TestACallThatNamesItsFilesOwnsThoseAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "1")
	b.put("b", "1")
	x := b.call(func() {
		b.put("a", "2")
		b.put("b", "mine, at the same time")
	}, b.path("a"))
	if x.Changed != 1 {
		t.Errorf("changed %d files", x.Changed)
	}
	b.mustUndo(x, Choice{})
	if got := b.files(); got["a"] != `644 "1"` || got["b"] != `644 "mine, at the same time"` {
		t.Errorf("%v", got)
	}
	y := b.call(func() { b.put("deep/new/file", "n") }, b.path("deep/new/file"))
	b.mustUndo(y, Choice{})
	if _, err := os.Stat(b.path("deep")); err == nil {
		t.Error("what it made is left")
	}
	b.put(".gitignore", "secret\n")
	z := b.call(func() { b.put("secret", "s") }, b.path("secret"))
	b.mustUndo(z, Choice{})
	if exists(b.path("secret")) {
		t.Error("an ignored file that it made is left")
	}
	b.put("secret", "mine")
	z = b.call(func() { b.put("secret", "s") }, b.path("secret"))
	if z.State != None || !strings.Contains(z.Why, "ignores") {
		t.Errorf("an ignored file that was there: %+v", z)
	}
	if _, err := b.undo(z, Choice{}); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "ignores") {
		t.Errorf("undo of what was not kept: %v", err)
	}
}

func TestCallsAtTheSameTimeAreUndoneTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "0")
	before := b.files()
	one := b.begin()
	b.put("a", "1")
	two := b.begin()
	b.put("b", "2")
	b.end(one)
	first := b.newest()
	b.put("c", "2")
	b.end(two)
	second := b.newest()
	for first.ID == second.ID {
		rows, err := b.c.rows(t.Context(), "seq = $1", second.Seq-1)
		if err != nil {
			t.Fatal(err)
		}
		first = rows[0]
	}
	if len(first.With) != 1 || first.With[0] != second.ID || len(second.With) != 1 || second.With[0] != first.ID {
		t.Fatalf("with: %v, %v", first.With, second.With)
	}
	if _, err := b.undo(second, Choice{Only: true}); !fault.Is(err, fault.Conflict) {
		t.Errorf("one of two: %v", err)
	}
	b.mustUndo(second, Choice{})
	b.is(before, "both")
	busy := b.begin()
	b.put("d", "4")
	if _, err := b.undo(second, Choice{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "at work") {
		t.Errorf("while a call is at work: %v", err)
	}
	b.end(busy)
}

func TestAnInterruptedCallIsUndoneOnlyByForce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a", "1")
	b.begin() // and the process ends
	b.put("a", "2")
	b.boot()
	x := b.newest()
	if x.State != Open {
		t.Fatalf("%+v", x)
	}
	if _, err := b.undo(x, Choice{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), whyUnsure) {
		t.Errorf("without force: %v", err)
	}
	b.mustUndo(x, Choice{Force: true})
	if got := b.files()["a"]; got != `644 "1"` {
		t.Error(got)
	}
	b.begin(b.path("a")) // one that names its file
	b.put("b", "mine")
	b.put("a", "3")
	b.boot()
	y := b.newest()
	if _, err := b.undo(y, Choice{}); !fault.Is(err, fault.Conflict) || strings.Contains(err.Error(), "b:") {
		t.Errorf("without force: %v", err)
	}
	b.mustUndo(y, Choice{Force: true})
	if got := b.files(); got["a"] != `644 "1"` || got["b"] != `644 "mine"` {
		t.Error(got)
	}
}

func TestAFileAndADirectoryChangePlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("file", "f")
	b.put("dir/x", "x")
	b.put("linked/y", "y")
	if err := os.Symlink("file", b.path("link")); err != nil {
		t.Fatal(err)
	}
	before := b.files()
	x := b.call(func() {
		b.rm("file")
		b.put("file/inside", "i")
		b.rm("dir")
		b.put("dir", "d")
		b.rm("linked")
		b.rm("link")
		b.put("link", "no link")
		if err := os.Symlink("/etc", b.path("linked")); err != nil {
			t.Fatal(err)
		}
	})
	after := b.files()
	b.mustUndo(x, Choice{})
	b.is(before, "undone")
	b.mustUndo(b.newest(), Choice{})
	b.is(after, "and back")
	b.put("file/mine", "m") // in the way of the file
	done, err := b.undo(x, Choice{})
	if err != nil || len(done.Left) != 1 || !strings.Contains(done.Left[0], "in its place") {
		t.Errorf("%+v, %v", done, err)
	}
	if got := b.files()["file/mine"]; got != `644 "m"` {
		t.Error(got)
	}
}

// TestRandomTreesComeBackByteForByte: whatever a call does, undo brings back what was.
func TestRandomTreesComeBackByteForByte(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts git thousands of times, one after the other")
	}
	names := []string{"a", "b", "a/b", "a/b/c", "d/e", "d/e/f", "with space", "we\nird", "quo\"te\\", "bytes\xff\xfe", "ünï", "-dash", ":(top)x", "d/ignored.o", "tab\t", ".gitattributes"}
	contents := []string{"", "x", "x\n", "crlf\r\n", "$Id$\n", "bin\x00\xff", "* text=auto eol=lf filter=evil\n", strings.Repeat("long ", 5000)}
	b := setup(t)
	b.git("config", "filter.evil.clean", "touch "+b.dir+"/../evil; false")
	b.git("config", "filter.evil.smudge", "touch "+b.dir+"/../evil; false")
	b.git("config", "filter.evil.required", "true")
	b.git("config", "core.autocrlf", "true")
	b.put(".gitignore", "*.o\n")
	rapid.Check(t, func(rt *rapid.T) {
		scramble := func(label string) {
			for i := range rapid.IntRange(0, 6).Draw(rt, label) {
				name := rapid.SampledFrom(names).Draw(rt, fmt.Sprint(label, i))
				full := b.path(name)
				switch rapid.IntRange(0, 4).Draw(rt, fmt.Sprint(label, "do", i)) {
				case 0:
					_ = os.RemoveAll(full)
				case 1:
					_ = os.RemoveAll(full)
					_ = os.Symlink(rapid.SampledFrom([]string{"a", "nowhere", "/etc/passwd", ".."}).Draw(rt, "target"), full)
				case 2:
					_ = os.Chmod(full, rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o600}).Draw(rt, "mode"))
				default:
					clearWay(b, name)
					b.putMode(name, rapid.SampledFrom(contents).Draw(rt, "content"), rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o700, 0o600}).Draw(rt, "mode"))
				}
				if rapid.IntRange(0, 5).Draw(rt, "stage") == 0 {
					_, _ = gitOf(t, b.dir, "-c", "filter.evil.clean=cat", "-c", "filter.evil.required=false", "add", "-f", "--", "d/ignored.o") // if it is there
				}
			}
		}
		scramble("before")
		before := known(b)
		k := b.begin()
		ignored := b.files()["d/ignored.o"]
		scramble("call")
		b.end(k)
		x := b.newest()
		after := known(b)
		if x.Run != fmt.Sprintf("run_%d", b.n) {
			if !sameModes(before, after) {
				rt.Fatalf("a change left no row: %v, %v", before, after)
			}
			return
		}
		done, err := b.undo(x, Choice{})
		if err != nil {
			rt.Fatal(err)
		}
		if len(done.Left) > 0 && (ignored == "" || len(done.Left) > 1 || !strings.HasPrefix(done.Left[0], "d/ignored.o")) {
			rt.Fatalf("left %v", done.Left)
		}
		if got := known(b); len(done.Left) == 0 && !sameModes(got, before) {
			rt.Fatalf("undone is\n%q, want\n%q, after\n%q", got, before, after)
		}
		if exists(b.dir + "/../evil") {
			rt.Fatal("a filter ran")
		}
	})
}

// clearWay makes room for a file: what is no directory above it goes.
func clearWay(b *bench, name string) {
	for dir := range above(name) {
		if info, err := os.Lstat(b.path(dir)); err == nil && !info.IsDir() {
			b.rm(dir)
		}
	}
	if info, err := os.Lstat(b.path(name)); err == nil && !info.Mode().IsRegular() {
		b.rm(name)
	}
}

// known is the files a checkpoint holds: all but the ignored one, which may be tracked.
func known(b *bench) map[string]string {
	out := b.files()
	delete(out, "d/ignored.o")
	return out
}

// sameModes compares two trees as git does: of permissions only whether it is
// executable counts, unless the content had to be written.
func sameModes(a, b map[string]string) bool {
	norm := func(s string) string {
		mode, rest, ok := strings.Cut(s, " ")
		var m os.FileMode
		if _, err := fmt.Sscanf(mode, "%o", &m); !ok || err != nil {
			return s
		}
		return fmt.Sprint(m&0o111 != 0, rest)
	}
	if len(a) != len(b) {
		return false
	}
	for p, s := range a {
		if norm(b[p]) != norm(s) {
			return false
		}
	}
	return true
}

// The step of a call covers the look after it, or another node could take its run.
func TestTheLookAfterACallHasTheTimeOfEachRepository(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := filepath.Join(filepath.Dir(b.dir), "other")
	b.git("init", "-q", other)
	b.put("a", "1")
	b.commit()
	x := b.call(func() { b.put("a", "2") })
	one, two := b.begin(), b.begin(b.dir, other)
	defer b.end(one)
	defer b.end(two)
	if one.Time() < maxTime || two.Time() != 2*one.Time() {
		t.Errorf("one repository has %v, two have %v", one.Time(), two.Time())
	}
	input, err := b.c.InputOf(t.Context(), Choice{Checkpoint: x.ID})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	undo := b.beginAs(tool.Touch{Run: "run_undo", Step: "restore", Tool: RestoreTool, Input: raw, Paths: []string{b.dir}})
	defer b.end(undo)
	if undo.Time() < patience {
		t.Errorf("an undo has %v", undo.Time())
	}
}

// A directory in which git ignores all that is there is not ignored itself.
func TestAFileMadeBesideIgnoredOnesIsTakenAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(".gitignore", "*.o\nbuild/\n")
	b.put("d/ignored.o", "o")
	b.put("d/build/x", "x")
	b.commit()
	before := b.files()
	x := b.call(func() { b.put("d/new", "n"); b.put("d/e/new", "n") })
	if done := b.mustUndo(x, Choice{}); done.Removed != 2 || len(done.Left) > 0 {
		t.Errorf("%+v", done)
	}
	b.is(before, "undone")
}
