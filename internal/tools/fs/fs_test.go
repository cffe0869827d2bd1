package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
)

type bench struct {
	t    *testing.T
	dir  string // the root, resolved
	reg  *tool.Registry
	inv  *tool.Invoker
	away string // a directory outside
}

func setup(t *testing.T) bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := bench{t: t, dir: filepath.Join(dir, "root"), away: filepath.Join(dir, "away")}
	for _, d := range []string{b.dir, b.away} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	root, err := guard.OpenRoot(b.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	if err := New(root, "", nil).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) put(rel, content string) {
	b.t.Helper()
	full := filepath.Join(b.dir, rel)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o640); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) content(rel string) string {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, rel))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}

func (b bench) link(target, rel string) {
	b.t.Helper()
	if err := os.Symlink(target, filepath.Join(b.dir, rel)); err != nil {
		b.t.Skip("no links here:", err)
	}
}

func args(fields map[string]any) json.RawMessage {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return raw
}

func (b bench) call(name string, fields map[string]any) (string, error) {
	b.t.Helper()
	in := args(fields)
	if err := b.reg.Validate(name, in); err != nil {
		b.t.Fatalf("the test's input: %v", err)
	}
	out, err := b.inv.Call(b.t.Context(), name, tool.Invocation{Key: "k1", Input: in})
	return out.Text, err
}

func (b bench) scopes(name string, fields map[string]any) (string, error) {
	def, err := b.reg.Get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := def.Scopes(args(fields))
	return fmt.Sprint(list), err
}

func TestScopesNameTheFileThatIsReallyMeant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("sub/real.txt", "x")
	b.link("real.txt", "sub/link.txt")
	b.link("sub", "dir")
	for _, c := range []struct{ tool, path, want string }{
		{"fs.read", "sub/real.txt", "fs.read:" + b.dir + "/sub/real.txt"},
		{"fs.read", "dir/../dir/link.txt", "fs.read:" + b.dir + "/sub/real.txt"},
		{"fs.read", b.dir + "/dir/real.txt", "fs.read:" + b.dir + "/sub/real.txt"},
		{"fs.list", ".", "fs.list:" + b.dir},
		{"fs.write", "dir/new/deep.txt", "fs.write:" + b.dir + "/sub/new/deep.txt"},
		{"fs.write", "dir/link.txt", "fs.write:" + b.dir + "/sub/real.txt"},
		{"fs.delete", "dir/link.txt", "fs.delete:" + b.dir + "/sub/link.txt"},
	} {
		got, err := b.scopes(c.tool, map[string]any{"path": c.path})
		if c.tool == "fs.write" {
			got, err = b.scopes(c.tool, map[string]any{"path": c.path, "content": ""})
		}
		if err != nil || got != "["+c.want+"]" {
			t.Errorf("%s %s needs %s, %v, want %s", c.tool, c.path, got, err, c.want)
		}
	}
}

func TestNothingLeadsOutOfTheRoot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outside := filepath.Join(b.away, "o.txt")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.link(outside, "file")
	b.link(b.away, "dir")
	b.link(filepath.Join("..", "away"), "relative")
	for _, path := range []string{"../away/o.txt", outside, "file", "dir/o.txt", "relative/o.txt", "a/../../away/o.txt", b.dir + "/../away/o.txt", b.dir + "x"} {
		for _, name := range []string{"fs.read", "fs.write", "fs.delete"} {
			if name == "fs.delete" && path == "file" {
				continue // deletes the link
			}
			in := map[string]any{"path": path}
			if name == "fs.write" {
				in["content"] = "changed"
			}
			if got, err := b.scopes(name, in); !fault.Is(err, fault.Denied) {
				t.Errorf("%s %s needs %s, %v, want denied", name, path, got, err)
			}
			if _, err := b.call(name, in); !fault.Is(err, fault.Denied) {
				t.Errorf("%s %s: %v, want denied", name, path, err)
			}
		}
	}
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != "outside" {
		t.Errorf("the file outside is now %q, %v", raw, err)
	}
	if _, err := b.call("fs.read", map[string]any{"path": "a\x00b"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a path with NUL: %v", err)
	}
}

func TestTheGuardIsAskedAboutTheResolvedPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("site.key", "s")
	b.put(".profile", "s")
	b.link("site.key", "innocent.txt")
	for _, c := range []struct{ tool, path string }{
		{"fs.read", "innocent.txt"}, {"fs.write", "innocent.txt"}, {"fs.write", ".profile"}, {"fs.delete", ".profile"}, {"fs.list", ".ssh"},
	} {
		in := map[string]any{"path": c.path}
		if c.tool == "fs.write" {
			in["content"] = "x"
		}
		if _, err := b.scopes(c.tool, in); !fault.Is(err, fault.Denied) {
			t.Errorf("%s %s: scopes %v, want denied before anybody is asked", c.tool, c.path, err)
		}
		if _, err := b.call(c.tool, in); !fault.Is(err, fault.Denied) {
			t.Errorf("%s %s: %v, want denied", c.tool, c.path, err)
		}
	}
	if got, err := b.call("fs.read", map[string]any{"path": ".profile"}); err != nil || got != "s" {
		t.Errorf("reading what may only not be changed: %q, %v", got, err)
	}
}

func TestReadGivesAWholeTextAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a.txt", "héllo\n")
	b.put("empty", "")
	for path, want := range map[string]string{"a.txt": "héllo\n", "empty": ""} {
		if got, err := b.call("fs.read", map[string]any{"path": path}); err != nil || got != want {
			t.Errorf("read %s = %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestPagesJoinToTheFileAndNeverCutARune(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		content := strings.ReplaceAll(rapid.StringN(0, 300, -1).Draw(rt, "content"), "\x00", "")
		limit := rapid.IntRange(4, 64).Draw(rt, "limit")
		b.put("pages.txt", content)
		var got strings.Builder
		for offset, pages := 0, 0; ; pages++ {
			text, err := b.call("fs.read", map[string]any{"path": "pages.txt", "offset": offset, "limit": limit})
			if err != nil || !utf8.ValidString(text) || pages > len(content) {
				rt.Fatalf("page at %d: %q, %v", offset, text, err)
			}
			body, note := text, ""
			if i := strings.LastIndex(text, "\n[bytes "); i >= 0 {
				body, note = text[:i], text[i:]
			}
			got.WriteString(body)
			i := strings.Index(note, "go on with offset ")
			if i < 0 {
				break
			}
			if _, err := fmt.Sscanf(note[i:], "go on with offset %d", &offset); err != nil {
				rt.Fatal(err)
			}
		}
		if got.String() != content {
			rt.Fatalf("pages of %d bytes join to %q, want %q", limit, got.String(), content)
		}
	})
}

func TestReadMarksWhatIsNotText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("bin", "a\x00b\xff\xfe\xed\xa0\x80c")
	got, err := b.call("fs.read", map[string]any{"path": "bin"})
	want := "a\uFFFDb" + strings.Repeat("\uFFFD", 5) + "c\n[6 bytes are not text and shown as \uFFFD]"
	if err != nil || got != want {
		t.Errorf("read = %q, %v, want %q", got, err, want)
	}
}

func TestReadIsBoundedWhateverTheFileIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f, err := os.Create(filepath.Join(b.dir, "huge"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 40); err != nil { // sparse
		t.Skip("no sparse files here:", err)
	}
	got, err := b.call("fs.read", map[string]any{"path": "huge", "offset": 1 << 39, "limit": maxRead})
	if err != nil || len(got) > 4*maxRead || !strings.Contains(got, "go on with offset 549756076032") {
		t.Errorf("read = %d bytes ending in %q, %v", len(got), got[max(0, len(got)-120):], err)
	}
	if got, err := b.call("fs.read", map[string]any{"path": "huge", "offset": 1 << 50}); err != nil || !strings.HasPrefix(got, "\n[bytes ") {
		t.Errorf("past the end: %q, %v", got, err)
	}
}

func TestErrorsSayWhatIsWrongInTheCallersWords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("file", "x")
	b.put("full/x", "x")
	b.link("nowhere", "dangling")
	for _, c := range []struct {
		tool, path string
		class      fault.Class
		text       string
	}{
		{"fs.read", "missing.txt", fault.NotFound, "missing.txt"},
		{"fs.read", "full", fault.Invalid, "is a directory"},
		{"fs.read", "dangling", fault.NotFound, "dangling"},
		{"fs.read", "file/x", fault.Invalid, "not a directory"},
		{"fs.list", "file", fault.Invalid, "not a directory"},
		{"fs.list", "missing", fault.NotFound, "missing"},
		{"fs.write", "full", fault.Invalid, "not a regular file"},
		{"fs.write", ".", fault.Invalid, "not a regular file"},
		{"fs.delete", "full", fault.Conflict, "not empty"},
		{"fs.delete", "missing", fault.NotFound, "missing"},
		{"fs.delete", ".", fault.Denied, "workspace"},
	} {
		in := map[string]any{"path": c.path}
		if c.tool == "fs.write" {
			in["content"] = "x"
		}
		_, err := b.call(c.tool, in)
		if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), b.away) {
			t.Errorf("%s %s: %v (%s), want %s with %q", c.tool, c.path, err, fault.ClassOf(err), c.class, c.text)
		}
	}
}

func TestListIsOrderedTypedAndPaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("b.txt", "12345")
	b.put("d/x", "")
	b.put("a\nb", "")
	b.link("b.txt", "l")
	got, err := b.call("fs.list", map[string]any{})
	if want := "\"a\\nb\"  0\nb.txt  5\nd/\nl@"; err != nil || got != want {
		t.Errorf("list = %q, %v, want %q", got, err, want)
	}
	first, err := b.call("fs.list", map[string]any{"path": ".", "limit": 2})
	if err != nil || !strings.HasSuffix(first, "b.txt  5\n[2 more; go on with after \"b.txt\"]") {
		t.Errorf("first page = %q, %v", first, err)
	}
	second, err := b.call("fs.list", map[string]any{"path": ".", "after": "b.txt"})
	if err != nil || second != "d/\nl@" {
		t.Errorf("second page = %q, %v", second, err)
	}
	b.put("e/.keep", "")
	if err := os.Remove(filepath.Join(b.dir, "e/.keep")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.call("fs.list", map[string]any{"path": "e"}); err != nil || got != "[empty]" {
		t.Errorf("an empty directory = %q, %v", got, err)
	}
}

func TestWriteReplacesWholeKeepsTheModeAndMakesDirectories(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("old.txt", "old")
	if err := os.Chmod(filepath.Join(b.dir, "old.txt"), 0o666); err != nil { // more than a umask leaves
		t.Fatal(err)
	}
	if got, err := b.call("fs.write", map[string]any{"path": "old.txt", "content": "new\x00é"}); err != nil || got != "wrote old.txt (6 bytes)" {
		t.Errorf("write = %q, %v", got, err)
	}
	if got := b.content("old.txt"); got != "new\x00é" {
		t.Errorf("content %q", got)
	}
	if _, err := b.call("fs.write", map[string]any{"path": "x/y/z.txt", "content": ""}); err != nil || b.content("x/y/z.txt") != "" {
		t.Errorf("write into new directories: %v", err)
	}
	if info, err := os.Stat(filepath.Join(b.dir, "old.txt")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o666 {
		t.Errorf("old.txt has mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "*", "*", ".ombud-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestACancelledWriteLeavesTheOldFileAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a.txt", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.inv.Call(ctx, "fs.write", tool.Invocation{Key: "k", Input: args(map[string]any{"path": "a.txt", "content": "new"})})
	if err == nil || b.content("a.txt") != "old" {
		t.Errorf("write = %v, content %q", err, b.content("a.txt"))
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestProbesSettleACrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	write := tool.Invocation{Key: "k1", Input: args(map[string]any{"path": "a.txt", "content": "new"})}
	probe := func(name string, in tool.Invocation) tool.ProbeState {
		res, err := b.inv.Probe(t.Context(), name, in)
		if err != nil {
			t.Fatal(err)
		}
		return res.State
	}
	if got := probe("fs.write", write); got != tool.NotDone {
		t.Errorf("before anything: %s", got)
	}
	b.put("a.txt", "old")
	if got := probe("fs.write", write); got != tool.NotDone || b.content("a.txt") != "old" {
		t.Errorf("before the rename: %s", got)
	}
	b.put("a.txt", "nex")
	if got := probe("fs.write", write); got != tool.NotDone {
		t.Errorf("other content of the same size: %s", got)
	}
	if _, err := b.inv.Call(t.Context(), "fs.write", write); err != nil {
		t.Fatal(err)
	}
	if got := probe("fs.write", write); got != tool.Done {
		t.Errorf("after the write: %s", got)
	}
	del := tool.Invocation{Key: "k2", Input: args(map[string]any{"path": "a.txt"})}
	if got := probe("fs.delete", del); got != tool.NotDone {
		t.Errorf("before the delete: %s", got)
	}
	if _, err := b.inv.Call(t.Context(), "fs.delete", del); err != nil {
		t.Fatal(err)
	}
	if got := probe("fs.delete", del); got != tool.Done {
		t.Errorf("after the delete: %s", got)
	}
	if res, err := b.inv.Probe(t.Context(), "fs.write", tool.Invocation{Input: args(map[string]any{"path": "../x", "content": ""})}); err == nil || res.State != tool.Unclear {
		t.Errorf("a probe of what is refused: %+v, %v", res, err)
	}
}

func TestDeleteTakesTheLinkNotItsTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("t.txt", "kept")
	b.link("t.txt", "l")
	if got, err := b.call("fs.delete", map[string]any{"path": "l"}); err != nil || got != "deleted l" {
		t.Errorf("delete = %q, %v", got, err)
	}
	if b.content("t.txt") != "kept" {
		t.Error("the target changed")
	}
}

func TestSummariesTellAPersonWhatWouldBeLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("a.txt", "12345")
	for _, c := range []struct {
		tool string
		in   map[string]any
		want string
	}{
		{"fs.read", map[string]any{"path": "a.txt"}, "read a.txt"},
		{"fs.list", map[string]any{}, "list ."},
		{"fs.write", map[string]any{"path": "a.txt", "content": "123"}, "replace a.txt (5 bytes by 3)"},
		{"fs.write", map[string]any{"path": "b.txt", "content": "123"}, "write b.txt (3 bytes)"},
		{"fs.delete", map[string]any{"path": "a\u202e.txt"}, `delete "a\u202e.txt"`},
	} {
		def, err := b.reg.Get(c.tool)
		if err != nil {
			t.Fatal(err)
		}
		if got := def.Summary(args(c.in)); got != c.want {
			t.Errorf("summary %q, want %q", got, c.want)
		}
	}
}
